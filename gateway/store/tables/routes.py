"""The table ``route``: each route that has a cursor, also if it is no longer configured.

A new store, a repaired one and a copy each have an epoch of their own. A session that began under another epoch may
have QoS 2 packet identifiers that mean other messages to the next broker, so such a session is not resumed.
"""

import sqlite3
from collections.abc import Callable

import msgspec

from gateway.store.sqlite.rows import sealed

SCHEMA = """
CREATE TABLE route (
    consumer TEXT PRIMARY KEY,
    epoch INTEGER NOT NULL,
    filters BLOB NOT NULL,
    crc INTEGER NOT NULL
) STRICT;
"""
SAVE = "INSERT OR REPLACE INTO route VALUES (?, ?, ?, ?)"
REMOVE = "DELETE FROM route WHERE consumer = ?"
LOAD = "SELECT consumer, epoch, filters FROM route ORDER BY consumer"

Write = Callable[[sqlite3.Connection], None]


class RouteRow(msgspec.Struct, frozen=True):
    """One row.

    ``epoch`` is the store's when the route's session at the next broker began, 0 if none has begun. ``filters`` are the
    topic filters of the messages that the route takes.
    """

    consumer: str
    epoch: int
    filters: tuple[str, ...]


def load(connection: sqlite3.Connection) -> dict[str, RouteRow]:
    """Returns the rows by consumer."""
    rows = (
        RouteRow(consumer, epoch, msgspec.msgpack.decode(filters, type=tuple[str, ...]))
        for consumer, epoch, filters in connection.execute(LOAD)
    )
    return {row.consumer: row for row in rows}


def save(row: RouteRow) -> Write:
    """Returns the work that writes a row."""
    columns = sealed((row.consumer, row.epoch, msgspec.msgpack.encode(row.filters)))

    def write(connection: sqlite3.Connection) -> None:
        connection.execute(SAVE, columns)

    return write


def remove(consumer: str) -> Write:
    """Returns the work that removes a row."""

    def write(connection: sqlite3.Connection) -> None:
        connection.execute(REMOVE, (consumer,))

    return write
