"""A pseudo-terminal as the host's serial port, under a name that stays."""

import asyncio
import contextlib
import errno
import os
import select
import termios
import tty
from collections.abc import Callable
from functools import partial
from pathlib import Path

CHUNK_BYTES = 1024
LOOK_AGAIN_S = 0.01  # how often it looks whether a host has opened the port
FULL_S = 10.0  # after so long without a reader, what the board sends is lost: a board waits 0.5 s, for a quick host
SPEEDS = {getattr(termios, f"B{baud}"): baud for baud in (9600, 57600, 115200, 230400, 460800, 921600)}


class PseudoTerminal:
    """The port at `path`, a link to the terminal; it carries bytes while an event loop runs.

    What the board sends while no program has the port open is lost, as on a real port.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._is_closed = self._was_open = False
        self._waiting: dict[asyncio.Event, Callable[[], object]] = {}  # with what calls the wait off
        self._master, slave = os.openpty()
        tty.setraw(slave)
        settings = termios.tcgetattr(slave)
        settings[4] = settings[5] = termios.B115200
        termios.tcsetattr(slave, termios.TCSANOW, settings)
        os.set_blocking(self._master, False)
        path.unlink(missing_ok=True)
        path.symlink_to(os.ttyname(slave))
        os.close(slave)

    def close(self) -> None:
        """Unplugs the cable: a program that has the port open reads its end."""
        self._is_closed = True
        self._path.unlink(missing_ok=True)
        for ready, call_off in self._waiting.items():
            call_off()
            ready.set()
        os.close(self._master)

    @property
    def baud(self) -> int | None:
        """The host's speed; None for one that has no constant."""
        return SPEEDS.get(termios.tcgetattr(self._master)[5])

    @property
    def is_open(self) -> bool:
        """Whether a program has the port open."""
        if self._is_closed:
            return False
        poll = select.poll()
        poll.register(self._master, 0)
        return not poll.poll(0)

    async def read(self) -> bytes:
        """Waits for what the host sends. Raises OSError where the cable is unplugged."""
        while not self._is_closed:
            try:
                content = os.read(self._master, CHUNK_BYTES)
                self._was_open = True
                return content
            except BlockingIOError:
                self._was_open = True
                await self._when(self._master, is_writing=False)
            except OSError:  # no program has it open
                if self._was_open:
                    self._was_open = False
                    self._drop_unread()
                await asyncio.sleep(LOOK_AGAIN_S)
        raise OSError(errno.EIO, "the cable is unplugged")

    async def write(self, content: bytes) -> None:
        """Sends to the host, as far as it reads."""
        view = memoryview(content)
        while view and self.is_open:
            try:
                view = view[os.write(self._master, view) :]
            except BlockingIOError:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(FULL_S):
                        await self._when(self._master, is_writing=True)
                    continue
                return

    def _drop_unread(self) -> None:
        """Drops what the program that has closed the port did not read; the next one must not read it."""
        slave = os.open(os.readlink(self._path), os.O_RDWR | os.O_NOCTTY)
        termios.tcflush(slave, termios.TCIFLUSH)
        os.close(slave)

    async def closed(self) -> None:
        """Returns when the host has closed the port."""
        while self.is_open:
            await asyncio.sleep(LOOK_AGAIN_S)

    async def _when(self, descriptor: int, is_writing: bool) -> None:
        loop = asyncio.get_running_loop()
        ready = asyncio.Event()
        add, remove = (loop.add_writer, loop.remove_writer) if is_writing else (loop.add_reader, loop.remove_reader)
        add(descriptor, ready.set)
        self._waiting[ready] = partial(remove, descriptor)
        try:
            await ready.wait()
        finally:
            if not self._is_closed:
                remove(descriptor)
            del self._waiting[ready]
