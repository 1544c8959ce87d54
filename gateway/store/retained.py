"""Retained messages, the last one of each topic, and which of them are still owed to a session [section 3.3.1.3]."""

import sqlite3
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from gateway.message import Message
from gateway.store.checksum import is_whole, sealed
from gateway.store.reading import first_row
from wire.topics import matches

SCHEMA = """
CREATE TABLE retained (
    topic TEXT PRIMARY KEY,
    position INTEGER NOT NULL,
    payload BLOB NOT NULL,
    qos INTEGER NOT NULL,
    properties BLOB NOT NULL,
    origin TEXT NOT NULL,
    epoch INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    received_ms INTEGER NOT NULL,
    received_by TEXT NOT NULL,
    publisher TEXT NOT NULL,
    expires_ms INTEGER NOT NULL,
    crc INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX retained_expiry ON retained (expires_ms) WHERE expires_ms > 0;
CREATE TABLE owed (
    number INTEGER PRIMARY KEY,
    session TEXT NOT NULL,
    topic TEXT NOT NULL,
    position INTEGER NOT NULL,
    qos INTEGER NOT NULL,
    identifier INTEGER NOT NULL
) STRICT;
"""

KEEP = "INSERT INTO retained VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
CLEAR = "DELETE FROM retained WHERE topic = ?"
FIND = "SELECT topic, position FROM retained WHERE topic >= ? AND topic < ? AND (expires_ms = 0 OR expires_ms > ?)"
IS_THERE = "SELECT 1 FROM retained WHERE topic = ?"
READ = "SELECT * FROM retained WHERE topic = ?"
EXPIRE = "DELETE FROM retained WHERE expires_ms > 0 AND expires_ms <= ?"
OWE = "INSERT INTO owed VALUES (?, ?, ?, ?, ?, ?)"
SETTLE = "DELETE FROM owed WHERE number = ?"
SETTLE_ALL = "DELETE FROM owed WHERE session = ?"
LAST_OWED = "SELECT coalesce(max(number), 0) FROM owed"
BEHIND_ALL = b""  # SQLite has bytes behind any text
BEHIND_SLASH = "0"

Write = Callable[[sqlite3.Connection], Any]


class CorruptRetained(sqlite3.DatabaseError):
    """The row of a topic's retained message is not as it was stored."""

    def __init__(self, row: tuple[Any, ...]) -> None:
        self.topic: str = row[0]
        self.row = row
        super().__init__(f"the retained message of topic {self.topic!r} is damaged in the file")


@dataclass(slots=True, eq=False)
class Owed:
    """A retained message that a new subscription of a session matches and that its client does not have yet.

    ``number`` is 0 where the session does not outlive the process. The message is not sent once another one has taken
    its place: that one comes as it was published.
    """

    number: int
    session: str
    topic: str
    position: int
    qos: int
    identifier: int


@dataclass(slots=True, frozen=True)
class Keep:
    """A message becomes its topic's retained one; without payload the topic has none any more [MQTT-3.3.1-6].

    Returns by how many the topics with a retained message have become more.
    """

    message: Message

    def __call__(self, connection: sqlite3.Connection) -> int:
        fewer = connection.execute(CLEAR, (self.message.topic,)).rowcount
        if not self.message.payload:
            return -fewer
        connection.execute(KEEP, _row_from(self.message))
        return 1 - fewer


def find(owed: Owed, topic_filter: str, *, since: int, now_ms: int, durable: bool) -> Write:
    """Finds the retained messages of a filter that were stored up to a position; returns them as owed.

    Args:
        owed: what is the same for all of them.
        topic_filter: the subscription's.
        since: those behind this position come as they were published.
        now_ms: those that have expired by then are not found.
        durable: whether they are noted, too.
    """

    def write(connection: sqlite3.Connection) -> list[Owed]:
        first, last = _range_of(topic_filter)
        found = [
            Owed(0, owed.session, topic, position, owed.qos, owed.identifier)
            for topic, position in connection.execute(FIND, (first, last, now_ms))
            if position <= since and matches(topic_filter, topic)
        ]
        if durable:
            (last_number,) = connection.execute(LAST_OWED).fetchone()
            for number, one in enumerate(found, last_number + 1):
                one.number = number
            connection.executemany(OWE, map(_owed_row, found))
        return found

    return write


def settle(numbers: Sequence[int]) -> Write:
    """These are owed no more."""
    rows = [(number,) for number in numbers]
    return lambda connection: connection.executemany(SETTLE, rows) and None


def settle_all(session: str) -> Write:
    """A session is no more."""
    return lambda connection: connection.execute(SETTLE_ALL, (session,)) and None


def expire(connection: sqlite3.Connection, now_ms: int) -> int:
    """Removes what has expired; returns by how many they have become more, as ``Keep`` does."""
    return -connection.execute(EXPIRE, (now_ms,)).rowcount


def load_owed(connection: sqlite3.Connection) -> dict[str, list[Owed]]:
    """Returns what is owed by session, in order."""
    owed: dict[str, list[Owed]] = {}
    for row in connection.execute("SELECT * FROM owed ORDER BY number"):
        owed.setdefault(row[1], []).append(Owed(*row))
    return owed


def count(connection: sqlite3.Connection) -> int:
    """Returns how many topics have a retained message."""
    return int(first_row(connection, "SELECT count(*) FROM retained")[0])


def is_there(connection: sqlite3.Connection, topic: str) -> bool:
    """Whether a topic has one."""
    return first_row(connection, IS_THERE, (topic,)) is not None


def read(connection: sqlite3.Connection, topics: Iterable[str], most: int) -> dict[str, tuple[int, Message] | None]:
    """Returns position and message by topic, None where it has none: those of the first topics that fit so many bytes,
    and of one at least. Raises CorruptRetained."""
    found: dict[str, tuple[int, Message] | None] = {}
    size = 0
    for topic in topics:
        if size > most:
            break
        found[topic] = None
        if row := first_row(connection, READ, (topic,)):
            message = _message_from(row)
            found[topic] = row[1], message
            size += message.size
    return found


def _range_of(topic_filter: str) -> tuple[str, str | bytes]:
    """The first topic that a filter may match, and one behind the last."""
    levels = topic_filter.split("/")
    wild = next((index for index, level in enumerate(levels) if level in ("+", "#")), None)
    if wild is None:
        return topic_filter, topic_filter + "\0"
    prefix = "/".join(levels[:wild])
    return prefix, prefix + BEHIND_SLASH if wild else BEHIND_ALL


def _row_from(message: Message) -> tuple[Any, ...]:
    return sealed(
        (
            message.topic,
            message.position,
            message.payload,
            message.qos,
            msgspec.msgpack.encode(message.properties),
            message.origin,
            message.epoch,
            message.seq,
            message.received_ms,
            message.received_by,
            message.publisher,
            message.expires_ms,
        )
    )


def _message_from(row: tuple[Any, ...]) -> Message:
    if not is_whole(row):
        raise CorruptRetained(row)
    topic, position, payload, qos, properties, *rest = row[:-1]
    message = Message(topic, payload, qos, True, msgspec.msgpack.decode(properties, type=dict[int, Any]), *rest)
    message.position = position
    return message


def _owed_row(owed: Owed) -> tuple[Any, ...]:
    return (owed.number, owed.session, owed.topic, owed.position, owed.qos, owed.identifier)
