"""The serial ports of this machine: one place opens them, and waits for a port that is unplugged."""

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable

import serial

from wire.backoff import Backoff

RETRY_SHORTEST_MS, RETRY_LONGEST_MS = 250, 5_000
LOOK_INTERVAL_S = 0.1  # so that a device is used soon after it is plugged in

logger = logging.getLogger(__name__)


class SerialDevice:
    """One serial port, which may be unplugged and come back.

    Args:
        path: its device file. A name in /dev/serial/by-id stays the same whichever socket it is plugged into.
        baud: its speed in bits a second.

    ``problem`` is why the port cannot be used now; "" while it is open.
    """

    def __init__(self, path: str, baud: int) -> None:
        self._path = path
        self._baud = baud
        self._backoff = Backoff(RETRY_SHORTEST_MS, RETRY_LONGEST_MS)
        self._has_complained = False
        self.problem = ""

    async def keep_open(self, use: Callable[[serial.Serial], Awaitable[None]]) -> None:
        """Opens the port, has it used until OSError, and begins again, for ever.

        ``use`` gets the port without blocking and locked: no other program that locks its ports can open it.
        """
        while True:
            try:
                with serial.Serial(self._path, self._baud, timeout=0, write_timeout=0, exclusive=True) as port:
                    self.problem = ""
                    await use(port)
            except (OSError, ValueError) as error:
                self.problem = str(error)
                if not self._has_complained:
                    logger.warning("serial port %s: %s; trying again", self._path, error)
                self._has_complained = True
            if os.path.exists(self._path):
                await asyncio.sleep(self._backoff.next_wait_ms() / 1000)
            while not os.path.exists(self._path):
                await asyncio.sleep(LOOK_INTERVAL_S)

    def note_heard(self) -> None:
        """Something has come over the port: its next problem is a new one."""
        self._has_complained = False
        self._backoff.reset()
