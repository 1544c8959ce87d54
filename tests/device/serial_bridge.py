"""The far end of a serial line: each stream of the link becomes a connection to a broker on TCP."""

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from tools.lab.testing.serial_line import SerialLine
from wire.link import Link, LinkData, LinkDown, LinkUp


class SerialBridge:
    """Carries bytes while `run` runs.

    Args:
        path: the terminal of the far end.
        broker_port: of the broker on the loopback address.
        boot_id: u32 that differs each time this side starts.
    """

    def __init__(self, path: str, broker_port: int, boot_id: int) -> None:
        self._descriptor = os.open(path, os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK)
        self._broker_port = broker_port
        self._link = Link(boot_id)
        self._readable = asyncio.Event()
        self._writer: asyncio.StreamWriter | None = None
        self._carrier: asyncio.Task[None] | None = None

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        loop.add_reader(self._descriptor, self._readable.set)
        try:
            self._link.open(_now_ms())
            while True:
                await self._handle_events()
                self._write()
                await self._wait()
                self._readable.clear()
                with contextlib.suppress(BlockingIOError):
                    self._link.receive_data(os.read(self._descriptor, 4096), _now_ms())
                self._link.handle_timer(_now_ms())
        finally:
            loop.remove_reader(self._descriptor)
            os.close(self._descriptor)
            self._hang_up()

    async def _wait(self) -> None:
        timer_ms = self._link.next_timer_ms()
        wait_s = None if timer_ms is None else max(0.0, (timer_ms - _now_ms()) / 1000)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                await self._readable.wait()

    async def _handle_events(self) -> None:
        while (event := self._link.next_event()) is not None:
            if isinstance(event, LinkUp):
                self._hang_up()
                reader, self._writer = await asyncio.open_connection("127.0.0.1", self._broker_port)
                self._carrier = asyncio.create_task(self._carry(reader))
            elif isinstance(event, LinkData) and self._writer is not None:
                self._writer.write(event.data)
            elif isinstance(event, LinkDown):
                self._hang_up()

    async def _carry(self, reader: asyncio.StreamReader) -> None:
        while data := await reader.read(4096):
            self._link.send(data, _now_ms())
            self._readable.set()
        self._link.open(_now_ms())  # ends the stream for the device too
        self._readable.set()

    def _write(self) -> None:
        while data := self._link.data_to_send():
            os.write(self._descriptor, data)

    def _hang_up(self) -> None:
        if self._carrier is not None:
            self._carrier.cancel()
        if self._writer is not None:
            self._writer.close()
        self._carrier = self._writer = None


@asynccontextmanager
async def serial_bridge(path: str, broker_port: int, boot_id: int = 1) -> AsyncIterator[None]:
    """Runs one; its end is as sudden as that of a killed gateway."""
    task = asyncio.create_task(SerialBridge(path, broker_port, boot_id).run())
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def _now_ms() -> int:
    return int(time.monotonic() * 1000)


@asynccontextmanager
async def serial_line() -> AsyncIterator[SerialLine]:
    line = SerialLine()
    line.open()
    try:
        yield line
    finally:
        line.close()


def uart(path: str) -> dict[str, Any]:
    return {"kind": "uart", "path": path, "baud": 115_200}
