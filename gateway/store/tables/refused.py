"""The table ``refused``: messages that a route has set aside, because its next broker will never take them.

A row names the message by its position; the message itself stays in the log until the row is removed.
"""

import sqlite3
from collections.abc import Callable

import msgspec

from gateway.store.sqlite.rows import sealed

SCHEMA = """
CREATE TABLE refused (
    consumer TEXT NOT NULL,
    position INTEGER NOT NULL,
    reason TEXT NOT NULL,
    refused_ms INTEGER NOT NULL,
    via TEXT NOT NULL,
    crc INTEGER NOT NULL,
    PRIMARY KEY (consumer, position)
) STRICT;
"""
SAVE = "INSERT OR REPLACE INTO refused VALUES (?, ?, ?, ?, ?, ?)"
REMOVE = "DELETE FROM refused WHERE consumer = ? AND position = ?"
LOAD = "SELECT consumer, position, reason, refused_ms, via FROM refused ORDER BY position"

Write = Callable[[sqlite3.Connection], None]


class RefusedRow(msgspec.Struct, frozen=True):
    """One row.

    ``refused_ms`` is the Unix time at which the message was set aside, ``via`` its route number, empty for none.
    """

    consumer: str
    position: int
    reason: str
    refused_ms: int
    via: str = ""


def load(connection: sqlite3.Connection) -> list[RefusedRow]:
    """Returns the rows, the oldest message first."""
    return [RefusedRow(*row) for row in connection.execute(LOAD)]


def save(row: RefusedRow) -> Write:
    """Returns the work that writes a row."""

    def write(connection: sqlite3.Connection) -> None:
        connection.execute(SAVE, sealed(msgspec.structs.astuple(row)))

    return write


def remove(consumer: str, position: int) -> Write:
    """Returns the work that removes a row."""

    def write(connection: sqlite3.Connection) -> None:
        connection.execute(REMOVE, (consumer, position))

    return write
