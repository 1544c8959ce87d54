"""The functions that all boards with a `machine` module share."""

import os
import sys
import time
from gc import mem_free  # type: ignore[attr-defined]
from time import sleep_us, ticks_diff, ticks_ms  # type: ignore[attr-defined]

import machine

from device import clock

RESTARTS = True
WATCHDOG_MS_MAX = 8_388  # the limit of an RP2040, the lowest of these boards
TCP, NODELAY = 6, 1  # IPPROTO_TCP and TCP_NODELAY: not every board's socket module has these names


class Uptime(clock.Uptime):
    """The uptime since this start, or since the start before a deep sleep."""

    def __init__(self, start_ms: int = 0) -> None:
        super().__init__(ticks_ms, ticks_diff, start_ms)


def unix_ms() -> int:
    """UTC (ms since 1970) of the board's own clock, which begins in 2000 or 2021 at power-on until it is set."""
    return (int(time.time()) + clock.epoch_offset_s(time.gmtime)) * 1000


def set_time(unix_ms: int) -> None:
    """Sets the board's own clock; TLS checks by it whether a certificate is valid."""
    seconds = unix_ms // 1000 - clock.epoch_offset_s(time.gmtime)
    year, month, day, hour, minute, second, weekday = time.gmtime(seconds)[:7]
    machine.RTC().datetime((year, month, day, weekday, hour, minute, second, 0))


def random_u32() -> int:
    return int.from_bytes(os.urandom(4), "little")


def restart() -> None:
    """Does not return."""
    machine.reset()


def free_heap() -> int:
    """Returns the free bytes of the heap."""
    return mem_free()


def has_speed(baud: int) -> bool:
    """Whether a serial line can run at this speed here."""
    return 300 <= baud <= 921_600


def open_line(path: str, baud: int):
    """Opens a serial line. Raises OSError if the board has no such UART."""
    from device.boards.uart import UartLine  # loaded only here: a device on a network does not need it

    return UartLine(path, baud)


def open_spi_flash(path: str, sector_count: int):
    """Opens an external flash chip; `path` is "spi:1:13" for SPI bus 1 at its usual pins and chip select at pin 13.

    Raises OSError if `path` is not of this form, DeviceFailed if the chip does not answer.
    """
    from flash_store.devices.spi_nor import SpiNor

    try:
        _, bus, cs = path.split(":")
        spi = machine.SPI(int(bus), baudrate=20_000_000)
        return SpiNor(spi, machine.Pin(int(cs), machine.Pin.OUT, value=1), sleep_us, 0, sector_count)
    except ValueError as error:
        raise OSError(f"{path} is no spi:BUS:CS of this board: {error}")


def send_at_once(connection) -> None:
    """Lets a socket send small packets without waiting for more."""
    try:
        connection.setsockopt(TCP, NODELAY, 1)
    except OSError:
        pass  # an older MicroPython lacks the option; the connection works, only slower


def say(text: str) -> None:
    """Writes one line to the console, even if nothing is connected to it."""
    sys.stdout.write(text + "\n")
