"""Gateways that subscribe for each other: which topic filters a gateway tells its neighbours."""
