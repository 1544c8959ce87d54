"""A data source for any Spark session: `spark.read.format("holdfast")` over landing folders and tables."""
