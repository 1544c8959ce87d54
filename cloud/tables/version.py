"""Makes the tables that do not exist yet, and refuses tables of another version."""

from cloud.tables.schema import ARRIVALS, CHECKS, LANDING_FILES, TABLES, VERSION, VERSION_PROPERTY, Table
from cloud.tables.tables import Tables

_NOT_NEEDED = (LANDING_FILES, ARRIVALS, CHECKS)


class NewerTables(Exception):
    """The tables have a version that this program does not know. Nothing was written."""


class OlderTables(Exception):
    """The tables have an earlier version, or some do not exist yet. Nothing was written."""


def require_current(tables: Tables) -> None:
    """Raises OlderTables or NewerTables unless each table is there and has VERSION, for a command that only looks.

    Raises FileNotFoundError when a table is gone, as `complete` does.
    """
    _refuse_others(tables)
    if missing := [table.name for table in TABLES if not tables.exists(table) and table is not CHECKS]:
        raise OlderTables(
            f"the tables in {tables.folder} are not all there yet: {', '.join(missing)}; this command changes no "
            "table, and a run of `holdfast cloud ingest` makes them"
        )


def complete(tables: Tables) -> None:
    """Makes the tables that do not exist yet. Raises NewerTables, OlderTables, and FileNotFoundError when a table is
    gone.

    It may be killed at any time: the next run makes the tables that are left.
    """
    _refuse_others(tables)
    tables.create_missing()


def _refuse_others(tables: Tables) -> None:
    versions = {table.name: _version(tables, table) for table in TABLES if tables.exists(table)}
    if newer := [name for name, version in versions.items() if version > VERSION]:
        raise NewerTables(f"the tables {', '.join(newer)} were written by a later version of Holdfast")
    if older := [name for name, version in versions.items() if version < VERSION]:
        raise OlderTables(
            f"the tables {', '.join(older)} in {tables.folder} are of schema version "
            f"{min(versions.values())}, and this is {VERSION}: make all tables anew with `holdfast cloud rebuild`"
        )
    _refuse_lost(tables)


def _refuse_lost(tables: Tables) -> None:
    """Raises FileNotFoundError if a table is gone beside others with rows. An empty one in its place would hide that.

    The job finds the rows of `landing_files` again, does what it does without those of `arrivals`, and no answer needs
    those of `checks`.
    """
    lost = [one.name for one in TABLES if not tables.exists(one) and one not in _NOT_NEEDED]
    if lost and any(tables.files(table) for table in TABLES):
        raise FileNotFoundError(
            f"the table {', '.join(lost)} is gone from {tables.folder}, and others with rows are there: "
            "bring it back from a copy, or make all tables anew with `holdfast cloud rebuild`"
        )


def _version(tables: Tables, table: Table) -> int:
    return int(tables.stored(table).metadata.configuration.get(VERSION_PROPERTY, 1))
