"""A Linux machine, under MicroPython's unix port or CPython."""

import gc
import os
import sys
import termios
import time

from device import clock
from flash_store.devices.file import FileFlash

try:
    from time import ticks_diff, ticks_ms  # type: ignore[attr-defined]
except ImportError:

    def ticks_ms() -> int:
        return time.monotonic_ns() // 1_000_000

    def ticks_diff(later: int, earlier: int) -> int:
        return later - earlier


NAME = "unix"
Network: type | None = None  # the machine has its own
Watchdog: type | None = None
WATCHDOG_MS_MAX = 0
RESTARTS = False
SECTOR_SIZE = 4096
TCP, NODELAY = 6, 1  # IPPROTO_TCP and TCP_NODELAY, which MicroPython's socket does not name
_kept = b""  # what a power cut leaves nothing of


class Uptime(clock.Uptime):
    """Of this process."""

    def __init__(self, start_ms: int = 0) -> None:
        super().__init__(ticks_ms, ticks_diff, start_ms)


def unix_ms() -> int:
    """The machine's wall clock."""
    return time.time_ns() // 1_000_000 + 1000 * clock.epoch_offset_s(time.gmtime)


def set_time(unix_ms: int) -> None:
    """Does nothing: the machine's clock is its own."""


def random_u32() -> int:
    number = 0
    for byte in os.urandom(4):
        number = number << 8 | byte
    return number


def free_heap() -> int | None:
    """Bytes; None on CPython, which has no bounds."""
    return gc.mem_free() if hasattr(gc, "mem_free") else None


def reset_cause() -> str:
    """A process does not know more."""
    return "deep sleep" if _kept else "start"


def recall() -> bytes:
    """What `deep_sleep` kept."""
    return _kept


def deep_sleep(sleep_ms: int, kept: bytes) -> None:
    """Returns afterwards: whoever called it starts the device anew."""
    global _kept
    _kept = kept
    time.sleep(sleep_ms / 1000)


def restart() -> None:
    """Returns: whoever called it starts the device anew."""
    global _kept
    _kept = b""


def open_flash(path: str, sector_count: int) -> FileFlash:
    """Raises OSError where the file can neither be opened nor made or is something else, StoreCorrupt when it is too
    long."""
    if not _may_grow(path, sector_count * SECTOR_SIZE):
        raise OSError(f"it is there, shorter than {sector_count} sectors and not erased flash; it was left alone")
    return FileFlash(path, sector_count=sector_count)


def _may_grow(path: str, size: int) -> bool:
    """A shorter file is flash only where the power went while it was made."""
    try:
        if os.stat(path)[6] >= size:
            return True
    except OSError:  # it is not there
        return True
    with open(path, "rb") as file:
        while piece := file.read(256):
            if piece != b"\xff" * len(piece):
                return False
    return True


def has_speed(baud: int) -> bool:
    """Whether a serial line can run at this speed here."""
    return hasattr(termios, f"B{baud}")


def open_line(path: str, baud: int):
    """A serial line. Raises OSError where `path` is none."""
    from device.boards.terminal import Terminal  # a device on a network does without

    return Terminal(path, baud)


def send_at_once(connection) -> None:
    """Lets a socket send small packets without waiting for more."""
    connection.setsockopt(TCP, NODELAY, 1)


def say(text: str) -> None:
    """One line on standard output, now; that nobody listens any more is no reason to stop."""
    try:
        sys.stdout.write(text + "\n")
        sys.stdout.flush()
    except OSError:
        pass
