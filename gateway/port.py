"""What a listener hands to the broker for each client: a way to and from it, whatever line that is."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol


@dataclass(slots=True, frozen=True)
class Visitor:
    """What a listener knows of a client.

    ``host`` is where it comes from: an IP address without port, or a line's name. ``certificate_user`` is the name in
    the certificate it has shown. ``may_be_anonymous`` says that its listener takes clients without an account.
    ``tls`` is the version of TLS and the cipher that it is encrypted with.
    """

    host: str
    certificate_user: str | None = None
    may_be_anonymous: bool = False
    tls: str | None = None


class Port(Protocol):
    """One client's line, as a stream of bytes both ways."""

    peer: str
    """Who is at the other end, for the log."""

    visitor: Visitor
    """What is known of who is at the other end."""

    async def receive(self) -> bytes:
        """Waits for bytes of the line; empty once it has ended, from either side. Raises OSError."""

    def unpack(self, data: bytes) -> Iterable[bytes]:
        """Yields MQTT's bytes in what ``receive`` brought, a limited work at a time; some pieces may be empty.

        A line that has bytes of its own around them reads these here, so that they cost the client's own time.
        """

    def send(self, data: bytes) -> None:
        """Takes bytes for the line; never waits, and after its end takes them for nothing."""

    @property
    def backlog(self) -> int:
        """Bytes taken by ``send`` that are not on the line yet."""

    async def drain(self) -> None:
        """Waits until the backlog is small. Raises OSError once the line has ended."""

    def note_admitted(self) -> None:
        """The broker has let the client in: the limits for those who have not been are not for it any more."""

    def close(self) -> None:
        """Ends the line; what was taken by ``send`` before is still sent if the other end takes it soon."""
