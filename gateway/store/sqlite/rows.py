"""Reading a database.

A statement that is not at its end keeps what the connection sees as it was when it began, for those that follow, too:
it is ended here, and not when nobody happens to refer to it any more. And where a schema is spoilt, what SQLite says of
it may be no text.
"""

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def first_row(connection: sqlite3.Connection, query: str, values: tuple[Any, ...] = ()) -> Any:
    """Returns the first row, None where there is none."""
    with contextlib.closing(connection.execute(query, values)) as rows:
        return rows.fetchone()


@contextlib.contextmanager
def open_for_reading(path: Path) -> Iterator[sqlite3.Connection]:
    """Opens a database without writing to it; other processes may. Raises sqlite3.Error."""
    with contextlib.closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as connection:
        read_schema(connection)
        yield connection


@contextlib.contextmanager
def open_at_rest(path: Path) -> Iterator[sqlite3.Connection]:
    """Opens a database that no process uses, without making a WAL beside it. Raises sqlite3.Error.

    SQLite makes one beside a file that is to have one and has none; it would be of the user of this process.
    """
    wal = path.with_name(f"{path.name}-wal")
    how = "mode=ro" if wal.exists() and wal.stat().st_size else "immutable=1"
    with contextlib.closing(sqlite3.connect(f"{path.resolve().as_uri()}?{how}", uri=True)) as connection:
        read_schema(connection)
        yield connection


def read_schema(connection: sqlite3.Connection) -> int:
    """Reads the schema, as SQLite does before most statements; returns how much is in it. Raises sqlite3.Error."""
    try:
        return int(first_row(connection, "SELECT count(*) FROM sqlite_schema")[0])
    except UnicodeDecodeError as error:  # Python's: its message quotes the schema
        damage = sqlite3.DatabaseError("malformed database schema")
        damage.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
        raise damage from error
