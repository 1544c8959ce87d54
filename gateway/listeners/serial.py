"""A device at the end of a serial line; the port may come and go."""

import asyncio
import contextlib
import logging
import os
from collections.abc import Callable

import serial

from gateway.config import SerialConfig
from gateway.listeners.serial_line import SerialLine
from gateway.port import Port
from wire.backoff import Backoff

RETRY_SHORTEST_MS, RETRY_LONGEST_MS = 250, 5_000
LOOK_INTERVAL_S = 0.1  # a device that is plugged in again is used at once, for looking costs nothing

logger = logging.getLogger(__name__)


class SerialListener:
    """Keeps one serial port open, and opens it again whenever it was not there.

    Args:
        config: the serial port.
        anonymous: whether a client without an account may come in here.
        connect: called with a port for each stream of the link over it.
    """

    def __init__(self, config: SerialConfig, *, anonymous: bool, connect: Callable[[Port], None]) -> None:
        self._config = config
        self._anonymous = anonymous
        self._connect = connect
        self._task: asyncio.Task[None] | None = None
        self._line: SerialLine | None = None

    async def open(self) -> None:
        """Begins to use the serial port; one that is not there is waited for."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def close(self) -> None:
        """Ends the link and closes the serial port, once the device has our last words."""
        if self._task is not None:
            if self._line is not None:
                await self._line.wait_for_last_words()
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            self._task = None

    def reload(self) -> None:
        """There is nothing to read again."""

    async def _run(self) -> None:
        backoff = Backoff(RETRY_SHORTEST_MS, RETRY_LONGEST_MS)
        complained = False
        while True:
            self._line = None
            try:
                with self._open_device() as device:
                    self._line = SerialLine(device, self._connect, anonymous=self._anonymous)
                    await self._line.run()
            except (OSError, ValueError) as error:
                if self._line is not None and self._line.heard:
                    complained = False
                    backoff.reset()
                if not complained:
                    logger.warning("serial port %s: %s; trying again", self._config.device, error)
                complained = True
            if os.path.exists(self._config.device):
                await asyncio.sleep(backoff.next_wait_ms() / 1000)
            while not os.path.exists(self._config.device):
                await asyncio.sleep(LOOK_INTERVAL_S)

    def _open_device(self) -> serial.Serial:
        return serial.Serial(self._config.device, self._config.baud, timeout=0, write_timeout=0, exclusive=True)
