"""Receipts: what the tables have settled, for each hop of a message's way."""
