"""The store's folder, which one process has at a time."""

import contextlib
import fcntl
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from gateway.errors import StoreError
from gateway.store import exchange

MESSAGES = "messages.sqlite"
"""The name of the log's file."""

RESERVED_BYTES = 64 * 1024 * 1024  # of the disk: what is full to the brim cannot even note what may be deleted

FOLDER_MODE, FILE_MODE = 0o700, 0o600  # who can open a file of SQLite can lock it, too


def room_bytes(folder: Path) -> int:
    """Returns how many bytes its disk has left, but for a reserve. Raises OSError."""
    disk = os.statvfs(folder)
    return disk.f_bavail * disk.f_frsize - min(RESERVED_BYTES, disk.f_blocks * disk.f_frsize // 10)


def take_folder(folder: Path) -> IO[str]:
    """Makes the folder where there is none and takes it; it is free again when what is returned is closed.

    A repair that was killed while it put new files in place is ended first. The files of an earlier version, which
    other users could read and lock, become the owner's alone; the folder itself may hold what is not the store's.

    Raises:
        StoreError: it cannot be used, or another process has it.
    """
    try:
        folder.mkdir(FOLDER_MODE, parents=True, exist_ok=True)
        _close_to_others(folder)
        lock = os.fdopen(os.open(folder / "lock", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, FILE_MODE), "w")
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


def _close_to_others(folder: Path) -> None:
    """Raises OSError."""
    for path in _own_files(folder):
        mode = path.stat().st_mode
        if mode & 0o077:
            with contextlib.suppress(PermissionError):  # it is another user's, and may be usable all the same
                path.chmod(FOLDER_MODE if stat.S_ISDIR(mode) else FILE_MODE)


def _own_files(folder: Path) -> Iterator[Path]:
    """The store's files, and the folders in which a repair has left others."""
    for pattern in ("lock", "*.sqlite", "*.sqlite-*", f"{exchange.OLD}-*"):
        yield from folder.glob(pattern)
