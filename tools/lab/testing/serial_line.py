"""A null-modem cable at a serial line's real pace, which can flip bits, be unplugged and carry noise."""

import asyncio
import contextlib
import os

from tools.sim.serial_line import SerialLine
from tools.sim.virtual_line import BITS_PER_BYTE, Dice

CHUNK_BYTES = 32  # carried at once


class PacedLine(SerialLine):
    """A cable with the terminal paths ``near`` and ``far``; it carries bytes while an event loop runs.

    Args:
        baud: bits a second in each direction, ten a byte.
        corrupt: one in so many bytes gets a flipped bit; 0 for none.
    """

    def __init__(self, dice: Dice, baud: int, corrupt: int = 0) -> None:
        super().__init__()
        self.unplugged = False
        self.noisy = False
        self._dice = dice
        self._byte_s = BITS_PER_BYTE / baud
        self._corrupt = corrupt
        self._tasks: list[asyncio.Task[None]] = []

    def open(self) -> None:
        near, far = self._masters
        self._tasks = [asyncio.ensure_future(self._pace(*pair)) for pair in ((near, far), (far, near))]

    def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        super().close()

    async def _pace(self, source: int, destination: int) -> None:
        loop = asyncio.get_running_loop()
        readable = asyncio.Event()
        free_s = loop.time()
        while True:
            try:
                data = os.read(source, CHUNK_BYTES)
            except BlockingIOError:
                readable.clear()
                loop.add_reader(source, readable.set)
                await readable.wait()
                loop.remove_reader(source)
                free_s = max(free_s, loop.time())
                continue
            free_s += len(data) * self._byte_s
            await asyncio.sleep(free_s - loop.time())
            with contextlib.suppress(BlockingIOError):  # the far side's driver is full
                os.write(destination, self._spoil(data))

    def _spoil(self, data: bytes) -> bytes:
        if self.unplugged:
            return b""
        if self.noisy:
            return self._dice.bytes(len(data))
        if not self._corrupt:
            return data
        return bytes([byte if self._dice.roll(self._corrupt) else byte ^ 1 << self._dice.roll(8) for byte in data])
