"""Gateways that subscribe for each other: what is wanted here, and what neighbours are told of it."""

from gateway.network.network import LinkEnd, Network

__all__ = ["LinkEnd", "Network"]
