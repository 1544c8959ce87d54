"""A dictionary on disk: text keys, and values with a checksum each; entries that change together are one transaction.

The file is a database with one table. A value is the CRC-32 of its key and body (4 bytes, the highest first), and the
body.
"""

import sqlite3
import zlib
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from gateway.store.sqlite.rows import open_for_reading

VERSION = 2
CRC_SIZE = 4
AT_ONCE = 10_000  # entries in one statement, which may have 32,766 parameters


class Entry(NamedTuple):
    """One entry as it is in the file. ``body`` is None if the entry is corrupt."""

    key: str
    body: bytes | None


class Shelf:
    """An open dictionary; everything here blocks.

    A change is durable when its call returns; sqlite3.Error says why it is not.

    Args:
        path: the file, which is made if it does not exist.
        table: the name of its table.
        is_synced: whether each change is synced; otherwise a power cut may take the last ones.
    """

    def __init__(self, path: Path, table: str, *, is_synced: bool = True) -> None:
        self._table = table
        self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        try:
            self._open(is_synced)
        except sqlite3.Error:
            self._connection.close()
            raise

    def put(self, bodies: Mapping[str, bytes]) -> None:
        """Adds or replaces entries."""
        rows = [(key, seal(key, body)) for key, body in bodies.items()]
        for start in range(0, len(rows), AT_ONCE):
            part = rows[start : start + AT_ONCE]
            marks = ", ".join(["(?, ?)"] * len(part))
            self._execute(f"REPLACE INTO {self._table} (key, value) VALUES {marks}", chain.from_iterable(part))

    def remove(self, keys: Sequence[str]) -> None:
        """Removes entries; missing ones are ignored."""
        for start in range(0, len(keys), AT_ONCE):
            part = keys[start : start + AT_ONCE]
            self._execute(f"DELETE FROM {self._table} WHERE key IN ({', '.join('?' * len(part))})", part)

    def close(self) -> None:
        self._connection.close()

    def _open(self, is_synced: bool) -> None:
        self._execute("PRAGMA journal_mode = WAL")
        self._execute(f"PRAGMA synchronous = {'FULL' if is_synced else 'NORMAL'}")
        self._execute(f"CREATE TABLE IF NOT EXISTS {self._table} (key TEXT PRIMARY KEY, value BLOB)")
        if self._connection.execute("PRAGMA user_version").fetchall() != [(VERSION,)]:
            self._execute(f"PRAGMA user_version = {VERSION}")

    def _execute(self, statement: str, values: Iterable[object] = ()) -> None:
        self._connection.execute(statement, tuple(values)).fetchall()  # a statement ends with its last row


def read(path: Path, table: str) -> list[Entry]:
    """Returns the entries of a file in the order in which they were added, without writing; none if there is no file.

    Raises sqlite3.Error.
    """
    if not path.exists():
        return []
    with open_for_reading(path) as connection:
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if version not in (0, VERSION):  # 0 until the first process that opened it has set it
            raise sqlite3.DatabaseError(f"of version {version}, and this gateway reads version {VERSION}")
        if not connection.execute("SELECT 1 FROM sqlite_schema WHERE name = ?", (table,)).fetchone():
            return []
        connection.text_factory = lambda text: text.decode(errors="surrogateescape")
        rows = connection.execute(f"SELECT key, value FROM {table} ORDER BY rowid")
        return [Entry(key, unseal(key, value)) for key, value in rows]


def seal(key: str, body: bytes) -> bytes:
    """Returns the value that stands for a body."""
    return _crc_of(key, body).to_bytes(CRC_SIZE, "big") + body


def unseal(key: object, value: object) -> bytes | None:
    """Returns the body of a value, None if key or value is corrupt."""
    if not isinstance(key, str) or not isinstance(value, bytes):
        return None
    body = value[CRC_SIZE:]
    return body if seal(key, body) == value else None


def _crc_of(key: str, body: bytes) -> int:
    return zlib.crc32(body, zlib.crc32(key.encode(errors="surrogateescape")))
