"""Packet identifiers of QoS 2 messages that have come in and are not released [section 4.3.3].

One is written in the transaction of its message, so that after a crash a PUBLISH that comes again is known.
"""

import sqlite3
from collections.abc import Callable

SCHEMA = """
CREATE TABLE incoming (
    session TEXT NOT NULL,
    packet_identifier INTEGER NOT NULL,
    PRIMARY KEY (session, packet_identifier)
) STRICT, WITHOUT ROWID;
"""

ADD = "INSERT OR IGNORE INTO incoming VALUES (?, ?)"
REMOVE = "DELETE FROM incoming WHERE session = ? AND packet_identifier = ?"
REMOVE_ALL = "DELETE FROM incoming WHERE session = ?"

Write = Callable[[sqlite3.Connection], None]


def load(connection: sqlite3.Connection) -> dict[str, set[int]]:
    """Returns the identifiers by session."""
    found: dict[str, set[int]] = {}
    for session, packet_identifier in connection.execute("SELECT session, packet_identifier FROM incoming"):
        found.setdefault(session, set()).add(packet_identifier)
    return found


def add(session: str, packet_identifiers: list[int]) -> Write:
    return lambda connection: _write(connection, ADD, session, packet_identifiers)


def remove(session: str, packet_identifiers: list[int]) -> Write:
    return lambda connection: _write(connection, REMOVE, session, packet_identifiers)


def remove_all(session: str) -> Write:
    """A session is no more."""

    def write(connection: sqlite3.Connection) -> None:
        connection.execute(REMOVE_ALL, (session,))

    return write


def _write(connection: sqlite3.Connection, statement: str, session: str, packet_identifiers: list[int]) -> None:
    connection.executemany(statement, [(session, packet_identifier) for packet_identifier in packet_identifiers])
