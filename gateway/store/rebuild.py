"""What is whole in a damaged message store goes into a new file, and what is lost is noted there as ranges.

The messages of the log have checksums; any other row counts as whole where it can be read. New identities come from a
new epoch, since nobody can tell which ones of the old epoch were given to messages that are lost.
"""

import contextlib
import random
import sqlite3
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from gateway.message import Message
from gateway.store import groups, retained, schema
from gateway.store.damage import DAMAGED
from gateway.store.drops import GATEWAY
from gateway.store.drops import INSERT as INSERT_RANGE
from gateway.store.flows import BEGUN, RELEASED
from gateway.store.groups import CorruptGroup, Group, Part
from gateway.store.pages import Pages
from gateway.store.salvage import Salvage
from wire.identity import SEQ_MAX

UNSYNCED = "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;"  # the file counts only once all of it is synced
ADD_CONSUMER = "INSERT OR IGNORE INTO cursor VALUES (?, ?, 0)"
NEEDED_FROM = f"""
SELECT min(position) FROM (
    SELECT position FROM cursor UNION ALL SELECT position - 1 FROM flow WHERE state = {BEGUN} AND topic = ''
)
"""
# What was behind the newest message that is left is lost, and its position will be another's.
TAKE_BACK = (
    "UPDATE cursor SET position = :head WHERE position > :head",
    f"UPDATE flow SET position = 0, state = max(state, {RELEASED}) WHERE position > :head",
    "UPDATE retained SET position = :head WHERE position > :head",
    "UPDATE owed SET position = :head WHERE position > :head",
)


@dataclass(frozen=True)
class Lost:
    """Messages that are lost: their positions, and this store's own identities that may be among theirs.

    ``messages`` is how many are known of; the last ones may have left no trace, so that ``last_seq`` has no end.
    """

    first_position: int
    messages: int
    first_seq: int
    last_seq: int


@dataclass(frozen=True)
class _Kept:
    """A group of messages in the new file, and the first and last number of own identities in it."""

    group: Group
    own: tuple[int, int] | None


class Rebuild:
    """Writes a message store anew.

    ``kept`` counts rows by table, ``messages`` those of the log, ``damaged_rows`` what was there and not whole.

    Args:
        pages: the damaged file.
        origin: the origin of this store's own identities.
    """

    def __init__(self, pages: Pages, origin: str) -> None:
        self.kept: Counter[str] = Counter()
        self.messages = 0
        self.salvage = Salvage(pages, schema.make)
        self._pages = pages
        self._origin = origin
        self._spoilt: list[CorruptGroup] = []
        self._groups: list[_Kept] = []
        self._epoch = self._find_epoch()
        self._furthest = 0

    @property
    def damaged_rows(self) -> int:
        return self.salvage.damaged_rows + len(self._spoilt)

    def write(self, path: Path, consumers: Iterable[str]) -> list[Lost]:
        """Writes the new file; returns what is lost.

        Args:
            path: where it is made.
            consumers: those that there are; one whose place is lost begins at the oldest message that is left.

        Raises:
            sqlite3.Error: the file cannot be written.
        """
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.executescript(UNSYNCED)
            schema.make(connection)
            connection.execute("BEGIN")
            for table, row in self.salvage.rows():
                self._take(connection, table, row)
            self._groups.sort(key=lambda kept: kept.group.last)
            self._put_in_order(connection, consumers)
            lost = list(self._lost(connection))
            now_ms = int(time.time() * 1000)
            for one in lost:
                own = (self._origin, self._epoch, one.first_seq, one.last_seq)
                connection.execute(INSERT_RANGE, (DAMAGED, GATEWAY, "", *own, one.messages, now_ms, now_ms))
            connection.execute("COMMIT")
        return lost

    def _find_epoch(self) -> int:
        """The store's epoch; where it is lost, the one of most of its messages, or else one that none has."""
        seen: Counter[int] = Counter()
        for table, row in Salvage(self._pages, schema.make).rows():
            if table == "identity":
                return cast(int, row[0])
            if table == "message_group":
                seen.update(self._epochs_in(cast(groups.Row, row)))
        return max(seen, key=seen.__getitem__, default=random.SystemRandom().getrandbits(32))

    def _epochs_in(self, row: groups.Row) -> Iterator[int]:
        with contextlib.suppress(CorruptGroup):
            for part in groups.decode(row, 0).parts:
                if isinstance(part, Message) and part.origin == self._origin:
                    yield part.epoch

    def _take(self, connection: sqlite3.Connection, table: str, row: tuple[Any, ...]) -> None:
        if table == "message_group":
            self._take_group(connection, cast(groups.Row, row))
        elif table == "retained" and not retained.is_whole(row):
            self.salvage.damaged_rows += 1
        elif table != "identity":
            marks = ", ".join("?" * len(row))
            self.kept[table] += connection.execute(f"INSERT OR IGNORE INTO {table} VALUES ({marks})", row).rowcount

    def _take_group(self, connection: sqlite3.Connection, row: groups.Row) -> None:
        try:
            group = groups.decode(row, self._epoch)
        except CorruptGroup as damage:
            self._spoilt.append(damage)
            return
        # A run has its identities from the store's epoch, which becomes another one; a message has its own.
        messages: list[Part] = [message for part in group.parts for message in part.messages()]
        whole = Group(group.first, messages, group.last)
        if connection.execute(
            f"{groups.INSERT} ON CONFLICT DO NOTHING", groups.row_of(whole, 0, bool(row[3]))
        ).rowcount:
            self.messages += len(messages)
            self._groups.append(_Kept(Group(group.first, [], group.last), self._own(messages)))

    def _own(self, messages: list[Any]) -> tuple[int, int] | None:
        own = [m.seq for m in messages if m.origin == self._origin and m.epoch == self._epoch]
        return (min(own), max(own)) if own else None

    def _put_in_order(self, connection: sqlite3.Connection, consumers: Iterable[str]) -> None:
        """Nobody's place is behind the newest message that is left, and everybody has one."""
        head = self._groups[-1].group.last if self._groups else 0
        (self._furthest,) = connection.execute("SELECT coalesce(max(position), 0) FROM cursor").fetchone()
        for statement in TAKE_BACK:
            connection.execute(statement, {"head": head})
        oldest = self._groups[0].group.first if self._groups else 1
        connection.executemany(ADD_CONSUMER, ((consumer, oldest - 1) for consumer in consumers))

    def _lost(self, connection: sqlite3.Connection) -> Iterator[Lost]:
        """Yields what is missing of all that somebody needs."""
        (needed_from,) = connection.execute(NEEDED_FROM).fetchone()
        head = self._groups[-1].group.last if self._groups else 0
        expected = (head if needed_from is None else needed_from) + 1
        seq = 0
        for kept, following in zip(self._groups, self._own_behind(), strict=True):
            if (missing := kept.group.first - expected) > 0:
                yield Lost(expected, missing, *_numbers_between(seq, following, expected))
            expected = max(expected, kept.group.last + 1)
            seq = max(seq, kept.own[1]) if kept.own else seq
        missing = self._end() - head
        if missing or self.salvage.damaged_pages or self.salvage.damaged_rows or self._pages.wal_damaged:
            yield Lost(head + 1, missing, seq + 1, SEQ_MAX)

    def _own_behind(self) -> list[_Kept | None]:
        """For each group the first one with own numbers, itself or behind it."""
        found: list[_Kept | None] = []
        first: _Kept | None = None
        for kept in reversed(self._groups):
            first = kept if kept.own else first
            found.append(first)
        return found[::-1]

    def _end(self) -> int:
        """The newest position that is known of: some cursor was there, or a damaged row follows on directly."""
        end = head = self._groups[-1].group.last if self._groups else 0
        for damage in sorted(self._spoilt, key=lambda damage: damage.last):
            if damage.first <= end + 1:
                end = max(end, damage.last)
        most = head + self._pages.count * self._pages.size  # a place has no checksum, and more cannot have been there
        return max(end, self._furthest) if self._furthest <= most else end


def _numbers_between(seq: int, following: _Kept | None, position: int) -> tuple[int, int]:
    """The own numbers that were given behind ``seq``, from a position on, before those of the group that follows."""
    if following is None or following.own is None:
        return seq + 1, SEQ_MAX
    last = following.own[0] - 1
    first = max(seq + 1, last + 1 - (following.group.first - position))
    return (first, last) if first <= last else (0, 0)
