"""Verdicts: which messages of a batch are new, by their identities."""
