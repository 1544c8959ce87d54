"""A null-modem cable: two pseudo-terminals whose bytes come out at the other end.

Either side may be closed, killed and opened again while the cable stays. Bytes that the far side does not take
before its receive buffer is full are lost, as on a UART.
"""

import asyncio
import contextlib
import os
import tty

from tools.lab.sim.virtual_line import BITS_PER_BYTE, Dice

RECEIVE_BUFFER_BYTES = 4096
CHUNK_BYTES = 32  # that a paced line carries at once


class SerialLine:
    """A cable with the terminal paths ``near`` and ``far``; it carries bytes while an event loop runs."""

    def __init__(self) -> None:
        near_master, near_slave = os.openpty()
        far_master, far_slave = os.openpty()
        self.near, self.far = os.ttyname(near_slave), os.ttyname(far_slave)
        self._masters: tuple[int, ...] = (near_master, far_master)
        # The slaves stay open here, or a master would report a hang-up each time its side is closed.
        self._slaves = (near_slave, far_slave)
        for descriptor in self._slaves:
            tty.setraw(descriptor)
        for descriptor in self._masters:
            os.set_blocking(descriptor, False)

    def open(self) -> None:
        """Starts carrying bytes on the running event loop."""
        loop = asyncio.get_running_loop()
        near, far = self._masters
        loop.add_reader(near, self._carry, near, far)
        loop.add_reader(far, self._carry, far, near)

    def close(self) -> None:
        """Unplugs both ends; the running event loop must be the one of ``open``."""
        loop = asyncio.get_running_loop()
        for descriptor in self._masters:
            loop.remove_reader(descriptor)
        for descriptor in self._masters + self._slaves:
            os.close(descriptor)

    def hang_up(self) -> None:
        """Unplugs the near end for good: a program that has it open is told. What is open at the far end stays."""
        near, far = self._masters
        asyncio.get_running_loop().remove_reader(near)
        os.close(near)
        self._masters = (far,)

    @staticmethod
    def _carry(source: int, destination: int) -> None:
        with contextlib.suppress(BlockingIOError, OSError):  # the other end may be unplugged
            os.write(destination, os.read(source, RECEIVE_BUFFER_BYTES))


class PacedLine(SerialLine):
    """A cable at a serial line's real pace, which can flip bits, be unplugged and carry noise. `baud`: bits a second in
    each direction, ten a byte. One byte in `corrupt` gets a flipped bit."""

    def __init__(self, dice: Dice, baud: int, corrupt: int) -> None:
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
        return bytes([byte if self._dice.roll(self._corrupt) else byte ^ 1 << self._dice.roll(8) for byte in data])
