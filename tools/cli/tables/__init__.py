"""Commands that look after the tables."""
