"""What the job costs beside a plain Spark copy of the same landing files."""
