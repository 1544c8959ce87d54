"""Ranges of dropped messages: which consumer did not get which identities, and why.

A range is ``first`` to ``last`` of an origin's epoch. Messages without an identity, which have QoS 0, are
counted in one row with 0 to 0. A client may make up identities and client identifiers, and each range costs memory,
time of a commit, and disk. So all three are bounded (``Budget``). A range beyond the budget is merged with its
neighbour or counted in a row with 0 to 0; it is never left out.

A route that sends every tenth message leaves a gap of nine before each, which would be too many ranges. So a range
``selected`` takes all that is left out of an origin's epoch in an hour, and counts it; the others in it were sent.
"""

import json
import sqlite3
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from gateway.counters import DROP_REASONS
from gateway.message import Message
from gateway.store.tables.log_rows import PublishBatch

EXPIRED, EVICTED, REJECTED, FILTERED, OVERSIZE = "expired", "evicted", "rejected", "filtered", "oversize"
ENDED, DAMAGED, SELECTED, UNROUTED = "ended", "damaged", "selected", "unrouted"
UNPROVEN = "unproven"
"""The reason of a range of messages that the next broker acknowledged, and that the gateway kept no longer although no
receipt said that they are in the tables."""
GATEWAY = "gateway"
"""The consumer in a range of messages that no consumer gets, or that were dropped before they had one."""
RETAINED = "retained"
"""The consumer in a range of messages that went to their subscribers, and did not become retained."""

SCHEMA = """
CREATE TABLE dropped (
    reason TEXT NOT NULL,
    consumer TEXT NOT NULL,
    publisher TEXT NOT NULL,
    origin TEXT NOT NULL,
    epoch INTEGER NOT NULL,
    first INTEGER NOT NULL,
    last INTEGER NOT NULL,
    messages INTEGER NOT NULL,
    since_ms INTEGER NOT NULL,
    until_ms INTEGER NOT NULL
) STRICT;
CREATE INDEX dropped_of ON dropped (reason, consumer, publisher, origin, epoch, last);
"""

COLUMNS = "reason, consumer, publisher, origin, epoch, first, last, messages, since_ms, until_ms"
MARKS = "?, ?, ?, ?, ?, ?, ?, ?, ?, ?"
# Ranges of refused messages have rowids below 0, all others above: so the number of each kind is the distance between
# its newest and its oldest.
INSERT = f"""
INSERT INTO dropped (rowid, {COLUMNS}) VALUES ((SELECT max(0, coalesce(max(rowid), 0)) + 1 FROM dropped), {MARKS})
"""
"""Writes a range as it is, without merging it; for any reason but ``rejected``."""
INSERT_AT = f"INSERT INTO dropped (rowid, {COLUMNS}) VALUES (?, {MARKS})"
EXTEND = """
UPDATE dropped SET first = min(first, ?), last = max(last, ?), messages = messages + ?,
    since_ms = min(since_ms, ?), until_ms = max(until_ms, ?)
WHERE rowid = (
    SELECT rowid FROM dropped
    WHERE reason = ? AND consumer = ? AND publisher = ? AND origin = ? AND epoch = ? AND last IN (?, ?) LIMIT 1
)
"""
EXTEND_SELECTED = EXTEND.replace("last IN (?, ?) LIMIT 1", "since_ms > ? ORDER BY last DESC LIMIT 1")
COUNT = """
SELECT count(*) FROM (SELECT 1 FROM dropped WHERE reason = ? AND consumer = ? AND publisher = ? LIMIT ?)
"""
NEWEST_AND_OLDEST = {
    True: "SELECT (SELECT min(rowid) FROM dropped WHERE rowid < 0), (SELECT max(rowid) FROM dropped WHERE rowid < 0)",
    False: "SELECT (SELECT max(rowid) FROM dropped WHERE rowid > 0), (SELECT min(rowid) FROM dropped WHERE rowid > 0)",
}
SUMS = """
SELECT reason, sum(messages), min(since_ms), max(until_ms) FROM dropped WHERE rowid BETWEEN ? AND ? GROUP BY reason
"""
REMOVE = "DELETE FROM dropped WHERE rowid BETWEEN ? AND ?"
SELECTED_MS = 3_600_000  # of messages left out by selection in one range
MERGED_AT_ONCE = 100  # oldest ranges, when a budget is used up

CHANGED = f"""
SELECT reason, consumer, origin, epoch, first, last, messages, until_ms FROM dropped
WHERE reason IN ({", ".join("?" * len(DROP_REASONS))}) AND consumer IN (?, ?) AND until_ms >= ? AND messages > 0
ORDER BY until_ms LIMIT ?
"""
CHANGED_MOST = 10_000
COUNTED = f"""
SELECT consumer, reason, sum(messages) FROM dropped
WHERE reason IN ({", ".join("?" * len(DROP_REASONS))}) AND consumer IN (SELECT value FROM json_each(?))
GROUP BY consumer, reason
"""

NEWEST_LOOKED = 1_000
NEWEST = {
    is_refused: f"SELECT * FROM (SELECT {COLUMNS} FROM dropped WHERE rowid {order} LIMIT ?) WHERE reason <> ? LIMIT ?"
    for is_refused, order in {True: "< 0 ORDER BY rowid", False: "> 0 ORDER BY rowid DESC"}.items()
}

DroppedRow = tuple[str, str, str, int, int, int, int]
"""Reason, consumer, origin, epoch, first, last and messages of a range."""

EVERYBODY_ELSE = ""
"""The consumer and publisher of messages that are counted by their reason only."""

RangeOwner = tuple[str, str, str]
"""Reason, consumer and publisher of a range."""
Epoch = tuple[str, str, int]
"""Publisher, origin and epoch."""
Key = tuple[str, str, str, str, int]
"""Reason and consumer with publisher, origin and epoch."""


def changed_since(
    connection: sqlite3.Connection, consumer: str, since_ms: int, until_ms: int
) -> tuple[list[DroppedRow], int]:
    """Returns the ranges of a consumer and of GATEWAY with drops since a Unix time, at most CHANGED_MOST.

    Ranges without messages are left out: in a copied or restored store they say what the original may have given.
    The second value is the time from which the next call goes on: ``until_ms``, or an earlier one if there are more.
    """
    rows = connection.execute(CHANGED, (*DROP_REASONS, consumer, GATEWAY, since_ms, CHANGED_MOST)).fetchall()
    return [row[:7] for row in rows], until_ms if len(rows) < CHANGED_MOST else rows[-1][7]


def counted_of(connection: sqlite3.Connection, consumers: Sequence[str]) -> dict[str, dict[str, int]]:
    """Returns how many messages each of these consumers did not get, by reason; those without any are left out."""
    found: dict[str, dict[str, int]] = {}
    for consumer, reason, messages in connection.execute(COUNTED, (*DROP_REASONS, json.dumps(consumers))):
        found.setdefault(consumer, {})[reason] = messages
    return found


class Dropped(NamedTuple):
    """A row of the table: what one consumer did not get, and why."""

    reason: str
    consumer: str
    publisher: str
    origin: str
    epoch: int
    first: int
    last: int
    messages: int
    since_ms: int
    until_ms: int


def newest(connection: sqlite3.Connection, most: int) -> list[Dropped]:
    """Returns the ranges that were made last, the newest first: ``most`` of refused messages and ``most`` of others.

    What a route leaves out by its rules is not among them. Among NEWEST_LOOKED ranges the search ends.
    """
    found: list[Dropped] = []
    for sql in NEWEST.values():
        found += map(Dropped._make, connection.execute(sql, (NEWEST_LOOKED, SELECTED, most)))
    return sorted(found, key=lambda one: one.until_ms, reverse=True)


@dataclass(frozen=True)
class Budget:
    """How many ranges there may be: ``of_one`` reason, consumer and publisher, ``in_all``, and ``at_once`` in memory.

    The last is also the most that one transaction writes.
    """

    of_one: int
    in_all: int
    at_once: int


# Publishers choose what is refused, so refused messages have a budget of their own.
BUDGETS = {True: Budget(100, 10_000, 1_000), False: Budget(1_000, 1_000_000, 10_000)}  # some 250 MB


def _is_refused(key: Key) -> bool:
    return key[0] == REJECTED


def _is_sparse(key: Key) -> bool:
    """Whether a range may have messages in it that its consumer got."""
    return key[0] == SELECTED and bool(key[3])


def _without_identity(key: Key) -> Key:
    return (*key[:3], "", 0)


def _for_reason_alone(reason: str) -> Key:
    return (reason, EVERYBODY_ELSE, EVERYBODY_ELSE, "", 0)


@dataclass(slots=True)
class _Range:
    first: int
    last: int
    messages: int
    since_ms: int
    until_ms: int

    def is_before(self, other: "_Range") -> bool:
        """Whether another range continues this one."""
        return other.first in (self.last, self.last + 1)

    def add(self, other: "_Range") -> None:
        """Extends this range by another one; messages between the two are not counted."""
        self.first, self.last = min(self.first, other.first), max(self.last, other.last)
        self.messages += other.messages
        self.since_ms, self.until_ms = min(self.since_ms, other.since_ms), max(self.until_ms, other.until_ms)

    def counted(self) -> "_Range":
        """The same without identities."""
        return replace(self, first=0, last=0)


class Drops:
    """Gathers ranges, and writes them in a transaction no later than the next commit.

    It keeps at most ``Budget.at_once``: further ones are merged with the newest range of their origin and epoch, or
    counted if there is none.
    """

    def __init__(self) -> None:
        self._ranges: dict[Key, list[_Range]] = {}
        self._of_one: Counter[RangeOwner] = Counter()
        self._at_once = {True: 0, False: 0}

    def note(self, reason: str, consumer: str, message: Message) -> None:
        """A consumer does not get a message."""
        now_ms = int(time.time() * 1000)
        seq = message.seq if message.origin else 0
        key = (reason, consumer, message.publisher, message.origin, message.epoch)
        self._add(key, _Range(seq, seq, 1, now_ms, now_ms))

    def note_left_out(self, consumer: str, found: dict[Epoch, list[int]]) -> None:
        """A consumer leaves messages out: the first and the last of each epoch, and how many."""
        now_ms = int(time.time() * 1000)
        for epoch, (first, last, messages) in found.items():
            self._add((SELECTED, consumer, *epoch), _Range(first, last, messages, now_ms, now_ms))

    def take_in(self, others: "Drops") -> None:
        """Adds ranges that were gathered later."""
        for key, one in others:
            self._add(key, one)

    def note_all(self, reason: str, consumers: Sequence[str], messages: Iterable[Message]) -> None:
        """Several consumers do not get the same messages: the ranges are built once."""
        found = Drops()
        for message in messages:
            found.note(reason, "", message)
        for key, one in found:
            for consumer in consumers:
                self._add((reason, consumer, *key[2:]), replace(one))

    @property
    def consumers(self) -> set[str]:
        """The consumers of the gathered ranges."""
        return {consumer for _, consumer, *_ in self._ranges}

    def __iter__(self) -> Iterator[tuple[Key, _Range]]:
        return ((key, one) for key, ranges in self._ranges.items() for one in ranges)

    def __call__(self, connection: sqlite3.Connection) -> None:
        writer = _Writer(connection)
        for key, one in self:
            writer.write(key, one)

    def _add(self, key: Key, one: _Range) -> None:
        is_refused = _is_refused(key)
        budget = BUDGETS[is_refused]
        ranges = self._ranges.get(key)
        is_full = self._at_once[is_refused] >= budget.at_once
        if ranges and (
            _is_sparse(key) or ranges[-1].is_before(one) or is_full or self._of_one[key[:3]] >= budget.of_one
        ):
            ranges[-1].add(one)
        elif is_full and key != _for_reason_alone(key[0]):
            self._add(_for_reason_alone(key[0]), one.counted())
        elif key[3] and self._of_one[key[:3]] >= budget.of_one:
            self._add(_without_identity(key), one.counted())
        else:
            self._ranges.setdefault(key, []).append(one)
            self._of_one[key[:3]] += 1
            self._at_once[is_refused] += 1


class Spans:
    """All messages that one ended consumer will not get, to be written in one go.

    There is one range for each publisher, origin and epoch, from the first message to the last; messages between that
    were not for this consumer are not counted.
    """

    def __init__(self, reason: str, consumer: str) -> None:
        self.messages = 0
        self._reason = reason
        self._consumer = consumer
        self._ranges: dict[Key, _Range] = {}

    def add(self, part: Message | PublishBatch) -> None:
        """Adds a message, or all messages of a batch that bring no identities of their own."""
        origin, first = (part.gateway, part.first_seq) if isinstance(part, PublishBatch) else (part.origin, part.seq)
        last = first + part.count - 1
        self.messages += part.count
        key = (self._reason, self._consumer, part.publisher, origin, part.epoch)
        if key not in self._ranges and len(self._ranges) >= BUDGETS[False].of_one:
            key, first, last = (*key[:2], "", "", 0), 0, 0
        found = self._ranges.get(key)
        if found is None:
            now_ms = int(time.time() * 1000)
            self._ranges[key] = _Range(first, last, part.count, now_ms, now_ms)
        else:
            found.first, found.last = min(found.first, first), max(found.last, last)
            found.messages += part.count

    def __call__(self, connection: sqlite3.Connection) -> None:
        writer = _Writer(connection)
        for key, one in self._ranges.items():
            writer.write(key, one)


@dataclass(slots=True)
class Drop:
    """A message that a consumer does not get, for the transaction that stores the message."""

    reason: str
    consumer: str
    message: Message

    def __call__(self, connection: sqlite3.Connection) -> None:
        spans = Spans(self.reason, self.consumer)
        spans.add(self.message)  # it has its identity by now
        spans(connection)


class _Writer:
    """Writes ranges in one transaction; existing ranges of a reason, consumer and publisher are counted once.

    Args:
        connection: the connection of the open transaction.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._of_one: dict[RangeOwner, int] = {}
        self._ends: dict[bool, tuple[int, int]] = {}  # newest and oldest rowid of refused ranges, and of others

    def write(self, key: Key, one: _Range) -> None:
        """Extends the range that this one continues, or inserts it, or counts it if there are too many."""
        values = (one.first, one.last, one.messages, one.since_ms, one.until_ms, *key)
        if _is_sparse(key):
            done = self._connection.execute(EXTEND_SELECTED, (*values, one.since_ms - SELECTED_MS))
        else:
            done = self._connection.execute(EXTEND, (*values, one.first - 1 if one.first else 0, one.first))
        if done.rowcount:
            return
        budget = BUDGETS[_is_refused(key)]
        if key[3] and self._count(key, budget.of_one) >= budget.of_one:
            self.write(_without_identity(key), one.counted())
            return
        rowid = self._make_room(_is_refused(key), budget.in_all)
        inserted = (rowid, *key, one.first, one.last, one.messages, one.since_ms, one.until_ms)
        self._connection.execute(INSERT_AT, inserted)
        if key[:3] in self._of_one:
            self._of_one[key[:3]] += 1

    def _count(self, key: Key, most: int) -> int:
        owner = key[:3]
        if owner not in self._of_one:
            (self._of_one[owner],) = self._connection.execute(COUNT, (*owner, most)).fetchone()
        return self._of_one[owner]

    def _make_room(self, is_refused: bool, most: int) -> int:
        """Returns the rowid of the next range; if there are too many, merges the oldest into one row for each
        reason.
        """
        way = -1 if is_refused else 1
        if is_refused not in self._ends:
            newest, oldest = self._connection.execute(NEWEST_AND_OLDEST[is_refused]).fetchone()
            self._ends[is_refused] = (0, way) if newest is None else (newest, oldest)
        newest, oldest = self._ends[is_refused]
        if way * (newest - oldest) + 1 >= most:
            self._merge_oldest(sorted((oldest, oldest + way * (MERGED_AT_ONCE - 1))))
            return self._make_room(is_refused, most)
        self._ends[is_refused] = (newest + way, oldest)
        return newest + way

    def _merge_oldest(self, rowids: list[int]) -> None:
        sums = self._connection.execute(SUMS, rowids).fetchall()
        self._connection.execute(REMOVE, rowids)
        self._of_one.clear()
        self._ends.clear()
        for reason, messages, since_ms, until_ms in sums:
            self.write(_for_reason_alone(reason), _Range(0, 0, messages, since_ms, until_ms))
