"""Rows of a database: how they are read, and the checksum in the last column that tells whether the medium changed
them.

A statement that has not been read to its end keeps the connection's view of the database as it was when it began, for
all later statements. So each statement is ended here, not when Python frees it. If a schema is corrupt, SQLite's names
may not be text.
"""

import contextlib
import sqlite3
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from gateway.errors import damaged_page

Row = tuple[Any, ...]
SQL_NAME = "crc_of_all"


def crc_of(*values: Any) -> int:
    """Returns the CRC-32 of a row's other columns, as a MessagePack array."""
    return zlib.crc32(msgspec.msgpack.encode(values))


def sealed(row: Row) -> Row:
    """Returns a row with its checksum appended."""
    return (*row, crc_of(*row))


def is_whole(row: Row) -> bool:
    """Whether a row is as it was stored."""
    try:
        return crc_of(*row[:-1]) == row[-1]
    except UnicodeEncodeError:  # its text is no longer text
        return False


def add_to_sql(connection: sqlite3.Connection) -> None:
    """Makes the checksum available to SQL statements."""
    connection.create_function(SQL_NAME, -1, crc_of)


def find_corrupt(connection: sqlite3.Connection, table: str) -> str:
    """Returns the query that finds the corrupt rows of a sealed table, by its columns in an open database."""
    columns = [name for _, name, *_ in connection.execute(f"PRAGMA table_info({table})")]
    return f"SELECT 1 FROM {table} WHERE {columns[-1]} != {SQL_NAME}({', '.join(columns[:-1])})"


def take_out_corrupt(connection: sqlite3.Connection, table: str) -> list[Row]:
    """Deletes the corrupt rows of a table and returns them; text in them is bytes."""
    connection.text_factory = lambda text: text.decode(errors="surrogateescape")
    try:
        rows = connection.execute(f"SELECT rowid, * FROM {table}").fetchall()
    finally:
        connection.text_factory = str
    corrupt = [row for row in rows if not is_whole(row[1:])]
    connection.executemany(f"DELETE FROM {table} WHERE rowid = ?", ((row[0],) for row in corrupt))
    return [tuple(map(_bytes_of, row[1:])) for row in corrupt]


def _bytes_of(value: Any) -> Any:
    return value.encode(errors="surrogateescape") if isinstance(value, str) else value


def first_row(connection: sqlite3.Connection, query: str, values: tuple[Any, ...] = ()) -> Any:
    """Returns the first row of a query, None if there is none."""
    with contextlib.closing(connection.execute(query, values)) as rows:
        return rows.fetchone()


@contextlib.contextmanager
def open_for_reading(path: Path) -> Iterator[sqlite3.Connection]:
    """Opens a database without writing to it; other processes may write. Raises sqlite3.Error."""
    with contextlib.closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as connection:
        read_schema(connection)
        yield connection


@contextlib.contextmanager
def open_at_rest(path: Path) -> Iterator[sqlite3.Connection]:
    """Opens a database that no process uses, without making a WAL beside it. Raises sqlite3.Error.

    SQLite would make one if the database is in WAL mode and has none; it would belong to the user of this process.
    """
    wal = path.with_name(f"{path.name}-wal")
    how = "" if wal.exists() and wal.stat().st_size else "&immutable=1"
    with contextlib.closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro{how}", uri=True)) as connection:
        read_schema(connection)
        yield connection


def read_schema(connection: sqlite3.Connection) -> int:
    """Reads the schema, as SQLite does before most statements; returns its number of entries. Raises sqlite3.Error."""
    try:
        return int(first_row(connection, "SELECT count(*) FROM sqlite_schema")[0])
    except UnicodeDecodeError as error:  # Python's: its message quotes the schema
        raise damaged_page("malformed database schema") from error
