"""A Spark session: its Java, its jars, its settings."""
