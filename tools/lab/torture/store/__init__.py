"""Cuts the power of the gateway's store at each write."""
