"""Up to when each source of a connector was read: all that it said before is stored, or is in a gap that was told."""

import sqlite3
from collections.abc import Callable

from gateway.store.sqlite.rows import sealed

SCHEMA = """
CREATE TABLE IF NOT EXISTS read_to (
    source TEXT PRIMARY KEY,
    read_ms INTEGER NOT NULL,
    crc INTEGER NOT NULL
) STRICT
"""

SAVE = "INSERT OR REPLACE INTO read_to VALUES (?, ?, ?)"


def load(connection: sqlite3.Connection) -> dict[str, int]:
    """Returns the Unix time in ms of each source."""
    return dict(connection.execute("SELECT source, read_ms FROM read_to").fetchall())


def save(source: str, read_ms: int) -> Callable[[sqlite3.Connection], None]:
    """Returns the work that notes up to when a source was read; it goes with the messages that were read."""
    columns = sealed((source, read_ms))

    def write(connection: sqlite3.Connection) -> None:
        connection.execute(SAVE, columns)

    return write
