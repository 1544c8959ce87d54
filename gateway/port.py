"""What a listener hands to the broker for each client: a way to and from it, whatever line that is."""

from typing import Protocol


class Port(Protocol):
    """One client's line, as a stream of bytes both ways."""

    peer: str
    """Who is at the other end, for the log."""

    async def receive(self) -> bytes:
        """Waits for bytes; empty once the line has ended, from either side. Raises OSError."""

    def send(self, data: bytes) -> None:
        """Takes bytes for the line; never waits, and after its end takes them for nothing."""

    @property
    def backlog(self) -> int:
        """Bytes taken by ``send`` that are not on the line yet."""

    async def drain(self) -> None:
        """Waits until the backlog is small. Raises OSError once the line has ended."""

    def close(self) -> None:
        """Ends the line; what was taken by ``send`` before is still sent if the other end takes it soon."""
