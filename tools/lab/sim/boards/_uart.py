"""A UART of a simulated chip: a terminal, which its folder names in `uart0`, `uart1`, …"""

import io

import _chip

GET_FILENO = 10


class UART(io.IOBase):
    """Raises ValueError where nothing is wired to a UART of that number."""

    def __init__(self, number: int, baudrate: int, tx: object = None, rx: object = None, rxbuf: int = 256) -> None:
        from device.boards.terminal import Terminal  # which is on no board itself

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
        """How MicroPython's poll finds what to wait for."""
        return self._line.file.fileno() if operation == GET_FILENO else -1
