"""One module for each table of the store's database."""
