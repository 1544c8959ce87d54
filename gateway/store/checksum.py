"""Rows with a checksum of their own in the last column: by it a row is known that the medium has changed."""

import sqlite3
import zlib
from typing import Any

import msgspec

Row = tuple[Any, ...]
SQL_NAME = "crc_of_all"


def crc_of(*values: Any) -> int:
    """Returns the CRC-32 of the other columns of a row, as a MessagePack array."""
    return zlib.crc32(msgspec.msgpack.encode(values))


def sealed(row: Row) -> Row:
    """Returns a row with its checksum behind it."""
    return (*row, crc_of(*row))


def is_whole(row: Row) -> bool:
    """Whether a row is as it was stored."""
    try:
        return crc_of(*row[:-1]) == row[-1]
    except UnicodeEncodeError:  # its text is none any more
        return False


def add_to_sql(connection: sqlite3.Connection) -> None:
    """Statements may call it from now on."""
    connection.create_function(SQL_NAME, -1, crc_of)


def take_out_spoilt(connection: sqlite3.Connection, table: str) -> list[Row]:
    """Returns the rows of a table that are not as they were stored, and deletes them; text in them is bytes."""
    connection.text_factory = lambda text: text.decode(errors="surrogateescape")
    try:
        rows = connection.execute(f"SELECT rowid, * FROM {table}").fetchall()
    finally:
        connection.text_factory = str
    spoilt = [row for row in rows if not is_whole(row[1:])]
    connection.executemany(f"DELETE FROM {table} WHERE rowid = ?", ((row[0],) for row in spoilt))
    return [tuple(map(_bytes_of, row[1:])) for row in spoilt]


def _bytes_of(value: Any) -> Any:
    return value.encode(errors="surrogateescape") if isinstance(value, str) else value
