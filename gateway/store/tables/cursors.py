"""The table ``cursor``: the place of each durable consumer in the log."""

import sqlite3
from collections.abc import Callable

from gateway.store.sqlite.rows import sealed

SCHEMA = """
CREATE TABLE cursor (
    consumer TEXT PRIMARY KEY,
    position INTEGER NOT NULL,
    count INTEGER NOT NULL,
    crc INTEGER NOT NULL
) STRICT;
"""
SAVE = "INSERT OR REPLACE INTO cursor VALUES (?, ?, ?, ?)"
REMOVE = "DELETE FROM cursor WHERE consumer = ?"

Place = tuple[int, int]
"""A cursor's durable state: (position, count)."""


def load(connection: sqlite3.Connection) -> dict[str, Place]:
    """Returns the places by consumer."""
    rows = connection.execute("SELECT consumer, position, count FROM cursor")
    return {consumer: (position, count) for consumer, position, count in rows}


def save(consumer: str, position: int) -> Callable[[sqlite3.Connection], None]:
    """Returns the work that writes the place of what has no count of messages."""
    columns = sealed((consumer, position, 0))

    def write(connection: sqlite3.Connection) -> None:
        connection.execute(SAVE, columns)

    return write


def remove(consumer: str) -> Callable[[sqlite3.Connection], None]:
    """Returns the work that removes a consumer's place from the file."""

    def write(connection: sqlite3.Connection) -> None:
        connection.execute(REMOVE, (consumer,))

    return write
