"""A database that is only read, and its schema: where that is spoilt, what SQLite says of it may be no text."""

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def open_for_reading(path: Path) -> Iterator[sqlite3.Connection]:
    """Opens a database without writing to it; other processes may. Raises sqlite3.Error."""
    with contextlib.closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as connection:
        check_schema(connection)
        yield connection


def check_schema(connection: sqlite3.Connection) -> None:
    """Reads the schema, as SQLite does before most statements. Raises sqlite3.Error."""
    try:
        connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    except UnicodeDecodeError as error:  # Python's: its message quotes the schema
        damage = sqlite3.DatabaseError("malformed database schema")
        damage.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
        raise damage from error
