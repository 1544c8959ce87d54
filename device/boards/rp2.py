"""RP2040 and RP2350: a Pico W on its Wi-Fi, a Pico on a serial line."""

import machine

from device.boards.microcontroller import (
    WATCHDOG_MS_MAX,
    Uptime,
    Watchdog,
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
