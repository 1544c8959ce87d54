"""The far end of a connector: an open line, serial or TCP, and what opens it again when it is gone."""

import asyncio
import contextlib
import logging
import os
import socket
import time
from collections.abc import Awaitable, Callable
from typing import Protocol

import serial

from gateway.config.connectors import PortConfig, address_of
from gateway.listeners.serial_port import SerialDevice
from gateway.log_fields import about
from wire.backoff import Backoff

READ_MOST = 4096
CONNECT_TIMEOUT_S = 10.0
WRITE_TIMEOUT_S = 10.0  # without room for a byte: an adapter that hangs, or a server that reads nothing
UNACKNOWLEDGED_MS = 20_000  # that a TCP peer may leave bytes unacknowledged; by itself Linux tries for 15 minutes
RETRY_SHORTEST_MS, RETRY_LONGEST_MS = 250, 30_000

logger = logging.getLogger(__name__)


class Wire:
    """An open line. Bytes are read when they are asked for.

    Args:
        descriptor: the open file, which does not block.
        character_s: how long a character takes on the line, in seconds; 0 over TCP.
        echoes: whether each byte that is sent comes back.

    ``looked_ms`` is when it last looked for bytes, as Unix time: all that had come by then, up to READ_MOST bytes, was
    returned.
    """

    def __init__(self, descriptor: int, character_s: float = 0.0, *, echoes: bool = False) -> None:
        self.character_s = character_s
        self.echoes = echoes
        self.looked_ms = 0
        self._descriptor = descriptor
        self._loop = asyncio.get_running_loop()

    def take(self) -> bytes:
        """Returns what has come, b"" if nothing has. Raises OSError when the line is gone."""
        self.looked_ms = now_ms()
        try:
            return os.read(self._descriptor, READ_MOST)
        except BlockingIOError:
            return b""

    async def read(self, wait_s: float | None = None) -> bytes:
        """Waits for bytes; returns b"" if none have come after ``wait_s`` seconds. Raises OSError: the line is gone."""
        if data := self.take():
            return data
        if wait_s is not None and wait_s <= 0:
            return b""
        while await self._is_readable(wait_s):
            self.looked_ms = now_ms()
            with contextlib.suppress(BlockingIOError):
                if data := os.read(self._descriptor, READ_MOST):
                    return data
                raise OSError("hung up")
        return self.take()

    async def write(self, data: bytes) -> None:
        """Sends bytes. Raises OSError: the line is gone, or takes nothing any more."""
        sent = 0
        while sent < len(data):
            try:
                sent += os.write(self._descriptor, data[sent:])
            except BlockingIOError:
                await self._is_writable()

    async def _is_readable(self, wait_s: float | None) -> bool:
        came: asyncio.Future[bool] = self._loop.create_future()
        timer = self._loop.call_later(wait_s, _settle, came, False) if wait_s is not None else None
        self._loop.add_reader(self._descriptor, _settle, came, True)
        try:
            return await came
        finally:
            self._loop.remove_reader(self._descriptor)
            if timer is not None:
                timer.cancel()

    async def _is_writable(self) -> None:
        free: asyncio.Future[bool] = self._loop.create_future()
        timer = self._loop.call_later(WRITE_TIMEOUT_S, _settle, free, False)
        self._loop.add_writer(self._descriptor, _settle, free, True)
        try:
            if not await free:
                raise OSError(f"nothing can be sent: the far end has taken no byte for {WRITE_TIMEOUT_S:g} s")
        finally:
            self._loop.remove_writer(self._descriptor)
            timer.cancel()


def _settle(future: "asyncio.Future[bool]", outcome: bool) -> None:
    if not future.done():
        future.set_result(outcome)


Use = Callable[[Wire], Awaitable[None]]


class Far(Protocol):
    """What opens a line, has it used until it is gone, and opens it again. ``problem`` is "" while it is open."""

    @property
    def problem(self) -> str: ...

    async def keep_open(self, use: Use) -> None:
        """Runs for ever. ``use`` raises OSError when the line is gone."""

    def note_heard(self) -> None:
        """The far end has said something: its next problem is a new one."""


def far_end(config: PortConfig) -> Far:
    """Returns what opens a connector's port."""
    address = address_of(config.port)
    return SerialFar(config) if address is None else TcpFar(*address)


class SerialFar:
    """A serial port of this machine."""

    def __init__(self, config: PortConfig) -> None:
        framing = f"{config.data_bits}{config.parity[0].upper()}{config.stop_bits}"
        self._device = SerialDevice(config.port, config.baud, framing, switches=config.rs485 == "kernel")
        bits = 1 + config.data_bits + (config.parity != "none") + config.stop_bits
        self._character_s = bits / config.baud
        self._echoes = config.rs485 == "echo"

    @property
    def problem(self) -> str:
        return self._device.problem

    async def keep_open(self, use: Use) -> None:
        async def use_port(port: serial.Serial) -> None:
            await use(Wire(port.fileno(), self._character_s, echoes=self._echoes))

        await self._device.keep_open(use_port)

    def note_heard(self) -> None:
        self._device.note_heard()


class TcpFar:
    """A device server, or a unit that speaks over TCP.

    Args:
        host, port: its address.
    """

    def __init__(self, host: str, port: int) -> None:
        self.problem = ""
        self._host, self._port = host, port
        self._backoff = Backoff(RETRY_SHORTEST_MS, RETRY_LONGEST_MS)
        self._has_complained = False

    async def keep_open(self, use: Use) -> None:
        while True:
            try:
                with await self._connect() as opened:
                    self.problem = ""
                    await use(Wire(opened.fileno()))
            except (OSError, TimeoutError) as error:
                self.problem = str(error) or "no answer to the connection"
                if not self._has_complained:
                    reason = f"{self.problem}; trying again"
                    logger.warning(
                        "a device cannot be reached", extra=about(peer=f"{self._host}:{self._port}", reason=reason)
                    )
                self._has_complained = True
            await asyncio.sleep(self._backoff.next_wait_ms() / 1000)

    def note_heard(self) -> None:
        self._has_complained = False
        self._backoff.reset()

    async def _connect(self) -> socket.socket:
        """Returns a connection that does not block. Raises OSError, TimeoutError."""
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            found = await loop.getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM)
            family, kind, protocol, _, address = found[0]
            opened = socket.socket(family, kind, protocol)
            try:
                opened.setblocking(False)
                opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                opened.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
                opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNACKNOWLEDGED_MS)
                await loop.sock_connect(opened, address)
            except BaseException:
                opened.close()
                raise
            return opened


def now_ms() -> int:
    """Returns the Unix time in ms."""
    return int(time.time() * 1000)
