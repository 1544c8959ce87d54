"""RP2040 and RP2350: a Pico W on its Wi-Fi, a Pico on a serial line."""

from time import ticks_add, ticks_diff, ticks_ms  # type: ignore[attr-defined]

import machine

from device.boards.microcontroller import (
    RESTARTS,
    WATCHDOG_MS_MAX,
    Uptime,
    free_heap,
    has_speed,
    open_line,
    open_spi_flash,
    random_u32,
    restart,
    say,
    send_at_once,
    set_time,
    unix_ms,
)
from flash_store.block_device import IOCTL_BLOCK_COUNT
from flash_store.devices.rp2 import SECTOR_SIZE, Rp2Flash

try:
    from device.boards.wifi import Wifi as Network
except ImportError:  # a Pico without the W
    Network = None  # type: ignore[assignment,misc]

__all__ = (
    "NAME",
    "RESTARTS",
    "WATCHDOG_MS_MAX",
    "Network",
    "Uptime",
    "Watchdog",
    "deep_sleep",
    "free_heap",
    "has_speed",
    "open_flash",
    "open_line",
    "random_u32",
    "recall",
    "reset_cause",
    "restart",
    "say",
    "send_at_once",
    "set_time",
    "unix_ms",
)
NAME = "rp2"


class Watchdog:
    """Resets the board when it was not fed for so long, 8,388 ms at most; nothing stops it."""

    def __init__(self, timeout_ms: int) -> None:
        self._timeout_ms = timeout_ms
        self._watch = machine.WDT(timeout=timeout_ms)
        self._timers: list = []  # the one that feeds it
        self._end_ms = 0  # until then, in ticks

    def feed(self) -> None:
        self._watch.feed()

    def lengthen(self, most_ms: int) -> None:
        """Until `shorten`, for so long at most, a timer feeds it while something blocks. Its callback runs in a look-up
        of a name as well, which lets events be handled while it waits."""
        self.shorten()
        self._end_ms = ticks_add(ticks_ms(), most_ms)
        self._timers.append(machine.Timer(-1, period=self._timeout_ms // 4, callback=self._feed_by_timer))

    def shorten(self) -> None:
        while self._timers:
            self._timers.pop().deinit()
        self.feed()

    def _feed_by_timer(self, timer) -> None:
        if ticks_diff(self._end_ms, ticks_ms()) > 0:
            self.feed()


recall = deep_sleep = None  # nothing keeps its content there but flash


def open_flash(path: str, sector_count: int):
    """The end of the storage area, "storage", or an external chip, "spi:BUS:CS". Raises DeviceFailed, OSError."""
    if path.startswith("spi:"):
        return open_spi_flash(path, sector_count)
    if path != "storage":
        raise OSError("it is neither storage nor spi:BUS:CS")
    from rp2 import Flash  # the board's own module

    length = sector_count * SECTOR_SIZE
    return Rp2Flash((Flash().ioctl(IOCTL_BLOCK_COUNT, 0) or 0) * SECTOR_SIZE - length, length)


def reset_cause() -> str:
    return "watchdog" if machine.reset_cause() == machine.WDT_RESET else "power"
