"""Finds the table of each row in a damaged file by the row's values, as no tree of pages can be trusted."""

import contextlib
import sqlite3
from collections.abc import Callable, Iterator
from typing import NamedTuple

from gateway.store.repair.pages import Pages
from gateway.store.repair.records import Record, Value, below, is_of_table, records

ENTRY_VALUES = 2  # of a primary key's index: the key, and the number of its row
TYPES: dict[str, type] = {"INTEGER": int, "TEXT": str, "BLOB": bytes}


class Table(NamedTuple):
    """A table's name and its columns' types; ``key`` is the column that stands for the rowid, if any.

    ``is_index`` if rows are only in the index of their primary key, ``has_index`` if they are in the table and in an
    index.
    """

    name: str
    types: tuple[tuple[type, ...], ...]
    key: int | None
    is_index: bool
    has_index: bool

    def row_of(self, record: Record) -> tuple[Value, ...] | None:
        """Returns a record as a row of this table, None if it does not fit."""
        if len(record.values) != len(self.types) or (record.rowid is None) != self.is_index:
            return None
        values = list(record.values)
        if self.key is not None:
            if values[self.key] is not None:
                return None
            values[self.key] = record.rowid
        fits = all(isinstance(value, allowed) for value, allowed in zip(values, self.types, strict=True))
        return tuple(values) if fits else None


class Salvage:
    """Reads the whole rows of a file.

    When ``rows`` is exhausted, ``damaged_rows`` counts the rows that are not whole, ``damaged_pages`` the pages that
    belong to nothing.

    Args:
        pages: the file.
        make: makes the same tables in an empty database.
    """

    def __init__(self, pages: Pages, make: Callable[[sqlite3.Connection], object]) -> None:
        self.damaged_rows = 0
        self.damaged_pages = 0
        self._pages = pages
        self._entries: set[tuple[Value, ...]] = set()  # in the indexes of primary keys
        self._knows_indexes = False
        self._tables = tables_of(make)
        self._free = pages.free()

    def rows(self) -> Iterator[tuple[str, tuple[Value, ...]]]:
        """Yields table and row of every whole row."""
        used: set[int] = set()
        copies = self._copies()
        doubtful: list[tuple[str, tuple[Value, ...]]] = []
        for number in range(1, self._pages.count + 1):
            if number in self._free or number in copies:
                continue
            for record in records(self._pages, number, used):
                if record is None:
                    self.damaged_rows += 1
                elif found := self._row_of(record):
                    if self._knows_indexes or record.rowid is not None or len(record.values) != ENTRY_VALUES:
                        yield found
                    else:
                        doubtful.append(found)
        in_use = self._pages.expected_count - len(self._free | copies)
        self.damaged_pages = max(0, in_use - len(used - self._free - copies))
        if self.damaged_pages <= 1:  # all rows are known that tell an index entry from a table's row
            yield from (found for found in doubtful if found[1] not in self._entries)

    def _row_of(self, record: Record) -> tuple[str, tuple[Value, ...]] | None:
        for table in self._tables:
            if (row := table.row_of(record)) is not None:
                if table.has_index and record.rowid is not None:
                    self._entries.add((row[0], record.rowid))
                return table.name, row
        return None

    def _copies(self) -> set[int]:
        """Returns the pages of indexes: their entries are in the tables as well."""
        found: set[int] = set()
        schema = self._schema()
        self._knows_indexes = all(is_of_table(self._pages, number) for number in schema)
        said = [record for number in schema for record in records(self._pages, number, set())]
        roots = [record.values[3] for record in said if record and _is_index(record)]
        while roots:
            number = roots.pop()
            if isinstance(number, int) and number not in found and self._pages[number]:
                found.add(number)
                roots += below(self._pages, number)
        return found

    def _schema(self) -> list[int]:
        """Returns the pages of the schema table."""
        found = [1]
        for number in found:
            found += [one for one in below(self._pages, number) if one not in found]
        return found


def tables_of(make: Callable[[sqlite3.Connection], object]) -> list[Table]:
    """Returns the tables that ``make`` makes."""
    with contextlib.closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        make(connection)
        found = connection.execute("SELECT name, wr FROM pragma_table_list WHERE name NOT LIKE 'sqlite%'").fetchall()
        return [_table(connection, name, bool(is_index)) for name, is_index in found]


def _table(connection: sqlite3.Connection, name: str, is_index: bool) -> Table:
    types: list[tuple[type, ...]] = []
    key = None
    has_index = False
    columns = connection.execute(f"PRAGMA table_info({name})").fetchall()
    is_key_one = sum(bool(primary) for *_, primary in columns) == 1
    for number, _, kind, is_not_null, _, primary in columns:
        types.append((TYPES[kind],) if is_not_null or primary else (TYPES[kind], type(None)))
        if primary and not is_index:
            key, has_index = (number, False) if kind == "INTEGER" and is_key_one else (None, True)
    return Table(name, tuple(types), key, is_index, has_index)


def _is_index(record: Record) -> bool:
    return len(record.values) == 5 and record.values[0] == "index"
