"""A serial line on Linux."""

import os
import termios

RAW_8N1 = 0x30 | 0x80 | 0x800  # CS8, CREAD and CLOCAL of Linux, which MicroPython's termios does not name
VTIME, VMIN = 5, 6
O_RDWR, O_NOCTTY = 0o2, 0o400  # of Linux


class Terminal:
    """A serial line that transfers bytes unchanged, 8N1. Raises OSError if `path` is no serial line.

    `file` is the object to register with a poll.
    """

    def __init__(self, path: str, baud: int) -> None:
        self.file = _open_line(path)
        try:
            attributes = termios.tcgetattr(self.file.fileno())
            attributes[0] = attributes[1] = attributes[3] = 0
            attributes[2] = RAW_8N1
            attributes[4] = attributes[5] = getattr(termios, f"B{baud}")
            attributes[6][VTIME] = attributes[6][VMIN] = 0  # a read takes what is there and never waits for more
            termios.tcsetattr(self.file.fileno(), termios.TCSANOW, attributes)
        except Exception as error:  # CPython's termios.error is no OSError
            self.file.close()
            raise OSError(f"{path} is no serial line: {error}")

    def read(self, most: int) -> bytes:
        return self.file.read(most) or b""

    def write(self, data: bytes) -> int:
        """Returns how many bytes the line took."""
        return self.file.write(data) or 0

    def close(self) -> None:
        self.file.close()


def _open_line(path: str):
    """Opens the line, not as controlling terminal: otherwise the process would end when the line hangs up."""
    if hasattr(os, "O_NOCTTY"):
        return open(path, "r+b", 0, opener=lambda path, flags: os.open(path, flags | os.O_NOCTTY))
    import ffi

    descriptor = ffi.open(None).func("i", "open", "si")(path, O_RDWR | O_NOCTTY)
    return open(path if descriptor < 0 else descriptor, "r+b", 0)  # on failure, `open` with the path raises the error
