"""The connection to the broker."""
