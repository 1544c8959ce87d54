"""Commands for multicast groups."""
