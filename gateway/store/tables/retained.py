"""Retained messages, the last one of each topic, and which of them are still owed to a session [section 3.3.1.3]."""

import contextlib
import sqlite3
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec

from gateway.loop.pace import Slice
from gateway.message import Message
from gateway.store.sqlite.rows import first_row, is_whole, sealed
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
# Without the plus signs SQLite considers the index of expiry, and plans the query anew each time it runs.
FIND = """SELECT topic, position, publisher FROM retained
    WHERE topic >= ? AND topic < ? AND (+expires_ms = 0 OR +expires_ms > ?) ORDER BY topic"""
SIZES = (0, 2, 4, 5, 9, 10)  # columns of a row: topic, payload, properties, origin, received_by, publisher
SIZE = """length(topic) + length(payload) + length(properties) + length(origin) + length(received_by)
    + length(publisher)"""
SIZE_OF = f"SELECT {SIZE} FROM retained WHERE topic = ?"
MEASURE = f"SELECT count(*), coalesce(sum({SIZE}), 0) FROM retained"
READ = "SELECT * FROM retained WHERE topic = ?"
READ_SOURCE = "SELECT publisher, received_ms, origin, epoch, seq FROM retained WHERE topic = ?"
FORGET_COPY = "DELETE FROM retained WHERE topic = ? AND publisher = ?"
EXPIRED = "expires_ms > 0 AND expires_ms <= ?"
EXPIRE = f"DELETE FROM retained WHERE {EXPIRED}"
OWE = "INSERT INTO owed VALUES (?, ?, ?, ?, ?, ?)"
FORGET_OWED = "DELETE FROM owed WHERE number = ?"
FORGET_ALL_OWED = "DELETE FROM owed WHERE session = ?"
FORGET_OWED_TOPIC = "DELETE FROM owed WHERE session = ? AND topic = ?"
LAST_OWED = "SELECT coalesce(max(number), 0) FROM owed"
BEHIND_ALL = b""  # SQLite sorts bytes behind any text
EVERY_TOPIC = ""
"""In place of a topic filter: all topic names, those with `$` too."""
BEHIND_SLASH = "0"
BEHIND_NAME = "\0"  # a name with this appended sorts directly behind it; no name contains it [MQTT-1.5.4-2]
FIND_MOST = 500  # in one piece
NAME_READS = 16  # SQLite reads a topic name at each level of its tree when it searches the one to replace
SIZE_OF_OWED = 400  # bytes of memory besides the topic name

Write = Callable[[sqlite3.Connection], Any]


class Extent(NamedTuple):
    """How many topics have a retained message, and the bytes of their names, payload and properties."""

    topics: int = 0
    bytes: int = 0


class CorruptRetained(sqlite3.DatabaseError):
    """The row of a topic's retained message is corrupt."""

    def __init__(self, row: tuple[Any, ...]) -> None:
        self.topic: str = row[0]
        self.row = row
        super().__init__(f"the retained message of topic {self.topic!r} is damaged in the file")


@dataclass(slots=True, eq=False)
class Owed:
    """A retained message that matches a new subscription of a session, and that its client does not have yet.

    ``number`` is 0 if the session does not outlive the process. The message is not sent if a newer one has taken its
    place: the newer one is delivered as it was published.
    """

    number: int
    session: str
    topic: str
    position: int
    qos: int
    identifier: int

    @property
    def size(self) -> int:
        """Bytes of memory, roughly."""
        return SIZE_OF_OWED + len(self.topic)


@dataclass(slots=True, frozen=True)
class Keep:
    """A message becomes its topic's retained message; one without payload removes it [MQTT-3.3.1-6].

    Returns the change in the extent of all retained messages.
    """

    message: Message

    @property
    def size(self) -> int:
        """The bytes that the commit counts for it: as many are read and written."""
        return self.message.size + NAME_READS * len(self.message.topic)

    def __call__(self, connection: sqlite3.Connection) -> Extent:
        before = size_of(connection, self.message.topic)
        topics, size = (0, 0) if before is None else (-1, -before)
        connection.execute(CLEAR, (self.message.topic,))
        if self.message.payload:
            row = _row_from(self.message)
            connection.execute(KEEP, row)
            topics, size = topics + 1, size + sum(len(row[column]) for column in SIZES)
        return Extent(topics, size)


class Source(NamedTuple):
    """Where a retained message comes from: its publisher, when its first gateway received it, and its identity."""

    publisher: str
    received_ms: int
    origin: str
    epoch: int
    seq: int

    @property
    def identity(self) -> tuple[str, int, int]:
        return self.origin, self.epoch, self.seq

    def is_newer_than(self, other: "Source") -> bool:
        """Whether a message that came over a link replaces the retained message of its topic.

        The first rule that applies decides. (1) Of one origin and epoch the higher number stays. (2) Messages of one
        link come in order. (3) The message that was received last stays, by the clocks of both gateways; so two
        gateways that have both messages keep the same one.
        """
        if self.identity[:2] == other.identity[:2]:
            return self.seq >= other.seq
        return self.publisher == other.publisher or self[1:] > other[1:]


@dataclass(slots=True, frozen=True)
class KeepCopy(Keep):
    """As ``Keep``, for a message that came over a link: a newer message of another publisher stays."""

    def __call__(self, connection: sqlite3.Connection) -> Extent:
        before, message = source_of(connection, self.message.topic), self.message
        identity = message.origin, message.epoch, message.seq
        if before is None or Source(message.publisher, message.received_ms, *identity).is_newer_than(before):
            return Keep.__call__(self, connection)
        return Extent()


@dataclass(slots=True, frozen=True)
class ForgetCopies:
    """Removes the retained messages of some topics, as far as they are of this publisher."""

    publisher: str
    topics: Sequence[str]

    def __call__(self, connection: sqlite3.Connection) -> Extent:
        topics = size = 0
        for topic in self.topics:
            before = size_of(connection, topic)
            if before is not None and connection.execute(FORGET_COPY, (topic, self.publisher)).rowcount:
                topics, size = topics - 1, size - before
        return Extent(topics, size)


class Search(NamedTuple):
    """What a filter matches of the retained messages up to the position ``since``.

    Messages behind it are not found: they are delivered as they were published. ``after`` is the name with which the
    piece before ended, "" for the first piece. Messages of the publishers ``not_from`` are not found, and only messages
    of ``publisher`` if one is given. The filter may be EVERY_TOPIC.
    """

    topic_filter: str
    since: int
    after: str = ""
    not_from: Container[str] = ()
    publisher: str = ""


class Piece(NamedTuple):
    """Topic names with positions, in order, and the name with which this piece ended, None if it is the last one."""

    topics: list[tuple[str, int]]
    end: str | None


def find(connection: sqlite3.Connection, searches: Sequence[Search], now_ms: int) -> list[Piece]:
    """Finds retained messages for several searches, in their order.

    Args:
        connection: to the store.
        searches: at least one.
        now_ms: messages that have expired by then are not found.

    Returns:
        A piece for each of the first searches, at least one; only the last of these pieces may have an end.
    """
    pieces: list[Piece] = []
    slice_, left = Slice(), FIND_MOST
    for search in searches:
        pieces.append(_find(connection, search, now_ms, slice_, left))
        left -= len(pieces[-1].topics)
        if left <= 0 or slice_.is_over:
            break
    return pieces


def _find(connection: sqlite3.Connection, search: Search, now_ms: int, slice_: Slice, most: int) -> Piece:
    first, last = _range_of(search.topic_filter)
    found: list[tuple[str, int]] = []
    from_name = search.after + BEHIND_NAME if search.after else first
    with contextlib.closing(connection.execute(FIND, (from_name, last, now_ms))) as rows:
        for topic, position, publisher in rows:
            is_from = publisher == search.publisher if search.publisher else publisher not in search.not_from
            if is_from and position <= search.since and _is_match(search.topic_filter, topic):
                found.append((topic, position))
            if slice_.is_over or len(found) >= most:
                return Piece(found, topic)
    return Piece(found, None)


def _is_match(topic_filter: str, topic: str) -> bool:
    return topic_filter == EVERY_TOPIC or matches(topic_filter, topic)


def owe(owed: Sequence[Owed]) -> Write:
    """Returns the work that notes and numbers what is owed to a durable session."""

    def write(connection: sqlite3.Connection) -> None:
        (last_number,) = connection.execute(LAST_OWED).fetchone()
        for number, one in enumerate(owed, last_number + 1):
            one.number = number
        connection.executemany(OWE, map(_owed_row, owed))

    return write


def forget_owed(numbers: Sequence[int]) -> Write:
    """Returns the work that forgets owed messages, by their numbers."""
    rows = [(number,) for number in numbers]
    return lambda connection: connection.executemany(FORGET_OWED, rows) and None


def note_search(session: str) -> Write:
    """Returns the work that notes that a route searches for what it owes: as what it owes of EVERY_TOPIC."""
    return owe([Owed(0, session, EVERY_TOPIC, 0, 0, 0)])


def forget_search(session: str) -> Write:
    """Returns the work that forgets the note of a search, which is over."""
    return lambda connection: connection.execute(FORGET_OWED_TOPIC, (session, EVERY_TOPIC)) and None


def forget_all_owed(session: str) -> Write:
    """Returns the work that forgets everything that is owed to an ended session."""
    return lambda connection: connection.execute(FORGET_ALL_OWED, (session,)) and None


def expire(connection: sqlite3.Connection, now_ms: int) -> Extent:
    """Removes expired messages; returns the change in the extent, as ``Keep`` does."""
    topics, size = connection.execute(f"{MEASURE} WHERE {EXPIRED}", (now_ms,)).fetchone()
    if topics:
        connection.execute(EXPIRE, (now_ms,))
    return Extent(-topics, -size)


def load_owed(connection: sqlite3.Connection) -> dict[str, list[Owed]]:
    """Returns what is owed, by session, in order."""
    owed: dict[str, list[Owed]] = {}
    for row in connection.execute("SELECT * FROM owed ORDER BY number"):
        owed.setdefault(row[1], []).append(Owed(*row))
    return owed


def measure(connection: sqlite3.Connection) -> Extent:
    """Returns the extent of all retained messages."""
    return Extent(*first_row(connection, MEASURE))


def size_of(connection: sqlite3.Connection, topic: str) -> int | None:
    """Returns the bytes of a topic's retained message, None if it has none."""
    row = first_row(connection, SIZE_OF, (topic,))
    return None if row is None else int(row[0])


def source_of(connection: sqlite3.Connection, topic: str) -> Source | None:
    """Returns where a topic's retained message comes from, None if it has none."""
    row = first_row(connection, READ_SOURCE, (topic,))
    return None if row is None else Source(*row)


def read(connection: sqlite3.Connection, topics: Iterable[str], most: int) -> dict[str, tuple[int, Message] | None]:
    """Returns position and message by topic, None for a topic without one: of the first topics within ``most`` bytes.

    At least one topic is in the result. Raises CorruptRetained.
    """
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
    """Returns the first topic that a filter may match, and one behind the last."""
    if topic_filter == EVERY_TOPIC:
        return "", BEHIND_ALL
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
