"""A client's end of each kind of line to a gateway: TCP, TLS, Unix socket, WebSocket and serial."""

import asyncio
import contextlib
import os
import ssl
import struct
import tty
from typing import NamedTuple

from wire.link import Link, LinkData, LinkDown, LinkUp

UPGRADE = (
    b"GET /mqtt HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: mqtt\r\n\r\n"
)
BINARY, CLOSE = 0x82, 0x88
READ_MOST = 65_536
NO_MASK = bytes(4)  # RFC 6455 allows any mask; this one needs no work


class Ways(NamedTuple):
    """How to reach a gateway: TCP ports and paths by kind of line, and the files of TLS."""

    ports: dict[str, int]
    paths: dict[str, str]
    authority: str
    certificate: str
    key: str

    def context(self, kind: str) -> ssl.SSLContext | None:
        """The TLS settings for a kind of line; None for a kind without TLS."""
        if kind not in ("tls", "mutual", "wss"):
            return None
        context = ssl.create_default_context(cafile=self.authority)
        if kind == "mutual":
            context.load_cert_chain(self.certificate, self.key)
        return context


class Line:
    """A line that is open: bytes go out and come in."""

    def send(self, data: bytes) -> None:
        """Queues bytes. Raises OSError where the line has ended."""
        raise NotImplementedError

    async def drain(self) -> None:
        """Waits until the line takes more. Raises OSError where the line has ended."""
        raise NotImplementedError

    async def read(self) -> bytes:
        """Returns what comes next, b"" at the end. Raises OSError."""
        raise NotImplementedError

    def close(self) -> None:
        """Ends the line at once."""
        raise NotImplementedError

    async def write(self, data: bytes) -> None:
        """Sends bytes and waits until the line takes more. Raises OSError."""
        self.send(data)
        await self.drain()


class StreamLine(Line):
    """A line over TCP, TLS or a Unix socket."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    def send(self, data: bytes) -> None:
        if not self._writer.is_closing():  # otherwise asyncio logs each
            self._writer.write(data)

    async def drain(self) -> None:
        await self._writer.drain()

    async def read(self) -> bytes:
        return await self._reader.read(READ_MOST)

    def close(self) -> None:
        self._writer.transport.abort()

    async def closed(self) -> None:
        """Waits until the system has closed the socket."""
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()


class _ClosingProtocol(asyncio.StreamReaderProtocol):
    """Closes the connection when the other end does: a broker that stops waits for that."""

    def eof_received(self) -> bool:
        super().eof_received()
        return False


async def connect_tcp(port: int, host: str = "127.0.0.1", address: str | None = None) -> StreamLine:
    """Connects over TCP, from an address of this machine if one is given. Raises OSError."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    protocol = _ClosingProtocol(reader)
    local = (address, 0) if address else None
    transport, _ = await loop.create_connection(lambda: protocol, host, port, local_addr=local)
    return StreamLine(reader, asyncio.StreamWriter(transport, protocol, reader, loop))


class WebSocketLine(Line):
    """WebSocket over a stream; each write is a frame."""

    def __init__(self, stream: StreamLine) -> None:
        self._stream = stream
        self._buffer = bytearray()

    async def open(self) -> None:
        """Sends the handshake. Raises ConnectionError where the server refuses it."""
        await self._stream.write(UPGRADE)
        while (end := self._buffer.find(b"\r\n\r\n")) < 0:
            await self._fill()
        if not self._buffer.startswith(b"HTTP/1.1 101"):
            raise ConnectionRefusedError(bytes(self._buffer[:40]).decode(errors="replace"))
        del self._buffer[: end + 4]

    def send(self, data: bytes) -> None:
        size = len(data)
        if size < 126:
            head = bytes((BINARY, 0x80 | size))
        elif size < 65_536:
            head = struct.pack(">BBH", BINARY, 0xFE, size)
        else:
            head = struct.pack(">BBQ", BINARY, 0xFF, size)
        self._stream.send(head + NO_MASK + data)

    async def drain(self) -> None:
        await self._stream.drain()

    async def read(self) -> bytes:
        """The contents of all frames that have come."""
        while True:
            came = bytearray()
            while (frame := self._cut()) is not None:
                opcode, content = frame
                if opcode == CLOSE:
                    return bytes(came)
                came += content
            if came:
                return bytes(came)
            try:
                await self._fill()
            except ConnectionAbortedError:
                return b""

    def close(self) -> None:
        self._stream.close()

    def _cut(self) -> tuple[int, bytes] | None:
        buffer = self._buffer
        if len(buffer) < 2:
            return None
        size, start = buffer[1], 2
        if size >= 126:
            start = 4 if size == 126 else 10
            size = int.from_bytes(buffer[2:start], "big")
        if len(buffer) < start + size:
            return None
        frame = buffer[0], bytes(buffer[start : start + size])
        if frame[0] != CLOSE:
            del buffer[: start + size]  # a Close stays: nothing after it counts
        return frame

    async def _fill(self) -> None:
        data = await self._stream.read()
        if not data:
            raise ConnectionAbortedError("the line has ended")
        self._buffer += data


class SerialEnd(Line):
    """The far end of a serial line, which carries one stream after the other: a `Line` for the stream that is open."""

    def __init__(self, path: str, boot_id: int) -> None:
        self._link = Link(boot_id)
        self._descriptor = os.open(path, os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK)
        tty.setraw(self._descriptor)
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._descriptor, self._read)
        self._timer: asyncio.TimerHandle | None = None
        self._changed = asyncio.Event()
        self._streams = self._taken = 0
        self._is_up = False
        self._is_left = False
        self._received = bytearray()
        self._unwritten = bytearray()
        self._outgoing = bytearray()

    async def open(self) -> "SerialEnd":
        """Waits for the next stream and takes it; opens one unless the gateway has opened one already."""
        if not self._is_up or self._taken == self._streams:
            self._link.open(self._now_ms())
            self._advance()
        while not self._is_up or self._taken == self._streams:
            await self._change()
        self._taken = self._streams
        self._is_left = False
        self._received.clear()
        self._outgoing.clear()
        return self

    def send(self, data: bytes) -> None:
        self._outgoing += data
        self._advance()

    async def drain(self) -> None:
        while self._outgoing and self._is_ours:
            await self._change()

    async def read(self) -> bytes:
        while not self._received and self._is_ours:
            await self._change()
        data = bytes(self._received)
        self._received.clear()
        return data

    def close(self) -> None:
        """Leaves the stream; the next `open` opens another one."""
        self._is_left = True
        self._changed.set()

    @property
    def _is_ours(self) -> bool:
        return self._is_up and self._taken == self._streams and not self._is_left

    def unplug(self) -> None:
        """Closes the terminal."""
        self._loop.remove_reader(self._descriptor)
        if self._timer is not None:
            self._timer.cancel()
        os.close(self._descriptor)

    def _read(self) -> None:
        with contextlib.suppress(BlockingIOError):
            self._link.receive_data(os.read(self._descriptor, 4096), self._now_ms())
        self._advance()

    def _advance(self) -> None:
        while (event := self._link.next_event()) is not None:
            match event:
                case LinkUp():
                    self._is_up = True
                    self._streams += 1
                case LinkData() if self._is_ours:
                    self._received += event.data
                case LinkDown():
                    self._is_up = False
        while self._is_ours and self._outgoing and (room := self._link.send_room):
            self._link.send(bytes(self._outgoing[:room]), self._now_ms())
            del self._outgoing[:room]
        self._unwritten += self._link.data_to_send()
        with contextlib.suppress(BlockingIOError):
            while self._unwritten:
                del self._unwritten[: os.write(self._descriptor, self._unwritten)]
        self._arm()
        self._changed.set()

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        timer_ms = self._link.next_timer_ms()
        if self._unwritten:
            timer_ms = self._now_ms() + 1
        if timer_ms is not None:
            self._timer = self._loop.call_at(timer_ms / 1000, self._on_timer)

    def _on_timer(self) -> None:
        self._link.handle_timer(self._now_ms())
        self._advance()

    async def _change(self) -> None:
        self._changed.clear()
        await self._changed.wait()

    def _now_ms(self) -> int:
        return int(self._loop.time() * 1000)


class Lines:
    """Opens lines to a gateway; the files of TLS are read once."""

    def __init__(self, ways: Ways) -> None:
        self._ways = ways
        self._contexts = {kind: ways.context(kind) for kind in ways.ports}

    async def open(self, kind: str, *, is_raw: bool = False) -> Line:
        """Connects, with ``is_raw`` without TLS and WebSocket. Raises OSError."""
        if kind == "unix":
            return StreamLine(*await asyncio.open_unix_connection(self._ways.paths[kind]))
        context = None if is_raw else self._contexts[kind]
        if context is None:
            stream = await connect_tcp(self._ways.ports[kind])
        else:
            stream = StreamLine(*await asyncio.open_connection("127.0.0.1", self._ways.ports[kind], ssl=context))
        if is_raw or kind not in ("websocket", "wss"):
            return stream
        line = WebSocketLine(stream)
        try:
            await line.open()
        except OSError:
            stream.close()
            raise
        return line
