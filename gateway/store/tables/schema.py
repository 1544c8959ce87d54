"""All tables of the store's file, and the marks by which it is known as a message store of a version."""

import contextlib
import sqlite3
from collections.abc import Iterable

from gateway.store.sqlite import marks, rows, wal
from gateway.store.sqlite.rows import first_row, read_schema
from gateway.store.tables import (
    connectors,
    cursors,
    damage,
    drops,
    endings,
    log_rows,
    qos2,
    refused,
    retained,
    routes,
    seen,
    sessions,
    wills,
)

SEALED = (
    "cursor",
    "ending",
    "identity",
    "read_to",
    "refused",
    "retained",
    "route",
    "seen",
    "seen_digest",
    "session",
    "taken_command",
    "unsent",
    "will",
)
"""The tables with a checksum in the last column of each row [gateway.store.sqlite.rows]."""

APPLICATION_ID = 0x486F4664  # "HoFd", by which file(1) and a start know the database
SCHEMA_VERSION = 9
OLDEST = 7
"""The version of the first builds of 0.1.0. A start upgrades it and later ones: [gateway.store.tables.upgrade]."""
LATER = SCHEMA_VERSION + 1
SINCE = {
    "refused": 8,
    "route": 8,
    "seen": 9,
    "seen_digest": LATER,
    "released": LATER,
    "read_to": LATER,
    "taken_command": LATER,
    "unsent": LATER,
}
"""The versions that brought tables; LATER for tables that the first stores of this version lack. A start makes them."""
LATER_TABLES = (
    qos2.RELEASED_SCHEMA,
    seen.DIGEST_SCHEMA,
    connectors.READ_TO_SCHEMA,
    connectors.TAKEN_SCHEMA,
    routes.UNSENT_SCHEMA,
)
"""Makes these, where they are not there."""
HAS_TABLE = "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = ?"
STATE_TABLES = """SELECT name FROM sqlite_schema
    WHERE type = 'table' AND name NOT IN ('message_group', 'retained') AND name NOT LIKE 'sqlite_%'"""
ROW_OVERHEAD = 12  # bytes besides the columns
PAGES_PER_BYTE = 2  # a long key fills an index page alone, and other pages are two thirds full
TABLES = f"""
{marks.SCHEMA}
{log_rows.SCHEMA}
{cursors.SCHEMA}
{sessions.SCHEMA}
{endings.SCHEMA}
{qos2.SCHEMA}
{qos2.RELEASED_SCHEMA};
{connectors.READ_TO_SCHEMA};
{connectors.TAKEN_SCHEMA};
{retained.SCHEMA}
{wills.SCHEMA}
{drops.SCHEMA}
{damage.SCHEMA}
{refused.SCHEMA}
{routes.SCHEMA}
{routes.UNSENT_SCHEMA}
{seen.SCHEMA}
PRAGMA application_id = {APPLICATION_ID};
PRAGMA user_version = {SCHEMA_VERSION};
"""


def version_of(connection: sqlite3.Connection) -> int:
    """Returns the version of a store's file, which a start can upgrade to this one, 0 if it is new; writes nothing.

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
    if not OLDEST <= version <= SCHEMA_VERSION:
        which = "a later gateway made it" if version > SCHEMA_VERSION else "it is older than the first release"
        raise sqlite3.DatabaseError(
            f"of version {version}, and this gateway reads versions {OLDEST} to {SCHEMA_VERSION}: {which}, "
            "so let the gateway that made it send on what is in it, then begin with an empty folder"
        )
    return int(version)


def make(connection: sqlite3.Connection) -> None:
    """Makes the tables of a new store, with an epoch of its own."""
    connection.execute(f"PRAGMA page_size = {wal.PAGE_SIZE}")
    connection.executescript(f"BEGIN; {TABLES}")
    marks.make(connection)
    connection.execute("COMMIT")


def missing_tables(connection: sqlite3.Connection, names: Iterable[str]) -> list[str]:
    """Returns which of the tables a store's file lacks that its version has. Raises sqlite3.Error."""
    (version,) = first_row(connection, "PRAGMA user_version")
    present = {name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall()}
    return sorted(name for name in names if name not in present and version >= SINCE.get(name, OLDEST))


def has_corrupt_row(connection: sqlite3.Connection) -> bool:
    """Whether a row of the log or of a sealed table is not as it was stored. Reads all of these rows.

    Raises sqlite3.Error, also if a table has other columns than those of a new store.
    """
    log_rows.add_to_sql(connection)
    rows.add_to_sql(connection)
    with contextlib.closing(sqlite3.connect(":memory:", isolation_level=None)) as new:
        make(new)
        (version,) = first_row(connection, "PRAGMA user_version")
        described = new if version == SCHEMA_VERSION else connection  # the columns of an earlier version are its own
        lacking = {name for name in SINCE if first_row(connection, HAS_TABLE, (name,)) is None}
        sealed = [table for table in SEALED if table not in lacking]
        queries = [log_rows.FIND_CORRUPT, *(rows.find_corrupt(described, table) for table in sealed)]
    return connection.execute(f"{' UNION ALL '.join(queries)} LIMIT 1").fetchone() is not None


def size_of_state(connection: sqlite3.Connection) -> int:
    """Returns the bytes of pages, roughly, of all tables but messages and retained messages. Reads all their rows."""
    size = 0
    for (table,) in connection.execute(STATE_TABLES).fetchall():
        columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table})").fetchall()]
        copies = 1 + sum(row[3] == "c" for row in connection.execute(f"PRAGMA index_list({table})").fetchall())
        lengths = " + ".join(f"length({column})" for column in columns)
        size += copies * int(first_row(connection, f"SELECT total({lengths} + {ROW_OVERHEAD}) FROM {table}")[0])
    return PAGES_PER_BYTE * size
