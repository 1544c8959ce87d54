"""Many boards from one table: a CSV file with one row a board."""
