"""An attacker's connection."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from wire.codec.packets import Connect, Will, encode
from wire.properties import SESSION_EXPIRY_INTERVAL

PIECE = 64 * 1024  # bytes that an attacker writes at once
DAY_S = 86_400
DEAF_READS = 1_024  # bytes


class Line:
    """An attacker's connection. It drops all bytes that come, without decoding, to be faster than the gateway."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        self._reader = reader
        self.came = 0
        self.is_over = False
        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        with contextlib.suppress(OSError):
            while data := await self._reader.read(1 << 20):
                self.came += len(data)
        self.is_over = True

    async def write(self, data: bytes) -> None:
        """Writes bytes, and waits until the system has taken nearly all of them. Raises OSError."""
        for start in range(0, len(data), PIECE):
            if self.is_over:
                raise ConnectionResetError
            self._writer.write(data[start : start + PIECE])
            await self._writer.drain()

    async def answered(self, size: int) -> None:
        """Waits for ``size`` more bytes. Raises OSError."""
        wanted = self.came + size
        while self.came < wanted:
            if self.is_over:
                raise ConnectionResetError
            await asyncio.sleep(0.001)

    def close(self) -> None:
        self._reading.cancel()
        self._writer.transport.abort()


@asynccontextmanager
async def connected(
    port: int, client_id: str = "", *, stays: bool = False, will: Will | None = None, packet: bytes = b""
) -> AsyncIterator[Line]:
    """Opens a session, which is durable if it ``stays``, or sends this CONNECT with what follows it. Raises OSError."""
    line = Line(*await asyncio.open_connection("127.0.0.1", port))
    try:
        properties = {SESSION_EXPIRY_INTERVAL: DAY_S} if stays else {}
        await line.write(packet or encode(Connect(client_id, not stays, 0, None, None, will, properties)))
        await line.answered(4)
        yield line
    finally:
        line.close()


@asynccontextmanager
async def deaf(port: int, client_id: str, packets: bytes) -> AsyncIterator[None]:
    """Opens a session, sends packets, and reads no more than a few bytes of the answers. Raises OSError."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=DEAF_READS)
    try:
        writer.write(encode(Connect(client_id, True, 0, None, None, None, {})) + packets)
        await writer.drain()
        await reader.readexactly(4)
        yield
    finally:
        writer.transport.abort()


def filled(packet: bytes) -> bytes:
    """Returns a packet again and again, at least as many bytes as are written at once."""
    return packet * (PIECE // len(packet) + 1)
