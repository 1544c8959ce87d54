"""The byte stream between a client and the broker, whatever listener the client came through."""

import ipaddress
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol


def never() -> bool:
    """Says that no certificate of a client is revoked, where there is none or no list."""
    return False


@dataclass(slots=True, frozen=True)
class Visitor:
    """What a listener knows of a client.

    ``host`` is its address: an IP address without a port, or the name of a serial line. ``certificate_user`` is the
    user that its certificate names. ``may_be_anonymous`` says that its listener accepts clients without an account.
    ``tls`` is the version of TLS and the cipher of its connection. ``is_realtime``: its listener is a real-time one.
    ``is_revoked`` says whether its certificate is revoked now, by the lists that its listener has read last.
    """

    host: str
    certificate_user: str | None = None
    may_be_anonymous: bool = False
    tls: str | None = None
    is_realtime: bool = False
    is_revoked: Callable[[], bool] = never


class Port(Protocol):
    """One client's line: a stream of bytes in each direction."""

    peer: str
    """The client's address and TCP port, or the serial line, for the log."""

    visitor: Visitor
    """What the listener knows of the client."""

    async def receive(self) -> bytes:
        """Waits for bytes and returns them; b"" once either side has ended the line. Raises OSError."""

    def unpack(self, data: bytes) -> Iterable[bytes]:
        """Yields the bytes of MQTT in what ``receive`` returned, piece by piece; a piece may be empty.

        A line with frames around these bytes reads the frames here, so that their cost counts for the client's slice.
        """

    def send(self, data: bytes) -> None:
        """Queues bytes for the line and never waits; after the end of the line it discards them."""

    @property
    def backlog(self) -> int:
        """Bytes that ``send`` has queued and the line has not taken."""

    async def drain(self) -> None:
        """Waits until the backlog is small. Raises OSError once the line has ended."""

    def note_admitted(self) -> None:
        """The client has logged in: the limits for unauthenticated connections end for it."""

    def close(self) -> None:
        """Ends the line; what ``send`` has queued is still sent if the client takes it soon."""


def host_of(peer: str) -> str:
    """Returns the address in ``Port.peer``, without a TCP port."""
    return peer[1 : peer.index("]")] if peer.startswith("[") else peer.partition(":")[0]


def network_of(host: str) -> str:
    """Returns the addresses that one customer has: an IPv4 address or an IPv6 /64; any other host stays as it is."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    if address.ipv4_mapped:
        return str(address.ipv4_mapped)
    return str(ipaddress.IPv6Network((address, 64), strict=False))
