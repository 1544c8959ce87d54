"""Streams: parts of a gateway's topics that have a store, limits and access rules of their own."""
