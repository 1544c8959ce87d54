"""The table ``message_group``: one row for the messages of one commit, however many they are.

A row's ``body`` is MessagePack, deflated if ``deflated`` says so: an array of parts in order. A part is a batch of
PUBLISHes as they came, or one message field by field, or a gap: positions whose messages were taken out because no
consumer needed them, or were lost before a repair. The first element of a part says which.

A row has the positions ``last - count + 1`` to ``last``, and the next row has the positions that follow. ``seq`` is the
last sequence number that this store has given up to there. ``crc`` covers everything else in the row (``log_row_crc``).

The table ``compacted`` says how many messages were taken out of a row, which positions alone cannot tell.
"""

import contextlib
import sqlite3
import struct
import zlib
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from typing import Any

import msgspec

from gateway.errors import damaged_page
from gateway.message import MESSAGE_OVERHEAD, Message, form
from wire.bulk.property_block import brings_trails
from wire.bulk.publishes import content_size, qos_of, read_publishes

SCHEMA = """
CREATE TABLE message_group (
    last INTEGER PRIMARY KEY,
    count INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    deflated INTEGER NOT NULL,
    crc INTEGER NOT NULL,
    body BLOB NOT NULL
) STRICT;
CREATE TABLE compacted (
    last INTEGER PRIMARY KEY,
    gone INTEGER NOT NULL
) STRICT;
"""
INSERT = "INSERT INTO message_group VALUES (?, ?, ?, ?, ?, ?)"
READ = "SELECT * FROM message_group WHERE last > ? AND last <= ? ORDER BY last"
EMPTY = "UPDATE message_group SET deflated = 0, crc = ?, body = ? WHERE last = ?"
TRIM = "DELETE FROM message_group WHERE last <= ?"
SPAN_FROM = "SELECT last - count FROM message_group WHERE last > ? ORDER BY last LIMIT 1"
SEQ_OF = "SELECT seq FROM message_group WHERE last = ?"
DELETE = "DELETE FROM message_group WHERE last > ? AND last <= ?"
NEWEST = "SELECT last, seq FROM message_group ORDER BY last DESC LIMIT 1"
OLDEST = "SELECT last - count + 1 FROM message_group ORDER BY last LIMIT 1"
FIND_CORRUPT = "SELECT 1 FROM message_group WHERE crc != log_row_crc(last, count, seq, deflated, body)"
LOAD_GAPS = "SELECT last, gone FROM compacted ORDER BY last"
FORGET_GAPS = "DELETE FROM compacted WHERE last > ? AND last <= ?"
NOTE_GAP = "INSERT INTO compacted VALUES (?, ?)"
SIZE = "SELECT coalesce(sum(length(body)), 0) FROM message_group WHERE last > ? AND last <= ?"
TRIM_GAPS = "DELETE FROM compacted WHERE last <= ?"

ROW_BYTES_MAX = 256 * 1024  # a commit with more of them takes several rows: a row is read as a whole
DEFLATE_FROM = 256  # bytes; a smaller body would not shrink
NO_PARTS = msgspec.msgpack.encode([])
ONE_MESSAGE, GAP = 0, 1  # a part's first element; a batch has its protocol level there
PART_OVERHEAD = 60  # bytes in a row besides topic, payload and properties, roughly

BATCH_OVERHEAD = 200  # bytes in memory besides its packets, roughly

Row = tuple[int, int, int, int, int, bytes]


class PublishBatch:
    """PUBLISHes of one client as they came, back to back: of one QoS, with ordinary properties, neither DUP nor RETAIN.

    Args:
        packets: their bytes.
        topics: their topic names, each once.
        count: how many they are.
        level: their protocol level.
        publisher: the client identifier of their publisher.
        received_ms: when they came, as Unix time.
        gateway: the gateway that accepted them, which is the origin of their identities. A message that a route has
            handed on names its first gateway, and when it came there, by itself.
        content_size: bytes of their payloads, topic names and properties, None where these are not known yet.

    ``bring_identities`` says whether all of them bring an identity, or none. ``epoch`` and ``first_seq`` are the first
    identity that the store gives otherwise; the others follow. ``position`` is the place of the first one in the log,
    once it is stored; until then they count for the limits of ``owner`` (``gateway.holdings``).
    """

    __slots__ = (
        "_content_size",
        "_messages",
        "bring_identities",
        "count",
        "epoch",
        "first_seq",
        "gateway",
        "level",
        "owner",
        "packets",
        "position",
        "publisher",
        "received_ms",
        "topics",
    )

    def __init__(
        self,
        packets: bytes,
        topics: dict[str, None],
        count: int,
        level: int,
        publisher: str,
        received_ms: int,
        gateway: str,
        content_size: int | None = None,
    ) -> None:
        self.packets = packets
        self.topics = topics
        self.count = count
        self.level = level
        self.publisher = publisher
        self.received_ms = received_ms
        self.gateway = gateway
        self.epoch = self.first_seq = self.position = 0
        self.bring_identities = False
        self.owner = ""
        self._content_size = content_size
        self._messages: list[Message] | None = None

    @property
    def content_size(self) -> int:
        """Bytes of payloads, topic names and properties: the sum of the messages' ``content_size``."""
        if self._content_size is None:
            self._content_size = content_size(self.packets, self.level)
        return self._content_size

    @property
    def may_bring_trails(self) -> bool:
        """Whether routes may have handed some of the messages on, so that each has a provenance of its own."""
        return self.bring_identities and brings_trails(self.packets)

    @property
    def size(self) -> int:
        """Bytes of memory, roughly."""
        return len(self.packets) + BATCH_OVERHEAD

    def messages(self) -> list[Message]:
        """Returns the messages, the same objects each time."""
        if self._messages is None:
            self._messages = self._read()
        return self._messages

    def _read(self) -> list[Message]:
        messages: list[Message] = []
        qos = qos_of(self.packets)
        as_it_came = form(self.level, qos, False)
        seq = self.first_seq
        for topic, payload, common, identity, trail, halves in read_publishes(self.packets, self.level):
            message = Message(
                topic,
                payload,
                qos,
                False,
                {} if common is None else common.properties,
                self.gateway,
                self.epoch,
                seq,
                self.received_ms,
                self.gateway,
                self.publisher,
            )
            if common is not None and common.expiry_ms:
                message.expires_ms = self.received_ms + common.expiry_ms
            if identity is not None:
                message.origin, message.epoch, message.seq = identity
            if trail is not None:
                message.received_ms, message.received_by = trail.received_ms, trail.received_by.decode()
                message.properties = trail.add_to(message.properties)
            if not self.bring_identities:
                message.halves = {as_it_came: halves}
            messages.append(message)
            seq += 1
        return messages


Part = Message | PublishBatch
"""What is stored as one piece: a message, or a batch of PUBLISHes."""
PARTS = (Message, PublishBatch)
"""Its classes: `isinstance` takes twice as long with their union."""
Work = Part | Callable[[sqlite3.Connection], Any]
"""A piece of a transaction: messages to store, or a function that writes something else with them."""


def is_qos_0(part: "Part | Gap") -> bool:
    """Whether a part is a message of QoS 0, which is stored for routes alone."""
    return isinstance(part, Message) and not part.qos


class Gap:
    """Positions whose messages were taken out of the log, ``count`` of them."""

    __slots__ = ("count",)
    size = 0
    publisher = ""
    topics: tuple[str, ...] = ()

    def __init__(self, count: int) -> None:
        self.count = count

    def messages(self) -> list[Message]:
        """Returns none."""
        return []


class LogRow:
    """The positions ``first`` to ``last``: parts in order, or no part if the messages are damaged.

    ``message_count`` is how many messages are left.
    """

    __slots__ = ("first", "last", "message_count", "parts", "size")

    def __init__(self, first: int, parts: Sequence[Part | Gap], last: int | None = None) -> None:
        size = positions = messages = 0
        for part in parts:
            size += part.size
            positions += part.count
            if not isinstance(part, Gap):
                messages += part.count
        self.first = first
        self.last = first + positions - 1 if last is None else last
        self.parts = parts
        self.size = size
        self.message_count = messages

    def read(self, after: int, limit: int) -> list[tuple[int, Message]]:
        """Returns up to ``limit`` messages behind a position."""
        found: list[tuple[int, Message]] = []
        position = self.first
        for part in self.parts:
            begin = max(0, after + 1 - position)
            if begin < part.count and len(found) < limit:
                wanted = part.messages()[begin : begin + limit - len(found)]
                found += enumerate(wanted, position + begin)
            position += part.count
        return found


class Hole(LogRow):
    """Positions of messages that were set aside although SQLite cannot read their rows, which are still in the file."""

    __slots__ = ()

    def __init__(self, first: int, last: int) -> None:
        super().__init__(first, [], last)


class CorruptRow(sqlite3.DatabaseError):
    """The messages at the positions ``first`` to ``last`` cannot be read.

    ``is_hole`` if SQLite cannot read even their rows.
    """

    def __init__(self, first: int, last: int, *, is_hole: bool = False) -> None:
        super().__init__(f"the messages at positions {first} to {last} are damaged in the file")
        self.first = first
        self.last = last
        self.is_hole = is_hole


def split(first: int, parts: Sequence[Part]) -> Iterator[LogRow]:
    """Yields rows of consecutive parts, none larger than ROW_BYTES_MAX unless it is a single part."""
    begin = size = 0
    for index, part in enumerate(parts if len(parts) > 1 else ()):
        size += part.size
        if size > ROW_BYTES_MAX and index > begin:
            yield (row := LogRow(first, parts[begin:index]))
            begin, size, first = index, part.size, row.last + 1
    if begin < len(parts):
        yield LogRow(first, parts[begin:])


def write(connection: sqlite3.Connection, rows: Iterable[LogRow], seq: int, deflate: bool) -> int:
    """Inserts rows; returns the bytes of their bodies.

    ``seq`` is the last sequence number that this store has given so far.
    """
    written = 0
    for row in rows:
        stored = row_of(row, seq, deflate)
        connection.execute(INSERT, stored)
        written += len(stored[-1])
    return written


def row_of(row: LogRow, seq: int, deflate: bool) -> Row:
    """Returns a row as it is in the table."""
    body, is_smaller = msgspec.msgpack.encode([_pack(part) for part in row.parts]), False
    if deflate and len(body) >= DEFLATE_FROM:
        deflated = zlib.compress(body, 1)
        is_smaller = len(deflated) < len(body)
        body = deflated if is_smaller else body
    count = row.last - row.first + 1
    return (row.last, count, seq, is_smaller, log_row_crc(row.last, count, seq, is_smaller, body), body)


def replace(
    connection: sqlite3.Connection, first: int, last: int, parts: Sequence[Part | Gap], *, deflate: bool
) -> bool:
    """Replaces the rows from one position to another by one row; returns False if that is not possible.

    It is not possible if a row begins before them or ends behind them, or some of them are gone.
    """
    (before,) = connection.execute(SPAN_FROM, (first - 1,)).fetchone() or (None,)
    (seq,) = connection.execute(SEQ_OF, (last,)).fetchone() or (None,)
    if before != first - 1 or seq is None:
        return False
    connection.execute(DELETE, (before, last))
    connection.execute(INSERT, row_of(LogRow(first, parts, last), seq, deflate))
    return True


def stored_size(part: Part | Gap) -> int:
    """Returns the bytes that a part takes in a row, roughly."""
    if isinstance(part, Gap):
        return 0
    return part.size + PART_OVERHEAD - (BATCH_OVERHEAD if isinstance(part, PublishBatch) else MESSAGE_OVERHEAD)


def empty(connection: sqlite3.Connection, last: int) -> None:
    """Removes the messages from the row that ends at a position."""
    count, seq = connection.execute("SELECT count, seq FROM message_group WHERE last = ?", (last,)).fetchone()
    connection.execute(EMPTY, (log_row_crc(last, count, seq, False, NO_PARTS), NO_PARTS, last))


def read(connection: sqlite3.Connection, after: int, up_to: int) -> Generator[LogRow]:
    """Yields the rows with the messages between two positions. Raises sqlite3.DatabaseError, CorruptRow mostly."""
    with contextlib.closing(connection.execute(READ, (after, up_to))) as rows:
        for row in rows:
            yield decode(row)


def size_between(connection: sqlite3.Connection, after: int, up_to: int) -> int:
    """Returns the bytes of the rows that end behind a position and up to another one. Reads no row's body."""
    (size,) = connection.execute(SIZE, (after, up_to)).fetchone()
    return int(size)


def decode(row: Row) -> LogRow:
    """Returns the parsed row. Raises CorruptRow, or another sqlite3.DatabaseError if the row has NULLs."""
    last, count, seq, deflated, crc, body = row
    if not (isinstance(count, int) and isinstance(seq, int) and isinstance(body, bytes)):
        raise damaged_page(f"the row {last} of the message log has NULLs")
    first = last - count + 1
    try:
        if log_row_crc(last, count, seq, deflated, body) != crc:
            raise ValueError
        parts = msgspec.msgpack.decode(zlib.decompress(body) if deflated else body)
    except (ValueError, zlib.error) as error:
        raise CorruptRow(first, last) from error
    return LogRow(first, [_unpack(part) for part in parts], last)


def load_gaps(connection: sqlite3.Connection) -> list[tuple[int, int]]:
    """Returns (last position, number of messages taken out) of each compacted row, in order."""
    return connection.execute(LOAD_GAPS).fetchall()


def note_gap(connection: sqlite3.Connection, first: int, last: int, gone: int) -> None:
    """Notes that one row has the positions from one to another now, and how many of its messages were taken out."""
    connection.execute(FORGET_GAPS, (first - 1, last))
    connection.execute(NOTE_GAP, (last, gone))


class Gaps:
    """How many messages were taken out of which rows.

    Args:
        rows: (last position, number of messages taken out) of each row in the file, in order.
    """

    def __init__(self, rows: Iterable[tuple[int, int]] = ()) -> None:
        self._lasts: list[int] = []
        self._gone: list[int] = []  # messages taken out of each of these
        for last, gone in rows:
            self._lasts.append(last)
            self._gone.append(gone)
        self._total = sum(self._gone)

    def note(self, first: int, last: int, gone: int) -> None:
        """Notes that one row has the positions from one to another now, and how many of its messages were taken out."""
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
        """Returns how many messages were taken out behind a position.

        If the position is inside a row, the result may be too large, by at most the messages that are left in the row.
        """
        found = self._total
        for last, gone in zip(self._lasts, self._gone, strict=True):
            if last > position:
                return found - gone + min(gone, last - position)
            found -= gone
        return found

    def between(self, first: int, last: int) -> int:
        """Returns how many messages were taken out of the rows whose last positions are between two."""
        return sum(self._gone[bisect_left(self._lasts, first) : bisect_right(self._lasts, last)])

    def reach(self, after: int, messages: int, end: int) -> int:
        """Returns the position up to which there are ``messages`` behind ``after``; ``end`` if there are fewer."""
        reached = after + messages
        for index in range(bisect_right(self._lasts, after), len(self._lasts)):
            if reached >= end or self._lasts[index] - self._gone[index] > reached:
                break
            reached += min(self._gone[index], self._lasts[index] - after)
        return min(reached, end)


def log_row_crc(last: int, count: int, seq: int, deflated: int, body: bytes) -> int:
    """Returns the CRC-32 of a row: of its numbers, 8 bytes each with the highest first, and its body."""
    return zlib.crc32(body, zlib.crc32(struct.pack(">4q", last, count, seq, deflated)))


def add_to_sql(connection: sqlite3.Connection) -> None:
    """Makes the checksum available to SQL statements."""
    connection.create_function("log_row_crc", 5, log_row_crc)


def _pack(part: Part | Gap) -> tuple[Any, ...]:
    if isinstance(part, Gap):
        return (GAP, part.count)
    if isinstance(part, Message):
        return (
            ONE_MESSAGE,
            part.topic,
            part.payload,
            part.qos,
            part.retain,
            part.properties,
            part.origin,
            part.epoch,
            part.seq,
            part.received_ms,
            part.received_by,
            part.publisher,
            part.expires_ms,
        )
    return (
        part.level,
        part.packets,
        list(part.topics),
        part.count,
        part.publisher,
        part.received_ms,
        part.gateway,
        part.epoch,
        part.first_seq,
    )


def _unpack(fields: list[Any]) -> Part | Gap:
    kind, *rest = fields
    if kind == ONE_MESSAGE:
        return Message(*rest)
    if kind == GAP:
        return Gap(*rest)
    packets, topics, count, publisher, received_ms, gateway, epoch, first_seq = rest
    names = dict.fromkeys(topics)
    batch = PublishBatch(packets, names, count, kind, publisher, received_ms, gateway)
    batch.epoch, batch.first_seq, batch.bring_identities = epoch, first_seq, not first_seq
    return batch
