"""The tables of the store's file, and how it says whose it is and of which version."""

import sqlite3

from gateway.store import (
    consumers,
    damage,
    drops,
    endings,
    flows,
    gaps,
    groups,
    identity,
    incoming,
    retained,
    sessions,
    wal,
    wills,
)
from gateway.store.reading import first_row, read_schema

APPLICATION_ID = 0x486F4664  # "HoFd", so that file(1) and we know whose database this is
SCHEMA_VERSION = 7
STATE_TABLES = """SELECT name FROM sqlite_schema
    WHERE type = 'table' AND name NOT IN ('message_group', 'retained') AND name NOT LIKE 'sqlite_%'"""
ROW_OVERHEAD = 12  # bytes besides the columns
PAGES_PER_BYTE = 2  # a long key has a page of an index to itself, and other pages are two thirds full
TABLES = f"""
{identity.SCHEMA}
{groups.SCHEMA}
{gaps.SCHEMA}
{consumers.SCHEMA}
{sessions.SCHEMA}
{endings.SCHEMA}
{incoming.SCHEMA}
{flows.SCHEMA}
{retained.SCHEMA}
{wills.SCHEMA}
{drops.SCHEMA}
{damage.SCHEMA}
PRAGMA application_id = {APPLICATION_ID};
PRAGMA user_version = {SCHEMA_VERSION};
"""


def version_of(connection: sqlite3.Connection) -> int:
    """Returns the version of a store's file, 0 for one that is new; writes nothing.

    Raises:
        sqlite3.DatabaseError: it is damaged, of another program, or of another version.
    """
    found = read_schema(connection)
    (application_id,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if not found:
        return 0
    if application_id != APPLICATION_ID:
        raise sqlite3.DatabaseError("not a message store")
    if version != SCHEMA_VERSION:
        raise sqlite3.DatabaseError(
            f"of version {version}, and this gateway reads version {SCHEMA_VERSION}: "
            "let the one that made it send on what is in it, then begin with an empty folder"
        )
    return int(version)


def make(connection: sqlite3.Connection) -> None:
    """Makes the tables of a new store, which gets an epoch of its own."""
    connection.execute(f"PRAGMA page_size = {wal.OURS}")
    connection.executescript(f"BEGIN; {TABLES}")
    identity.make(connection)
    connection.execute("COMMIT")


def size_of_state(connection: sqlite3.Connection) -> int:
    """Returns the bytes of pages, roughly, of all tables but those of messages and retained messages; reads them."""
    size = 0
    for (table,) in connection.execute(STATE_TABLES).fetchall():
        columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table})").fetchall()]
        copies = 1 + sum(row[3] == "c" for row in connection.execute(f"PRAGMA index_list({table})").fetchall())
        lengths = " + ".join(f"length({column})" for column in columns)
        size += copies * int(first_row(connection, f"SELECT total({lengths} + {ROW_OVERHEAD}) FROM {table}")[0])
    return PAGES_PER_BYTE * size
