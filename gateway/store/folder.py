"""The store's folder, which one process has at a time."""

import fcntl
import os
from pathlib import Path
from typing import IO

from gateway.errors import StoreError
from gateway.store import exchange

MESSAGES = "messages.sqlite"
"""The name of the log's file."""

RESERVED_BYTES = 64 * 1024 * 1024  # of the disk: what is full to the brim cannot even note what may be deleted


def room_bytes(folder: Path) -> int:
    """Returns how many bytes its disk has left, but for a reserve. Raises OSError."""
    disk = os.statvfs(folder)
    return disk.f_bavail * disk.f_frsize - min(RESERVED_BYTES, disk.f_blocks * disk.f_frsize // 10)


def take_folder(folder: Path) -> IO[str]:
    """Makes the folder where there is none and takes it; it is free again when what is returned is closed.

    A repair that was killed while it put new files in place is ended first.

    Raises:
        StoreError: it cannot be used, or another process has it.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / "lock").open("w")
    except OSError as error:
        raise StoreError(f"message store {folder}: {error.strerror}") from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        lock.close()
        raise StoreError(f"message store {folder}: another process uses it") from error
    try:
        exchange.finish(folder)
    except StoreError:
        lock.close()
        raise
    return lock
