"""From the central broker into tables: the lander, the Spark job, the ledger and the queries."""
