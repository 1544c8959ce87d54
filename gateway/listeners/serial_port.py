"""The serial ports of this machine: one place opens them, and waits for a port that is unplugged."""

import asyncio
import contextlib
import errno
import logging
import os
import termios
from collections.abc import Awaitable, Callable

import serial
from serial.rs485 import RS485Settings

from wire.backoff import Backoff

RETRY_SHORTEST_MS, RETRY_LONGEST_MS = 250, 5_000
LOOK_INTERVAL_S = 0.1  # so that a device is used soon after it is plugged in

logger = logging.getLogger(__name__)


class SerialDevice:
    """One serial port, which may be unplugged and come back.

    Args:
        path: its device file. A name in /dev/serial/by-id stays the same whichever socket it is plugged into.
        baud: its speed in bits a second.
        framing: data bits, parity and stop bits of a character, such as "8N1".
        switches: whether the driver switches the direction of an RS-485 line.

    ``problem`` is why the port cannot be used now; "" while it is open.
    """

    def __init__(self, path: str, baud: int, framing: str = "8N1", *, switches: bool = False) -> None:
        self._path = path
        self._settings = {
            "baudrate": baud,
            "bytesize": int(framing[0]),
            "parity": framing[1],
            "stopbits": int(framing[2]),
        }
        self._switches = switches
        self._backoff = Backoff(RETRY_SHORTEST_MS, RETRY_LONGEST_MS)
        self._has_complained = False
        self.problem = ""

    async def keep_open(self, use: Callable[[serial.Serial], Awaitable[None]]) -> None:
        """Opens the port, has it used until OSError, and begins again, for ever.

        ``use`` gets the port without blocking and locked: no other program that locks its ports can open it.
        """
        while True:
            try:
                with self._open() as port:
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

    def _open(self) -> serial.Serial:
        try:
            port = serial.Serial(self._path, timeout=0, write_timeout=0, exclusive=True, **self._settings)
        except serial.SerialException as error:  # its text has the path and the number of the error twice
            if error.errno is None:
                raise
            why = "another program has locked it" if error.errno == errno.EAGAIN else os.strerror(error.errno)
            raise OSError(why) from None
        except termios.error as error:  # no OSError
            raise OSError(*error.args, f"{self._path} with {self._settings}") from None
        try:
            if self._switches:
                port.rs485_mode = RS485Settings()
        except (OSError, ValueError):
            port.close()
            raise
        with contextlib.suppress(OSError, ValueError, AttributeError):  # else an FTDI adapter waits for 16 ms
            port.set_low_latency_mode(True)
        return port

    def note_heard(self) -> None:
        """Something has come over the port: its next problem is a new one."""
        self._has_complained = False
        self._backoff.reset()
