"""Commands that fill the tables, ask them and look after them."""
