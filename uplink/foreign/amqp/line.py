"""The line of one connection: it feeds the engine with bytes and time, and writes what the engine has."""

import asyncio
import contextlib
import ssl
import time
from collections import deque
from collections.abc import Callable
from typing import Any, cast

import proton
from proton import Transport

from gateway.routes import Slice
from uplink.foreign.transport import UNREADABLE

IDLE_S = 30
WRITE_BUFFER = 1 << 20  # bytes on the line, beyond which nothing more is sent
WRITE_AT_ONCE = WRITE_BUFFER // 16
PIECE = 2048  # bytes that are read at a time: 50 of the smallest frames
RECEIVED_MAX = 64 * 1024  # bytes that were not read; beyond it TCP stops the broker


class Line(asyncio.Protocol):
    """Bytes of one connection in time slices, as each frame costs as much, however small it is.

    Args:
        connection: the state of the connection, whose events go to ``handle``.
        handle: takes each event.
        fail: is told why the line has ended, or that what comes cannot be read.

    ``engine`` is what reads and writes AMQP.
    """

    def __init__(
        self, connection: proton.Connection, handle: Callable[[Any], None], fail: Callable[[str], None]
    ) -> None:
        self.engine = Transport()
        self.engine.idle_timeout = IDLE_S
        self._collector = proton.Collector()
        connection.collect(self._collector)
        self._handle = handle
        self._fail = fail
        self._news = asyncio.Event()
        self._socket: asyncio.Transport | None = None
        self._received: deque[bytes] = deque()
        self._received_size = 0
        self._reading: asyncio.Task[None] | None = None

    async def open(self, host: str, port: int, tls: ssl.SSLContext | None) -> None:
        """Connects. Raises OSError."""
        await asyncio.get_running_loop().create_connection(lambda: self, host, port, ssl=tls)

    async def next_news(self) -> None:
        """Waits until the broker has said something, or has read something, or the line has ended."""
        self._news.clear()
        await self._news.wait()

    def tell(self) -> None:
        """Ends the waiting for news."""
        self._news.set()

    @property
    def is_full(self) -> bool:
        """Whether the line has as many bytes as may wait for the broker, or there is none."""
        return self._socket is None or self._socket.get_write_buffer_size() > WRITE_BUFFER

    def write(self) -> None:
        """Writes what the engine has for the line."""
        if self._socket is None or self._socket.is_closing():
            return
        with contextlib.suppress(proton.ProtonException):
            while (pending := self.engine.pending()) > 0:
                self._socket.write(self.engine.peek(pending) or b"")
                self.engine.pop(pending)
            if pending < 0:
                self._socket.close()

    def write_much(self) -> None:
        """Writes what the engine has, if that is much."""
        if self.engine.pending() > WRITE_AT_ONCE:
            self.write()

    def tick(self) -> None:
        """Tells the engine what time it is: it keeps the connection alive, or ends it."""
        self.engine.tick(time.monotonic())
        self._handle_events()
        self.write()

    def close(self) -> None:
        """Ends the line when all is written."""
        if self._socket is not None:
            self._socket.close()

    def abort(self) -> None:
        """Ends the line at once."""
        if self._socket is not None:
            self._socket.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._socket = cast(asyncio.Transport, transport)  # uvloop's is none by its class
        self.write()

    def data_received(self, data: bytes) -> None:
        self._received.append(data)
        self._received_size += len(data)
        if self._received_size >= RECEIVED_MAX and self._socket is not None:
            self._socket.pause_reading()
        if self._reading is None:
            self._reading = asyncio.get_running_loop().create_task(self._read())

    def connection_lost(self, error: Exception | None) -> None:
        if self._reading is not None:  # it may have said why it ends the connection
            self._reading.add_done_callback(lambda _: self._end(error))
        else:
            self._end(error)

    def pause_writing(self) -> None:
        """The line is full: ``is_full`` says so."""

    def resume_writing(self) -> None:
        self.tell()

    async def _read(self) -> None:
        slice_ = Slice()
        while self._received:
            data = self._received.popleft()
            self._received_size -= len(data)
            for start in range(0, len(data), PIECE):
                if slice_.is_over:
                    await slice_.give_way()
                self._push(data[start : start + PIECE])
        self._reading = None
        if self._socket is not None and not self._socket.is_closing():
            self._socket.resume_reading()

    def _push(self, data: bytes) -> None:
        try:
            while data:
                capacity = self.engine.capacity()
                if capacity <= 0:
                    break
                self.engine.push(data[:capacity])
                data = data[capacity:]
                self._handle_events()
        except proton.ProtonException as error:
            self._note_unreadable(error)
        self.write()

    def _handle_events(self) -> None:
        while (event := self._collector.peek()) is not None:
            try:
                self._handle(event)
            except UNREADABLE as error:
                self._note_unreadable(error)
            self._collector.pop()
        self.tell()

    def _note_unreadable(self, error: Exception) -> None:
        self._fail(f"what the broker sends cannot be read: {error}")

    def _end(self, error: Exception | None) -> None:
        with contextlib.suppress(proton.ProtonException):
            self.engine.close_tail()  # it may know why the broker ends it
        self._handle_events()
        self._fail(f"the connection has ended: {error}" if error else "the broker has ended the connection")
