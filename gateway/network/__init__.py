"""Gateways that subscribe for each other: what is wanted here, and what neighbours are told of it."""

from gateway.network.network import Network

__all__ = ["Network"]
