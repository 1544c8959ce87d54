"""Marks by which a start knows that the store's files belong together, and that none is missing or an older copy.

The table ``identity`` has one row. It goes through the WAL like any other row:

``epoch``
    The epoch of the identities that this store gives.
``run``
    Drawn at each start; the folder's lock file has it as well. A database with another run is not the one that was
    here at the last start.
``round``, ``before``
    The WAL begins anew whenever all of it has been copied into the database; from there on is one round. The first
    commit of each round draws ``round`` and writes it, so that each WAL says its round. ``before`` is the former round,
    until the database's own file has the new one. So ``round`` in the file, read without its WAL, is either ``round``
    or ``before`` as read together with the WAL. If it is neither, one of the two files has been replaced.
``wal_bytes``
    The length of the WAL's file, 0 if the store was closed: then there is no WAL.
``place``
    Which file this is (``file_id_of``), 0 in a new store. A copy is another file. A start on a copy begins a new epoch,
    because the original store may have gone on.

The lock file also has the newest durable position. It is written without a sync, so that a power cut may leave an older
one, but never one that is ahead of the database.

If a file is missing, or an older copy has replaced it, acknowledged messages are missing: the start refuses.
"""

import contextlib
import ctypes
import fcntl
import os
import random
import sqlite3
import struct
import sys
import zlib
from dataclasses import astuple, dataclass, replace
from pathlib import Path

import msgspec

from gateway.store.sqlite.rows import first_row, is_whole, open_at_rest, sealed
from gateway.store.sqlite.wal import HEADER_SIZE, Wal, map_file, page_size_of

SCHEMA = """
CREATE TABLE identity (
    epoch INTEGER NOT NULL,
    run INTEGER NOT NULL,
    round INTEGER NOT NULL,
    before INTEGER NOT NULL,
    wal_bytes INTEGER NOT NULL,
    place INTEGER NOT NULL,
    crc INTEGER NOT NULL
) STRICT;
"""
COLUMNS = "rowid, epoch, run, round, before, wal_bytes, place, crc"
SAVE = f"INSERT OR REPLACE INTO identity ({COLUMNS}) VALUES (1, ?, ?, ?, ?, ?, ?, ?)"
LOAD = "SELECT * FROM identity"
COPIED = -1
"""The ``file_id`` of a database that was copied on purpose."""

FS_IOC_GETVERSION = 0x7601 | struct.calcsize("l") << 16 | 2 << 30  # linux/fs.h: _IOR('v', 1, long)
AT_EMPTY_PATH, STATX_BTIME, STATX_BYTES, BIRTH = 0x1000, 0x800, 256, slice(80, 92)  # linux/stat.h

NEWEST = "SELECT coalesce(max(last), 0) FROM message_group"

ADVICE = "; put back the file that belongs there, or save what can be read with `holdfast gateway repair`"


TAKEN_IN = " (perhaps another program opened the store for writing, took the WAL into it and removed it)"


@dataclass(frozen=True)
class Marks:
    """The row of the table ``identity``; ``file_id`` is its column ``place``."""

    epoch: int
    run: int
    round: int
    before: int
    wal_bytes: int = 0
    file_id: int = 0


class LockNote(msgspec.Struct, frozen=True):
    """What the lock file says: the store's epoch, the possible runs of its database, and its newest position."""

    epoch: int
    runs: list[int]
    position: int


def draw() -> int:
    """Returns a random number that no other draw gives."""
    return random.SystemRandom().getrandbits(63)


def draw_epoch() -> int:
    """Returns an epoch for identities [docs/reference/wire.md]."""
    return random.SystemRandom().getrandbits(32)


def make(connection: sqlite3.Connection) -> None:
    """Writes the row of a new store."""
    mark = draw()
    save(connection, Marks(draw_epoch(), draw(), mark, mark))


def load(connection: sqlite3.Connection) -> Marks:
    """Returns the row. Raises sqlite3.Error, also if the row is corrupt."""
    row = first_row(connection, LOAD)
    if row is None or not is_whole(row):
        damage = sqlite3.DatabaseError("its identity is not as it was stored")
        damage.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
        raise damage
    return Marks(*row[:-1])


def save(connection: sqlite3.Connection, one: Marks) -> None:
    """Writes the row."""
    connection.execute(SAVE, sealed(astuple(one)))


def note_closed(connection: sqlite3.Connection) -> None:
    """Notes that the database needs no WAL."""
    save(connection, replace(load(connection), wal_bytes=0))


def note_copied(connection: sqlite3.Connection) -> None:
    """Notes that the database is a copy: the start on it begins a new epoch."""
    save(connection, replace(load(connection), wal_bytes=0, file_id=COPIED))


def file_id_of(file: int) -> int:
    """Returns a number that differs between an open file and its copies. Raises OSError.

    A file that is moved or renamed stays the same, also when its file system is mounted again. A copy is another file
    even if it gets the inode number of a deleted file: the inode's generation and its time of birth differ. The file
    system's identifier tells a snapshot from its original (btrfs). On XFS and f2fs that is the device's number, which
    may change, and does not count.
    """
    status, file_system = os.fstat(file), os.fstatvfs(file).f_fsid
    lasting = 0 if file_system == status.st_dev else file_system
    marks = f"{lasting} {status.st_ino} {_generation_of(file)} {_birth_of(file)}"
    return zlib.crc32(marks.encode()) + 1


def _generation_of(file: int) -> int:
    """Returns a number that differs between files that use one inode number in turn; 0 if there is none, as on
    tmpfs.
    """
    try:
        answer = fcntl.ioctl(file, FS_IOC_GETVERSION, bytes(struct.calcsize("l")))
    except OSError:
        return 0
    return int.from_bytes(answer[: struct.calcsize("i")], sys.byteorder)  # the kernel writes only an int


def _birth_of(file: int) -> str:
    """Returns when a file was made, "" if unknown [statx(2), which Python has from 3.15 on: os.statx]."""
    found = ctypes.create_string_buffer(STATX_BYTES)
    statx = getattr(ctypes.CDLL(None), "statx", None)
    if statx is None or statx(file, b"", AT_EMPTY_PATH, STATX_BTIME, found):
        return ""
    (known,) = struct.unpack_from("I", found)
    return found.raw[BIRTH].hex() if known & STATX_BTIME else ""


def problem_of(path: Path, note: LockNote | None) -> str:
    """Says which file of a store is not the one that was there, "" if all are; writes nothing.

    Args:
        path: the database.
        note: the note in the folder's lock file, None without one.

    Damage that SQLite itself reports is not looked for.
    """
    wal = path.with_name(path.name + "-wal")
    wal_bytes = wal.stat().st_size if wal.exists() else -1
    if not path.exists() or not path.stat().st_size:
        is_new = note is None and wal_bytes <= 0
        return "" if is_new else f"it is {'empty' if path.exists() else 'missing'}, and there was a store"
    alone = _load(path, "immutable=1")
    together = _load(path, "mode=ro") if wal_bytes > 0 else alone
    if alone is None or together is None:
        return ""
    if alone.wal_bytes and wal_bytes < together.wal_bytes:
        what = "missing" if wal_bytes < 0 else "empty" if not wal_bytes else "shorter than it was"
        return f"its WAL is {what}, and messages may have been in that{TAKEN_IN if wal_bytes < 0 else ''}"
    if alone.wal_bytes and _is_blank(path):
        return "its WAL is empty, and messages may have been in that"
    if not _belong_together(alone, together):
        return "it does not belong to its WAL, one of them is another store's or an older copy"
    if note is not None and together.run not in note.runs:
        return "it is another store's or an older copy"
    position = _newest_in(path)
    if note is not None and position is not None and position < note.position:
        missing = f"{note.position - position:,} messages that were stored are not in it"
        return f"it or its WAL is an older copy, {missing}"
    return ""


def has_other_wal(path: Path) -> bool:
    """Whether the WAL beside a database belongs to another database."""
    alone, together = _load(path, "immutable=1"), _load(path, "mode=ro")
    return alone is not None and together is not None and not _belong_together(alone, together)


def _belong_together(alone: Marks, together: Marks) -> bool:
    return alone.round in (together.round, together.before)


def _load(path: Path, how: str) -> Marks | None:
    """Reads the row from the file alone (``immutable=1``), or together with its WAL; None if there is none."""
    try:
        with contextlib.closing(sqlite3.connect(f"{path.resolve().as_uri()}?{how}", uri=True)) as connection:
            return load(connection)
    except (sqlite3.Error, UnicodeDecodeError):
        return None


def _newest_in(path: Path) -> int | None:
    try:
        with open_at_rest(path) as connection:
            return int(first_row(connection, NEWEST)[0])
    except sqlite3.Error:
        return None


def _is_blank(path: Path) -> bool:
    """Whether a WAL has neither a header nor a frame."""
    wal = Wal(path, page_size_of(map_file(path)))
    return not any(wal.bytes[:HEADER_SIZE]) and next(wal.frames(), None) is None
