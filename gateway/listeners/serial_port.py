"""One stream of the serial link, as the broker sees it."""

import asyncio
from typing import TYPE_CHECKING

from gateway.port import Visitor

if TYPE_CHECKING:
    from gateway.listeners.serial_line import SerialLine

RECEIVED_MAX = 64 * 1024  # bytes the broker has not taken; beyond it the link's credit holds the device back
BACKLOG_DRAINED = 1024  # bytes; on a slow line little should wait in front of what comes next


class SerialPort:
    """One stream of the link: what the broker sees as a client's line, until the link goes down."""

    def __init__(self, line: "SerialLine", visitor: Visitor) -> None:
        self.peer = visitor.host
        self.visitor = visitor
        self.outgoing = bytearray()
        self._line = line
        self._received = bytearray()
        self._ended = False
        self._changed = asyncio.Event()

    async def receive(self) -> bytes:
        while not self._received and not self._ended:
            await self._change()
        data = bytes(self._received)
        self._received.clear()
        self._line.advance()
        return data

    def unpack(self, data: bytes) -> tuple[bytes]:
        return (data,)

    def send(self, data: bytes) -> None:
        if not self._ended:
            self.outgoing += data
            self._line.advance()

    @property
    def backlog(self) -> int:
        return len(self.outgoing)

    async def drain(self) -> None:
        while self.backlog > BACKLOG_DRAINED and not self._ended:
            await self._change()
        if self._ended:
            raise ConnectionResetError("the link is down")

    def note_admitted(self) -> None:
        """A serial line has one client, which nobody else can keep from its place."""

    def close(self) -> None:
        if not self._ended:
            self.end()
            self._line.end_stream()

    def end(self) -> None:
        """The link's side of ``close``."""
        self._ended = True
        self._changed.set()

    @property
    def full(self) -> bool:
        """Whether the broker has not taken what came before."""
        return len(self._received) >= RECEIVED_MAX and not self._ended

    def feed(self, data: bytes) -> None:
        """Bytes that came over the link."""
        if not self._ended:
            self._received += data
            self._changed.set()

    def note_sent(self) -> None:
        """The link has taken something of ``outgoing``."""
        self._changed.set()

    async def _change(self) -> None:
        self._changed.clear()
        await self._changed.wait()
