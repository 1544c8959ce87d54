"""Clients over TCP."""

import asyncio
import os
import socket
from collections.abc import Callable

from gateway.config import TcpConfig
from gateway.errors import ListenError
from gateway.port import Port

READ_MOST = 64 * 1024
CLOSE_GRACE_S = 2.0  # for a client to take our last words


class TcpPort:
    """One accepted TCP connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host, port, *_ = writer.get_extra_info("peername") or ("?", 0)
        self.peer = f"{host}:{port}"
        self._reader = reader
        self._writer = writer

    async def receive(self) -> bytes:
        return await self._reader.read(READ_MOST)

    def send(self, data: bytes) -> None:
        if not self._writer.is_closing():
            self._writer.write(data)

    @property
    def backlog(self) -> int:
        return self._writer.transport.get_write_buffer_size()

    async def drain(self) -> None:
        await self._writer.drain()

    def close(self) -> None:
        if not self._writer.is_closing():
            self._writer.close()
            self._reader.feed_eof()
            asyncio.get_running_loop().call_later(CLOSE_GRACE_S, self._writer.transport.abort)


class TcpListener:
    """Listens on one TCP address.

    Args:
        config: the address.
        connect: called with each client's port.
    """

    def __init__(self, config: TcpConfig, connect: Callable[[Port], None]) -> None:
        self.port = config.port
        self._host = config.host
        self._connect = connect
        self._server: asyncio.Server | None = None

    async def open(self) -> None:
        """Listens from now on; ``port`` is then the port's number. Raises ListenError."""
        try:
            self._server = await asyncio.start_server(self._accept, self._host, self.port)
        except OSError as error:
            # asyncio puts the address into its text as well, and keeps no number where it tried several.
            known = error.errno and not isinstance(error, socket.gaierror)
            reason = os.strerror(error.errno or 0) if known else error.strerror or str(error)
            raise ListenError(f"listener tcp {self._host}:{self.port}: {reason}") from error
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        """Accepts nobody any more."""
        if self._server is not None:
            self._server.close()
            self._server = None

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connect(TcpPort(reader, writer))
