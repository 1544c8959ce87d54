"""The board's console as a line of bytes, beside the lines of the log."""

import select
import sys

from micropython import kbd_intr

CTRL_C, RETURN = 3, 13
PAUSE_MS = 500


class Console:
    """Reads the console without waiting.

    While it is open, byte 3 is a byte like any other, because packets have it. It is Ctrl-C only as the first byte
    after a pause, apart from returns: so tools send it that stop a board's program, and so do people.
    """

    def __init__(self) -> None:
        self._poller = select.poll()
        self._poller.register(sys.stdin, select.POLLIN)
        self._heard_ms = 0
        self._is_fresh = True  # whether nothing but returns came since a look that found nothing, after a pause
        kbd_intr(-1)

    def read(self, most: int, now_ms: int) -> bytes:
        """Returns what came, `most` bytes at most. Raises KeyboardInterrupt; what came behind Ctrl-C is left there."""
        data = bytearray()
        while len(data) < most and self._poller.poll(0):
            byte = sys.stdin.buffer.read(1)
            if not byte:
                break
            if byte[0] == CTRL_C and self._is_fresh:
                self.close()
                raise KeyboardInterrupt
            self._is_fresh = self._is_fresh and byte[0] == RETURN
            data.extend(byte)
        if data:
            self._heard_ms = now_ms
        elif now_ms - self._heard_ms >= PAUSE_MS:
            self._is_fresh = True
        return bytes(data)

    def write(self, data: bytes) -> None:
        sys.stdout.buffer.write(data)

    def close(self) -> None:
        """Ctrl-C ends the program again."""
        kbd_intr(CTRL_C)
