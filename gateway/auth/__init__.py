"""Logging in, and what each client may do: accounts, SCRAM, access rules."""
