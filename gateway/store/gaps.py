"""How many messages were taken out of the middle of the log: what positions alone cannot tell."""

import sqlite3
from bisect import bisect_left, bisect_right
from collections.abc import Iterable

SCHEMA = """
CREATE TABLE compacted (
    last INTEGER PRIMARY KEY,
    gone INTEGER NOT NULL
) STRICT;
"""
LOAD = "SELECT last, gone FROM compacted ORDER BY last"
FORGET = "DELETE FROM compacted WHERE last > ? AND last <= ?"
NOTE = "INSERT INTO compacted VALUES (?, ?)"
TRIM = "DELETE FROM compacted WHERE last <= ?"


def load(connection: sqlite3.Connection) -> list[tuple[int, int]]:
    """Returns (last position, messages that are gone) of each row out of which some were taken, in order."""
    return connection.execute(LOAD).fetchall()


def note(connection: sqlite3.Connection, first: int, last: int, gone: int) -> None:
    """One row has the positions from one to another now, and so many of its messages are gone."""
    connection.execute(FORGET, (first - 1, last))
    connection.execute(NOTE, (last, gone))


class Gaps:
    """The rows out of which messages were taken.

    Args:
        rows: those in the file, in order: last position, messages that are gone.
    """

    def __init__(self, rows: Iterable[tuple[int, int]] = ()) -> None:
        self._lasts: list[int] = []
        self._gone: list[int] = []  # of each of these
        for last, gone in rows:
            self._lasts.append(last)
            self._gone.append(gone)
        self._total = sum(self._gone)

    def note(self, first: int, last: int, gone: int) -> None:
        """One row has the positions from one to another now, and so many of its messages are gone."""
        begin, end = bisect_left(self._lasts, first), bisect_right(self._lasts, last)
        self._total += gone - sum(self._gone[begin:end])
        self._lasts[begin:end] = [last]
        self._gone[begin:end] = [gone]

    def trim(self, position: int) -> None:
        """The rows up to a position are deleted."""
        end = bisect_right(self._lasts, position)
        self._total -= sum(self._gone[:end])
        del self._lasts[:end], self._gone[:end]

    def behind(self, position: int) -> int:
        """Returns how many messages are gone behind a position.

        Where the position is inside a row, these may be too many, by no more than the messages that are left there.
        """
        found = self._total
        for last, gone in zip(self._lasts, self._gone, strict=True):
            if last > position:
                return found - gone + min(gone, last - position)
            found -= gone
        return found

    def between(self, first: int, last: int) -> int:
        """Returns how many messages are gone from the rows whose last positions are from one to another."""
        return sum(self._gone[bisect_left(self._lasts, first) : bisect_right(self._lasts, last)])

    def reach(self, after: int, messages: int, end: int) -> int:
        """Returns the position up to which there are some messages behind another one, ``end`` where they are fewer."""
        reached = after + messages
        for index in range(bisect_right(self._lasts, after), len(self._lasts)):
            if reached >= end or self._lasts[index] - self._gone[index] > reached:
                break
            reached += min(self._gone[index], self._lasts[index] - after)
        return min(reached, end)
