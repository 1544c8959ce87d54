"""The lines that a device at a serial port sends for the gateway's log."""

import logging

LINES_AT_ONCE = 20
LINE_INTERVAL_S = 1.0  # on average: a device that says more must not fill the log's disk

logger = logging.getLogger(__name__)


class DeviceLog:
    """Writes a device's lines to the log, as many as it may, and counts the others.

    Args:
        name: of the serial port.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._allowance = float(LINES_AT_ONCE)
        self._updated_s = 0.0
        self._omitted = 0

    def write(self, line: bytes, now_s: float) -> None:
        """Takes one line at the moment `now_s`, which never goes back."""
        self._allowance = min(LINES_AT_ONCE, self._allowance + (now_s - self._updated_s) / LINE_INTERVAL_S)
        self._updated_s = now_s
        if self._allowance < 1:
            self._omitted += 1
            return
        self._allowance -= 1
        if self._omitted:
            logger.warning("serial port %s: %d lines of the device left out", self._name, self._omitted)
            self._omitted = 0
        logger.info("serial port %s: the device says %r", self._name, line.decode(errors="replace"))
