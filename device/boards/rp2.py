"""RP2040 and RP2350: a Pico W uses its Wi-Fi, a Pico a serial line."""

import sys
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
except ImportError:  # a Pico without Wi-Fi
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
REASON_RP2040, REASON_RP2350, FORCED = 0x4005_8008, 0x400D_8008, 2


class Watchdog:
    """Resets the board if it is not fed for `timeout_ms`, 8,388 ms at most; it cannot be stopped."""

    def __init__(self, timeout_ms: int) -> None:
        self._timeout_ms = timeout_ms
        self._watch = machine.WDT(timeout=timeout_ms)
        self._timers: list = []  # the one timer that feeds it during `lengthen`
        self._end_ms = ticks_ms()  # until when the timer feeds it, in ticks

    def feed(self) -> None:
        self._watch.feed()

    def lengthen(self, most_ms: int) -> None:
        """Lets a timer feed the watchdog until `shorten`, for `most_ms` at most, because a call is about to block.

        The timer's callback also runs during a DNS look-up, which handles events while it waits.
        """
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


recall = deep_sleep = None  # this board has no memory that keeps its content through a deep sleep


def open_flash(path: str, sector_count: int):
    """Opens the end of the storage area, "storage", or an external chip, "spi:BUS:CS". Raises DeviceFailed, OSError."""
    if path.startswith("spi:"):
        return open_spi_flash(path, sector_count)
    if path != "storage":
        raise OSError("it is neither storage nor spi:BUS:CS")
    from rp2 import Flash  # the board's own module

    length = sector_count * SECTOR_SIZE
    return Rp2Flash((Flash().ioctl(IOCTL_BLOCK_COUNT, 0) or 0) * SECTOR_SIZE - length, length)


def reset_cause() -> str:
    """Returns why this start came. MicroPython resets the chip by its watchdog, and tells no difference; the register
    REASON does (RP2040 datasheet, 4.7.6)."""
    if machine.reset_cause() != machine.WDT_RESET:
        return "power"
    is_rp2350 = "RP2350" in sys.implementation._machine
    return "restart" if machine.mem32[REASON_RP2350 if is_rp2350 else REASON_RP2040] & FORCED else "watchdog"
