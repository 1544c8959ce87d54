"""Brings the tables of a store that an earlier release made to those of this one, in one transaction.

The first builds of 0.1.0 made version 7. Since then tables have got columns, and there are new tables, which begin
empty. The rows from before get a value in each new column that says what was so then; their other columns stay as they
are.
"""

import re
import sqlite3
from typing import Any

import msgspec

from gateway.store.sqlite.rows import is_whole, sealed
from gateway.store.tables import qos2, refused, routes, schema, seen
from gateway.store.tables.routes import UNKNOWN_FILTERS

WITHOUT_ROUTES = 7
"""The last version without the table ``route``: a route's session at its next broker always went on."""
ROUTES = "SELECT consumer FROM cursor WHERE consumer LIKE 'route/%' ORDER BY consumer"
EPOCH = "SELECT epoch FROM identity"

NONE, EMPTY = msgspec.msgpack.encode(()), msgspec.msgpack.encode({})
TABLES: dict[str, tuple[str, dict[str, Any]]] = {
    "flow": (qos2.SCHEMA, {"ranges": qos2.encode_ranges(()), "via": ""}),
    "refused": (refused.SCHEMA, {"via": ""}),
    "route": (routes.SCHEMA, {"numberings": EMPTY, "backfill": NONE}),
    "seen": (seen.SCHEMA, {}),
}
"""The tables that have changed since the oldest version: how a new store has them, and the values of new columns."""
SEALED = ("refused", "route")


def prepare(connection: sqlite3.Connection) -> int:
    """Brings a store's tables to this version; returns the version that it had, 0 if it is new.

    A power cut leaves the store as it was, or upgraded. It makes no table of a new store. The connection has no open
    transaction. Raises sqlite3.Error.
    """
    version = schema.version_of(connection)
    if version in (0, schema.SCHEMA_VERSION):
        return version
    connection.execute("BEGIN IMMEDIATE")
    try:
        for table, (statements, values) in TABLES.items():
            _bring(connection, table, statements, values)
        for statement in schema.LATER_TABLES:
            connection.execute(statement)
        if version <= WITHOUT_ROUTES:
            _note_sessions(connection)
        connection.execute(f"PRAGMA user_version = {schema.SCHEMA_VERSION}")
        connection.execute("COMMIT")
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    return version


def _bring(connection: sqlite3.Connection, table: str, statements: str, values: dict[str, Any]) -> None:
    """Makes a table as a new store has it, with its rows in their order."""
    before = _columns(connection, table)
    if before:
        missing = [column for column in values if column not in before]
        if not missing:
            return
        rows = connection.execute(f"SELECT * FROM {table} ORDER BY rowid").fetchall()
        connection.execute(f"DROP TABLE {table}")
    for statement in re.findall(rf"CREATE (?:TABLE {table}|INDEX \w+ ON {table}) [^;]*", statements):
        connection.execute(statement)
    if not before:
        return
    columns = _columns(connection, table)
    marks = ", ".join("?" * len(columns))
    found = (_with(row, before, columns, values, is_sealed=table in SEALED) for row in rows)
    connection.executemany(f"INSERT INTO {table} VALUES ({marks})", found)


def _with(
    row: tuple[Any, ...], before: list[str], columns: list[str], values: dict[str, Any], *, is_sealed: bool
) -> tuple[Any, ...]:
    """Returns a row with the values of new columns. The checksum of a corrupt row stays wrong."""
    named = values | dict(zip(before, row, strict=True))
    found = tuple(named[column] for column in columns)
    return sealed(found[:-1]) if is_sealed and is_whole(row) else found


def _note_sessions(connection: sqlite3.Connection) -> None:
    """Notes for each route that its session began with this store, so that its QoS 2 messages in flight go on."""
    (epoch,) = connection.execute(EPOCH).fetchone()
    for (consumer,) in connection.execute(ROUTES).fetchall():
        routes.save(routes.RouteRow(consumer, epoch, UNKNOWN_FILTERS))(connection)


def _columns(connection: sqlite3.Connection, table: str) -> list[str]:
    """Returns the names of a table's columns, none if there is no such table."""
    return [name for _, name, *_ in connection.execute(f"PRAGMA table_info({table})")]
