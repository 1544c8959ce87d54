"""Consumers of the log: a cursor for each open one, the registry of all, and what waits for each."""
