"""One client's line over TCP, TLS or a Unix socket, as the broker sees it."""

import asyncio
from collections.abc import Callable
from typing import cast

from gateway.listeners.connection_limits import AcceptedConnection
from gateway.port import Port, Visitor

RECEIVED_MAX = (
    64 * 1024
)  # bytes that the broker has not read; beyond it the socket is not read, and TCP stops the client
CLOSE_GRACE_S = 2.0  # for a client to read what was sent last


class StreamPort(asyncio.Protocol):
    """One accepted connection.

    Args:
        accepted: the connection, for the limits.
        identify: returns what is known of the client, or None to end the connection; called after the TLS handshake.
        connect: called with the port when it can be used.
    """

    __slots__ = (
        "_accepted",
        "_closing",
        "_connect",
        "_counts_received",
        "_ended",
        "_error",
        "_identify",
        "_last_moment",
        "_paused",
        "_received",
        "_received_size",
        "_transport",
        "_waiter",
        "_writable",
        "peer",
        "visitor",
    )

    def __init__(
        self,
        accepted: AcceptedConnection,
        identify: Callable[[AcceptedConnection, asyncio.BaseTransport], Visitor | None],
        connect: Callable[[Port], None],
    ) -> None:
        self.peer = accepted.peer
        self.visitor: Visitor
        self._accepted = accepted
        self._identify = identify
        self._connect = connect
        self._transport: asyncio.Transport
        self._received: list[bytes] = []
        self._received_size = 0
        self._counts_received = True  # until the client has logged in
        self._paused = False
        self._ended = False  # as the user of the port sees it
        self._closing = False
        self._error: OSError | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._writable: asyncio.Event | None = None  # while the backlog is large
        self._last_moment: asyncio.TimerHandle | None = None

    async def receive(self) -> bytes:
        while not self._received:
            if self._error is not None:
                raise self._error
            if self._ended:
                return b""
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        data = b"".join(self._received)
        self._received.clear()
        self._received_size = 0
        if self._paused:
            self._resume_reading()
        return data

    def unpack(self, data: bytes) -> tuple[bytes]:
        return (data,)

    def send(self, data: bytes) -> None:
        if not self._ended:
            self._transport.write(data)

    @property
    def backlog(self) -> int:
        return self._transport.get_write_buffer_size()

    async def drain(self) -> None:
        if self._writable is not None:
            await self._writable.wait()
        if self._ended:
            raise ConnectionResetError("the line has ended")

    def note_admitted(self) -> None:
        self._counts_received = False
        self._accepted.note_admitted()

    def close(self) -> None:
        if self._closing:
            return
        self._closing = True
        self._last_moment = asyncio.get_running_loop().call_later(CLOSE_GRACE_S, self._transport.abort)
        if self._transport.can_write_eof() and not self._ended:
            # What the client still sends is read and discarded: unread bytes would make the system reset the
            # connection, and the client would lose what was sent last.
            self._transport.write_eof()
            self._resume_reading()
        else:
            self._transport.close()
        self._end()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's are of no class of asyncio
        visitor = self._identify(self._accepted, transport)
        if visitor is None:
            self._end()
            self._transport.abort()
        else:
            self.visitor = visitor
            self._connect(self)

    def data_received(self, data: bytes) -> None:
        if self._ended:
            return
        if self._counts_received:
            self._accepted.note_received(len(data))
        self._received.append(data)
        self._received_size += len(data)
        if self._received_size >= RECEIVED_MAX and not self._paused:
            self._paused = True
            self._transport.pause_reading()
        self._wake()

    def eof_received(self) -> None:
        self._end()

    def connection_lost(self, exception: Exception | None) -> None:
        if isinstance(exception, OSError) and not self._ended:
            self._error = exception
        self._accepted.leave()
        self._closing = True
        if self._last_moment is not None:
            self._last_moment.cancel()
        self._end()

    def pause_writing(self) -> None:
        self._writable = asyncio.Event()

    def resume_writing(self) -> None:
        if self._writable is not None:
            self._writable.set()
            self._writable = None

    def _resume_reading(self) -> None:
        if self._paused and not self._ended:
            self._paused = False
            self._transport.resume_reading()

    def _end(self) -> None:
        self._ended = True
        self._wake()
        self.resume_writing()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
