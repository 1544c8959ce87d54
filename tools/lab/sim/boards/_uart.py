"""A UART of a simulated chip. It is a terminal, whose path is in the file `uart0`, `uart1`, … of the chip's folder."""

import io

import _chip

GET_FILENO = 10


class UART(io.IOBase):
    """The UART of this number. Raises ValueError if no terminal is connected to it."""

    def __init__(self, number: int, baudrate: int, tx: object = None, rx: object = None, rxbuf: int = 256) -> None:
        from device.boards.terminal import Terminal  # imported here: a program on a board does not load it

        path = _chip.read(f"uart{number}")
        if not path:
            raise ValueError(f"UART({number}) does not exist")
        self._line = Terminal(path, baudrate)

    def read(self, most: int) -> bytes | None:
        return self._line.read(most) or None

    def write(self, content: bytes) -> int | None:
        return self._line.write(content) or None

    def deinit(self) -> None:
        self._line.close()

    def fileno(self) -> int:
        return self._line.file.fileno()

    def ioctl(self, operation: int, argument: int) -> int:
        """Returns the file descriptor that MicroPython's poll waits for."""
        return self._line.file.fileno() if operation == GET_FILENO else -1
