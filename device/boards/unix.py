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


try:
    from micropython import kbd_intr
except ImportError:
    pass  # CPython raises KeyboardInterrupt between two steps of the program
else:
    # This port raises it at any moment. In a garbage collection the heap then stays locked, and the program fails or
    # hangs. Without a handler Ctrl-C ends the process at once, as a power cut does.
    kbd_intr(-1)


NAME = "unix"
Network: type | None = None  # the operating system joins the network
Watchdog: type | None = None
WATCHDOG_MS_MAX = 0
RESTARTS = False
SECTOR_SIZE = 4096
TCP, NODELAY = 6, 1  # IPPROTO_TCP and TCP_NODELAY, which MicroPython's socket does not name
_kept = b""  # what `deep_sleep` keeps; the end of the process loses it


class Uptime(clock.Uptime):
    """The uptime of this process."""

    def __init__(self, start_ms: int = 0) -> None:
        super().__init__(ticks_ms, ticks_diff, start_ms)


def unix_ms() -> int:
    """Returns the machine's wall clock, in ms since 1970."""
    return time.time_ns() // 1_000_000 + 1000 * clock.epoch_offset_s(time.gmtime)


def set_time(unix_ms: int) -> None:
    """Does nothing: the operating system sets the clock."""


def random_u32() -> int:
    number = 0
    for byte in os.urandom(4):
        number = number << 8 | byte
    return number


def free_heap() -> int | None:
    """Returns the free bytes of the heap; None on CPython, whose heap has no limit."""
    return gc.mem_free() if hasattr(gc, "mem_free") else None


def reset_cause() -> str:
    """Returns "deep sleep" or "start": a process does not know more."""
    return "deep sleep" if _kept else "start"


def recall() -> bytes:
    """Returns what `deep_sleep` kept."""
    return _kept


def deep_sleep(sleep_ms: int, kept: bytes) -> None:
    """Returns after the sleep; the caller then starts the device again."""
    global _kept
    _kept = kept
    time.sleep(sleep_ms / 1000)


def restart() -> None:
    """Returns; the caller then starts the device again."""
    global _kept
    _kept = b""


def open_flash(path: str, sector_count: int) -> FileFlash:
    """Opens or makes the file that holds the flash.

    Raises OSError if the file can neither be opened nor made, or holds something else; StoreCorrupt if it is too long.
    """
    if not _may_grow(path, sector_count * SECTOR_SIZE):
        raise OSError(f"it is there, shorter than {sector_count} sectors and not erased flash; it was left alone")
    return FileFlash(path, sector_count=sector_count)


def _may_grow(path: str, size: int) -> bool:
    """Returns whether the file may be extended: a shorter file must be erased flash, from a start that was cut."""
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
    """Opens a serial line. Raises OSError if `path` is no serial line."""
    from device.boards.terminal import Terminal  # loaded only here: a device on a network does not need it

    return Terminal(path, baud)


def send_at_once(connection) -> None:
    """Lets a socket send small packets without waiting for more."""
    connection.setsockopt(TCP, NODELAY, 1)


def say(text: str) -> None:
    """Writes one line to standard output and flushes it; a closed output does not stop the device."""
    try:
        sys.stdout.write(text + "\n")
        sys.stdout.flush()
    except OSError:
        pass
