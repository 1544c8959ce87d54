"""The job: plans batches, runs them on Spark, proves and commits them."""
