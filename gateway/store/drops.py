"""What was dropped, as ranges of identities: expired, evicted, rejected, filtered, oversize, ended.

A range says who did not get which messages, and why: ``first`` to ``last`` of an origin's epoch. Messages without an
identity, which are those of QoS 0, are counted in one row with 0 to 0; so is what would make more than RANGES_MOST
ranges of one reason, consumer and publisher, for a client that makes up identities could fill the disk with them. One
that makes up client identifiers could as well: beyond RANGES_IN_ALL_MOST there is one row more for each reason.
"""

import sqlite3
import time
from collections.abc import Callable
from dataclasses import dataclass

from gateway.message import Message
from gateway.store.run import Run

EXPIRED, EVICTED, REJECTED, FILTERED, OVERSIZE = "expired", "evicted", "rejected", "filtered", "oversize"
ENDED = "ended"
GATEWAY = "gateway"
"""The consumer of a range where it was nobody's yet, or everybody's."""
RETAINED = "retained"
"""That of a message which went to its subscribers, and was not kept for later ones."""

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

RANGES_MOST = 1000
RANGES_IN_ALL_MOST = 1_000_000  # some 250 MB
EVERYBODY_ELSE = ""
"""The consumer and publisher of what goes beyond that."""

INSERT = "INSERT INTO dropped VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
EXTEND = """
UPDATE dropped SET last = ?, messages = messages + ?, until_ms = ?
WHERE reason = ? AND consumer = ? AND publisher = ? AND origin = ? AND epoch = ? AND last IN (?, ?)
"""

NEWEST = "SELECT coalesce(max(rowid), 0) FROM dropped"  # rows are never removed: so many there are
COUNT = """
SELECT count(*) FROM (SELECT 1 FROM dropped WHERE reason = ? AND consumer = ? AND publisher = ? LIMIT ?)
"""

Key = tuple[str, str, str, str, int]


@dataclass(slots=True)
class _Range:
    first: int
    last: int
    messages: int
    since_ms: int
    until_ms: int


class Drops:
    """Gathers ranges until they are written, which is no later than the next commit."""

    def __init__(self) -> None:
        self._ranges: dict[Key, list[_Range]] = {}

    def note(self, reason: str, consumer: str, message: Message) -> None:
        """A consumer does not get a message."""
        now_ms = int(time.time() * 1000)
        seq = message.seq if message.origin else 0
        ranges = self._ranges.setdefault((reason, consumer, message.publisher, message.origin, message.epoch), [])
        if ranges and ranges[-1].last in (seq, seq - 1):
            ranges[-1].last = seq
            ranges[-1].messages += 1
            ranges[-1].until_ms = now_ms
        else:
            ranges.append(_Range(seq, seq, 1, now_ms, now_ms))

    @property
    def consumers(self) -> set[str]:
        """The consumers of what is gathered."""
        return {consumer for _, consumer, *_ in self._ranges}

    def take(self) -> Callable[[sqlite3.Connection], None] | None:
        """Returns what writes the ranges gathered so far, None where there are none."""
        if not self._ranges:
            return None
        taken, self._ranges = self._ranges, {}

        def write(connection: sqlite3.Connection) -> None:
            for key, ranges in taken.items():
                for one in ranges:
                    _write(connection, key, one)

        return write


class Spans:
    """What one consumer will not get of all that waited for it, to be written in one go.

    There is one range for each publisher, origin and epoch, from the first message to the last: what lies between and
    is not counted was not for this consumer.
    """

    def __init__(self, reason: str, consumer: str) -> None:
        self.messages = 0
        self._reason = reason
        self._consumer = consumer
        self._ranges: dict[Key, _Range] = {}

    def add(self, part: Message | Run) -> None:
        """One more message, or all messages of a run that brings no identities of its own."""
        origin, first = (part.gateway, part.first_seq) if isinstance(part, Run) else (part.origin, part.seq)
        last = first + part.count - 1
        self.messages += part.count
        key = (self._reason, self._consumer, part.publisher, origin, part.epoch)
        if key not in self._ranges and len(self._ranges) >= RANGES_MOST:
            key, first, last = (*key[:2], "", "", 0), 0, 0
        found = self._ranges.get(key)
        if found is None:
            now_ms = int(time.time() * 1000)
            self._ranges[key] = _Range(first, last, part.count, now_ms, now_ms)
        else:
            found.first, found.last = min(found.first, first), max(found.last, last)
            found.messages += part.count

    def __call__(self, connection: sqlite3.Connection) -> None:
        for key, one in self._ranges.items():
            _write(connection, key, one)


@dataclass(slots=True)
class Drop:
    """One message that a consumer does not get, for the transaction that stores the message: it counts once."""

    reason: str
    consumer: str
    message: Message

    def __call__(self, connection: sqlite3.Connection) -> None:
        spans = Spans(self.reason, self.consumer)
        spans.add(self.message)  # which has its identity by now
        spans(connection)


def _write(connection: sqlite3.Connection, key: Key, one: _Range) -> None:
    before = one.first - 1 if one.first else 0
    extended = connection.execute(EXTEND, (one.last, one.messages, one.until_ms, *key, before, one.first))
    if extended.rowcount:
        return
    (ranges,) = connection.execute(COUNT, (*key[:3], RANGES_MOST)).fetchone()
    (in_all,) = connection.execute(NEWEST).fetchone()
    counted = _Range(0, 0, one.messages, one.since_ms, one.until_ms)
    if in_all >= RANGES_IN_ALL_MOST and key[1] != EVERYBODY_ELSE:
        _write(connection, (key[0], EVERYBODY_ELSE, EVERYBODY_ELSE, "", 0), counted)
    elif ranges >= RANGES_MOST and one.first:
        _write(connection, (*key[:3], "", 0), counted)
    else:
        connection.execute(INSERT, (*key, one.first, one.last, one.messages, one.since_ms, one.until_ms))
