"""Multicast groups: what many receivers of a LAN get in one datagram, and the keys to check it by.

docs/reference/multicast.md has the bytes, docs/how-to/multicast-displays.md the use.
"""

from gateway.multicast.group import Member, MulticastGroup
from gateway.multicast.multicast import BadMulticast, Multicast

__all__ = ["BadMulticast", "Member", "Multicast", "MulticastGroup"]
