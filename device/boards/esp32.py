"""ESP32 and its family."""

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
from device.boards.wifi import Wifi as Network
from flash_store.devices.esp32 import SECTOR_SIZE, Esp32Partition

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
NAME = "esp32"


class Watchdog:
    """Resets the board when it was not fed for so long; nothing stops it.

    A new `machine.WDT` gives the one that there is another time (esp_task_wdt_reconfigure).
    """

    def __init__(self, timeout_ms: int) -> None:
        self._timeout_ms = timeout_ms
        self.shorten()

    def feed(self) -> None:
        self._timer.feed()

    def lengthen(self, most_ms: int) -> None:
        """Until `shorten` it waits for so long: something blocks that cannot feed it."""
        self._timer = machine.WDT(timeout=max(most_ms, self._timeout_ms))
        self.feed()

    def shorten(self) -> None:
        self._timer = machine.WDT(timeout=self._timeout_ms)
        self.feed()


def open_flash(path: str, sector_count: int):
    """The data partition of that label, or an external chip, "spi:BUS:CS". Raises DeviceFailed, OSError."""
    if path.startswith("spi:"):
        return open_spi_flash(path, sector_count)
    return Esp32Partition(path, sector_count * SECTOR_SIZE)


def reset_cause() -> str:
    causes = {
        machine.PWRON_RESET: "power",
        machine.HARD_RESET: "reset",
        machine.WDT_RESET: "watchdog",
        machine.DEEPSLEEP_RESET: "deep sleep",
        machine.SOFT_RESET: "restart",
    }
    return causes.get(machine.reset_cause(), "unknown")


def recall() -> bytes:
    """What `deep_sleep` kept; nothing after a power cut, and what a reset left of it otherwise."""
    return bytes(machine.RTC().memory())


def deep_sleep(sleep_ms: int, kept: bytes) -> None:
    """Keeps at most 2048 bytes and does not return: the board starts anew."""
    machine.RTC().memory(kept)
    machine.deepsleep(sleep_ms)
