"""Marks by which a start knows that the store's files belong together, and that none is missing or an older one.

The row ``identity`` is in the database and goes through its WAL like any other:

``epoch``
    of the identities that this store gives.
``run``
    drawn at each start; the folder's lock file has it as well. A database with another one has been replaced.
``round``, ``before``
    The WAL begins anew whenever all of it has been copied into the database. Each of these rounds draws a ``round``,
    and the first commit of the WAL writes it, so that a WAL tells its round. ``before`` is that of the round before
    until the database's own file has the new one. So the file, read without the WAL, has ``round`` or ``before`` of
    what is read with it; where it has neither, one of the two has been replaced.
``wal_bytes``
    The length of the WAL's file, 0 where the store was closed: then there is none.
``place``
    which file this is (``places_of``), 0 in a new one: in a copy it is another one. The start on a copy begins a new
    epoch, as the store that it was copied from may have gone on.

The lock file also says which position is the newest that was durable. That is written without a sync, so that a power
cut may leave an older one, never one that is ahead of the database.

What a file held that is gone, or from before, was acknowledged: a start that finds such a file refuses.
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

from gateway.store.checksum import is_whole, sealed
from gateway.store.reading import first_row, open_at_rest
from gateway.store.wal import HEADER_SIZE, Wal, map_file, page_size_of

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
"""The place of a database that was copied on purpose."""

FS_IOC_GETVERSION = 0x7601 | struct.calcsize("l") << 16 | 2 << 30  # linux/fs.h: _IOR('v', 1, long)
AT_EMPTY_PATH, STATX_BTIME, STATX_BYTES, BIRTH = 0x1000, 0x800, 256, slice(80, 92)  # linux/stat.h

NEWEST = "SELECT coalesce(max(last), 0) FROM message_group"

ADVICE = "; put back the file that belongs there, or save what can be read with `holdfast gateway repair`"


TAKEN_IN = " (perhaps another program opened the store for writing, took the WAL into it and removed it)"


@dataclass(frozen=True)
class Identity:
    """The row; the module says what its columns are."""

    epoch: int
    run: int
    round: int
    before: int
    wal_bytes: int = 0
    place: int = 0


class Note(msgspec.Struct, frozen=True):
    """What the lock file says: the store's epoch, the runs that its database may have, and its newest position."""

    epoch: int
    runs: list[int]
    position: int


def draw() -> int:
    """Returns a number that no other draw has given."""
    return random.SystemRandom().getrandbits(63)


def draw_epoch() -> int:
    """Returns an epoch for identities [docs/reference/wire.md]."""
    return random.SystemRandom().getrandbits(32)


def make(connection: sqlite3.Connection) -> None:
    """Writes the row of a new store."""
    mark = draw()
    save(connection, Identity(draw_epoch(), draw(), mark, mark))


def load(connection: sqlite3.Connection) -> Identity:
    """Returns the row. Raises sqlite3.Error, also where it is not as it was stored."""
    row = first_row(connection, LOAD)
    if row is None or not is_whole(row):
        damage = sqlite3.DatabaseError("its identity is not as it was stored")
        damage.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
        raise damage
    return Identity(*row[:-1])


def save(connection: sqlite3.Connection, one: Identity) -> None:
    """Writes the row."""
    connection.execute(SAVE, sealed(astuple(one)))


def note_closed(connection: sqlite3.Connection) -> None:
    """The database needs no WAL."""
    save(connection, replace(load(connection), wal_bytes=0))


def note_copied(connection: sqlite3.Connection) -> None:
    """The database is a copy: the start on it begins a new epoch."""
    save(connection, replace(load(connection), wal_bytes=0, place=COPIED))


def places_of(file: int) -> tuple[int, int]:
    """Returns which file an open one is, by today's rule and by the rule of the version before. Raises OSError.

    A file that is moved or renamed stays the same one, also when its file system is mounted anew. A copy is another one
    even where it gets the inode number of a deleted file, by its inode's generation and its time of birth. The file
    system's identifier tells a snapshot from its original (btrfs); where it is the device's number (XFS, f2fs) it
    changes with that, and does not count.
    """
    status, file_system = os.fstat(file), os.fstatvfs(file).f_fsid
    lasting = 0 if file_system == status.st_dev else file_system
    marks = f"{lasting} {status.st_ino} {_generation_of(file)} {_birth_of(file)}"
    before = f"{file_system} {status.st_ino}"
    return zlib.crc32(marks.encode()) + 1, zlib.crc32(before.encode()) + 1


def _generation_of(file: int) -> int:
    """Returns what differs between the files that have an inode number in turn; 0 where there is none, as on tmpfs."""
    try:
        answer = fcntl.ioctl(file, FS_IOC_GETVERSION, bytes(struct.calcsize("l")))
    except OSError:
        return 0
    return int.from_bytes(answer[: struct.calcsize("i")], sys.byteorder)  # the kernel writes no more than an int


def _birth_of(file: int) -> str:
    """Returns when a file was made, "" where that is not known [statx(2), which Python has from 3.15 on: os.statx]."""
    found = ctypes.create_string_buffer(STATX_BYTES)
    statx = getattr(ctypes.CDLL(None), "statx", None)
    if statx is None or statx(file, b"", AT_EMPTY_PATH, STATX_BTIME, found):
        return ""
    (known,) = struct.unpack_from("I", found)
    return found.raw[BIRTH].hex() if known & STATX_BTIME else ""


def problem_of(path: Path, note: Note | None) -> str:
    """Says which file of a store is not the one that was there, "" where all of them are; writes nothing.

    Args:
        path: the database.
        note: that of the folder's lock file, None where it has none.

    What SQLite itself finds wrong is not looked for.
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
    """Whether the WAL beside a database is not its own."""
    alone, together = _load(path, "immutable=1"), _load(path, "mode=ro")
    return alone is not None and together is not None and not _belong_together(alone, together)


def _belong_together(alone: Identity, together: Identity) -> bool:
    return alone.round in (together.round, together.before)


def _load(path: Path, how: str) -> Identity | None:
    """The row as the file has it by itself (``immutable=1``), or together with its WAL; None where it has none."""
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
