"""From landing files into Delta tables: the job, the ledger and the queries."""
