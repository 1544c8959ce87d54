"""A serial line on a microcontroller."""

import machine

UART_BUFFER = 1024  # a stall of 80 ms at 115,200 baud


class UartLine:
    """A UART, 8N1. `path` is its number and the pins, "1:17:16" for UART 1 that sends at pin 17 and receives at 16.

    `file` is the object to register with a poll. Raises OSError if the board has no such UART.
    """

    def __init__(self, path: str, baud: int) -> None:
        try:
            number, tx, rx = [int(part) for part in path.split(":")]
            self.file = machine.UART(number, baud, tx=machine.Pin(tx), rx=machine.Pin(rx), rxbuf=UART_BUFFER)
        except ValueError as error:
            raise OSError(f"{path} is no UART:TX:RX of this board: {error}")

    def read(self, most: int) -> bytes:
        return self.file.read(most) or b""

    def write(self, data: bytes) -> int:
        """Returns how many bytes the line took."""
        return self.file.write(data) or 0

    def close(self) -> None:
        self.file.deinit()
