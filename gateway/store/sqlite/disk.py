"""What is said of a store's disk: how full it is, and the words for an error that comes from it."""

import errno
import os
import sqlite3
from pathlib import Path

from gateway.errors import advice_on

LARGE = 1_000_000  # bytes in a unit of the text
FEW_BYTES = 256 * 1024  # SQLite may need them at once: an index of its WAL, and some pages
FULL = (errno.ENOSPC, errno.EDQUOT)
OF_A_DISK = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN)


def describe_disk(folder: Path) -> str:
    """Returns that the disk of a store is full, and what fills it. Raises OSError."""
    disk = os.statvfs(folder)
    size, free = disk.f_blocks * disk.f_frsize, disk.f_bavail * disk.f_frsize
    own = sum(file.stat().st_size for file in folder.glob("*") if file.is_file())
    others = max(0, size - disk.f_bfree * disk.f_frsize - own)
    return (
        f"the disk is full, {free // LARGE:,} of its {size // LARGE:,} MB are left: "
        f"other files have {others // LARGE:,} MB, the store {own // LARGE:,} MB"
    )


def words_of(error: Exception, folder: Path) -> str:
    """Returns the words for an error at a file in a folder; if its disk is full, what fills it and where it is mounted.

    Otherwise they are the error's own text without its number, and the advice that helps.

    SQLite reports a full disk as "disk I/O error" or "unable to open database file" as well.
    """
    text = _text_of(error)
    try:
        nearest = next(one for one in (folder, *folder.parents) if one.exists())
        if not _is_full(error, nearest):
            return text + advice_on(error)
        return f"{describe_disk(nearest)}; free some of {_mount_of(nearest)}, what is stored is untouched ({text})"
    except OSError:
        return text


def _is_full(error: Exception, folder: Path) -> bool:
    if isinstance(error, OSError):
        return error.errno in FULL
    disk = os.statvfs(folder)
    is_short = disk.f_bavail * disk.f_frsize < FEW_BYTES or (disk.f_files > 0 and not disk.f_favail)
    return is_short and getattr(error, "sqlite_errorcode", 0) & 0xFF in OF_A_DISK


def _text_of(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return str(error)


def _mount_of(folder: Path) -> Path:
    """Returns the folder at which the disk of a folder is mounted."""
    path = folder.resolve()
    return next(one for one in (path, *path.parents) if one.is_mount())
