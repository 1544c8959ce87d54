"""A dictionary on disk: text keys, and values with a checksum each; entries that change together are one transaction.

The file is a database with one table, a dictionary of the library sqlitedict. A value is the CRC-32 of its key and body
(4 bytes, the highest first), and the body, which is MessagePack.
"""

import errno
import os
import sqlite3
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec
from sqlitedict import SqliteDict

from gateway.store.sqlite.rows import open_for_reading

VERSION = 2
CRC_SIZE = 4

Value = TypeVar("Value")


class Entry(NamedTuple, Generic[Value]):
    """One entry as it is in the file. ``value`` is None if the entry is corrupt."""

    key: str
    value: Value | None


class Shelf(SqliteDict):
    """An open dictionary; everything here blocks.

    sqlite3.Error says why a change was not made; then the next one goes. Raises FileNotFoundError when the folder is
    gone.

    Args:
        path: the file, which is made if it does not exist.
        table: the name of its table.
        is_synced: whether each change is synced; otherwise a power cut may take the last ones.
    """

    def __init__(self, path: Path, table: str, *, is_synced: bool = True) -> None:
        if not path.parent.is_dir():  # the library's error of it is none of the system's
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path.parent))
        self._is_synced = is_synced
        try:
            super().__init__(str(path), table, encode=_encode, decode=_decode)
        except sqlite3.Error:
            self.close()
            raise

    def change(self, values: Mapping[str, object], without: Iterable[str] = ()) -> None:
        """Adds or replaces entries, and removes others; missing ones are ignored.

        The change is durable, as a whole, when the call returns.
        """
        self.update({key: (key, value) for key, value in values.items()})
        for key in without:
            if key in self:
                del self[key]
        self.commit()

    def _new_conn(self) -> "_Connection":
        return _Connection(self.filename, self._is_synced)


class _Connection:
    """What SqliteDict asks of a connection. It works in the thread that calls.

    The library's own has a thread, which a full disk ends: then each commit waits for ever. Here an error is raised
    where it happens, and the changes since the last commit are rolled back.
    """

    autocommit = False

    def __init__(self, filename: str, is_synced: bool) -> None:
        self._connection = sqlite3.connect(filename, check_same_thread=False)
        try:
            self.execute("PRAGMA journal_mode = WAL")
            self.execute(f"PRAGMA synchronous = {'FULL' if is_synced else 'NORMAL'}")
            if self.select_one("PRAGMA user_version") != (VERSION,):
                self.execute(f"PRAGMA user_version = {VERSION}")
        except sqlite3.Error:
            self._connection.close()
            raise

    def execute(self, statement: str, values: Iterable[Any] = ()) -> None:
        with _RollBack(self._connection):
            self._connection.execute(statement, tuple(values)).fetchall()  # a statement ends with its last row

    def executemany(self, statement: str, rows: Iterable[tuple[Any, ...]]) -> None:
        with _RollBack(self._connection):
            self._connection.executemany(statement, rows)

    def select(self, statement: str, values: Iterable[Any] = ()) -> Iterator[tuple[Any, ...]]:
        return iter(self._connection.execute(statement, tuple(values)).fetchall())

    def select_one(self, statement: str, values: Iterable[Any] = ()) -> tuple[Any, ...] | None:
        return next(self.select(statement, values), None)

    def commit(self, blocking: bool = True) -> None:
        with _RollBack(self._connection):
            self._connection.commit()

    def close(self, force: bool = False) -> None:
        self._connection.close()


class _RollBack:
    """An error within undoes the changes since the last commit."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None and self._connection.in_transaction:
            self._connection.rollback()


def read(path: Path, table: str, kind: type[Value]) -> list[Entry[Value]]:
    """Returns the entries of a file in the order in which they were added, without writing; none if there is no file.

    kind: the type of the values. Raises sqlite3.Error, and msgspec.DecodeError for a value of another type.
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
        bodies = [(key, unseal(key, value)) for key, value in rows]
    return [Entry(key, None if body is None else msgspec.msgpack.decode(body, type=kind)) for key, body in bodies]


def seal(key: str, body: bytes) -> bytes:
    """Returns what stands in the file for a body."""
    return _crc_of(key, body).to_bytes(CRC_SIZE, "big") + body


def unseal(key: object, value: object) -> bytes | None:
    """Returns the body of what stands in the file, None if key or value is corrupt."""
    if not isinstance(key, str) or not isinstance(value, bytes):
        return None
    body = value[CRC_SIZE:]
    return body if seal(key, body) == value else None


def _encode(entry: tuple[str, object]) -> bytes:
    key, value = entry
    return seal(key, msgspec.msgpack.encode(value))


def _decode(value: bytes) -> Any:
    return msgspec.msgpack.decode(value[CRC_SIZE:])


def _crc_of(key: str, body: bytes) -> int:
    return zlib.crc32(body, zlib.crc32(key.encode(errors="surrogateescape")))
