"""A null-modem cable: two pseudo-terminals whose bytes come out at the other end.

Either side may be closed, killed and opened again while the cable stays. Bytes that the far side does not take
before its receive buffer is full are lost, as on a UART.
"""

import asyncio
import contextlib
import os
import tty

RECEIVE_BUFFER_BYTES = 4096


class SerialLine:
    """A cable with the terminal paths ``near`` and ``far``; it carries bytes while an event loop runs."""

    def __init__(self) -> None:
        near_master, near_slave = os.openpty()
        far_master, far_slave = os.openpty()
        self.near, self.far = os.ttyname(near_slave), os.ttyname(far_slave)
        self._masters = (near_master, far_master)
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

    @staticmethod
    def _carry(source: int, destination: int) -> None:
        with contextlib.suppress(BlockingIOError):
            os.write(destination, os.read(source, RECEIVE_BUFFER_BYTES))
