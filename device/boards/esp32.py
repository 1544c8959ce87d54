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
RESTARTED = b"holdfast restarts"  # in the memory that survives a reset
_causes: list = []  # why this start came, once it is known


class Watchdog:
    """Resets the board if it is not fed for `timeout_ms`; it cannot be stopped.

    A new `machine.WDT` changes the timeout of the existing one (esp_task_wdt_reconfigure).
    """

    def __init__(self, timeout_ms: int) -> None:
        self._timeout_ms = timeout_ms
        self.shorten()

    def feed(self) -> None:
        self._timer.feed()

    def lengthen(self, most_ms: int) -> None:
        """Waits up to `most_ms` until `shorten`, because a call is about to block."""
        self._timer = machine.WDT(timeout=max(most_ms, self._timeout_ms))
        self.feed()

    def shorten(self) -> None:
        self._timer = machine.WDT(timeout=self._timeout_ms)
        self.feed()


def open_flash(path: str, sector_count: int):
    """Opens the data partition labelled `path`, or an external chip, "spi:BUS:CS". Raises DeviceFailed, OSError."""
    if path.startswith("spi:"):
        return open_spi_flash(path, sector_count)
    return Esp32Partition(path, sector_count * SECTOR_SIZE)


def restart() -> None:
    """Does not return. It leaves a note: a reset by a pin, a panic and this one are the same for MicroPython."""
    machine.RTC().memory(RESTARTED)
    machine.reset()


def reset_cause() -> str:
    """Returns why this start came. A brownout counts as power."""
    if not _causes:
        _causes.append(_reset_cause())
    return _causes[0]


def _reset_cause() -> str:
    if machine.reset_cause() == machine.HARD_RESET and machine.RTC().memory() == RESTARTED:
        machine.RTC().memory(b"")
        return "restart"
    causes = {
        machine.PWRON_RESET: "power",
        machine.HARD_RESET: "reset",
        machine.WDT_RESET: "watchdog",
        machine.DEEPSLEEP_RESET: "deep sleep",
        machine.SOFT_RESET: "restart",
    }
    return causes.get(machine.reset_cause(), "unknown")


def recall() -> bytes:
    """Returns what `deep_sleep` kept: nothing after a power cut, perhaps damaged bytes after another reset."""
    return bytes(machine.RTC().memory())


def deep_sleep(sleep_ms: int, kept: bytes) -> None:
    """Keeps at most 2048 bytes and does not return: the board starts again after the sleep."""
    machine.RTC().memory(kept)
    machine.deepsleep(sleep_ms)
