"""The table ``cursor``: the place of each durable consumer in the log."""

import sqlite3
from collections.abc import Callable

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
SESSION_PREFIX, GROUP_PREFIX = "session/", "share/"
"""How the names of the consumers of sessions and of share groups begin."""

BACKFILL_PREFIX = "backfill/"
"""Begins the name of the place of a route's backfill, before the route's own name."""

LOST = ""
"""The name of a row for consumers whose own row is corrupt: each of them goes on at the place of this row.

It is the oldest message that is left. The start removes the row, once every session has its cursor again.
"""

Place = tuple[int, int]
"""A cursor's durable state: (position, count)."""


def load(connection: sqlite3.Connection) -> dict[str, Place]:
    """Returns the places by consumer."""
    rows = connection.execute("SELECT consumer, position, count FROM cursor")
    return {consumer: (position, count) for consumer, position, count in rows}


def remove(consumer: str) -> Callable[[sqlite3.Connection], None]:
    """Returns the work that removes a consumer's place from the file."""

    def write(connection: sqlite3.Connection) -> None:
        connection.execute(REMOVE, (consumer,))

    return write
