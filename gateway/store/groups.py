"""The log's table: one row for what one commit stored, however many messages that is.

A row's ``body`` is MessagePack, deflated where ``deflated`` says so: an array of parts in order. A part is a run of
PUBLISHes as they came, one message field by field, or a gap: positions of messages that were taken out, as no consumer
needed them. The first element says which. ``crc`` is that of all else in the row (``crc_of``). A row has the positions
``last - count + 1`` to ``last``, and the next row those that follow; ``seq`` is the last number of an identity of this
store's own that was given up to there.
"""

import contextlib
import sqlite3
import struct
import zlib
from collections.abc import Generator, Iterator, Sequence
from typing import Any

import msgspec

from gateway.message import MESSAGE_OVERHEAD, Message
from gateway.store.run import OVERHEAD, Run

SCHEMA = """
CREATE TABLE message_group (
    last INTEGER PRIMARY KEY,
    count INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    deflated INTEGER NOT NULL,
    crc INTEGER NOT NULL,
    body BLOB NOT NULL
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

ROW_BYTES_MAX = 256 * 1024  # a commit with more of them takes several rows: a row is read as a whole
DEFLATE_FROM = 256  # bytes; less becomes no smaller
NO_PARTS = msgspec.msgpack.encode([])
ONE_MESSAGE, GAP = 0, 1  # a part's first element; a run has its protocol level there
PART_OVERHEAD = 60  # bytes in a row besides topic, payload and properties, roughly

Row = tuple[int, int, int, int, int, bytes]
Part = Message | Run
"""What is stored in one piece: a message, or many as they came."""


class Gap:
    """Positions whose messages were taken out of the log: a run of ``count`` messages of which none is left."""

    __slots__ = ("count",)
    size = 0
    publisher = ""
    topics: tuple[str, ...] = ()

    def __init__(self, count: int) -> None:
        self.count = count

    def messages(self) -> list[Message]:
        """Returns none."""
        return []


class Group:
    """What is at the positions ``first`` to ``last``: parts in order, or no part where the messages were damaged.

    ``message_count`` is how many messages are left of them.
    """

    __slots__ = ("first", "last", "message_count", "parts", "size")

    def __init__(self, first: int, parts: Sequence[Part | Gap], last: int | None = None) -> None:
        self.first = first
        self.last = first + sum(part.count for part in parts) - 1 if last is None else last
        self.parts = parts
        self.size = sum(part.size for part in parts)
        self.message_count = sum(part.count for part in parts if not isinstance(part, Gap))

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


class Hole(Group):
    """Positions of messages that were set aside where SQLite gets at none of their rows: these are still there."""

    __slots__ = ()

    def __init__(self, first: int, last: int) -> None:
        super().__init__(first, [], last)


class CorruptGroup(sqlite3.DatabaseError):
    """Messages that cannot be read: those at the positions ``first`` to ``last``.

    ``is_hole`` where not even their rows can: SQLite gets at nothing there.
    """

    def __init__(self, first: int, last: int, *, is_hole: bool = False) -> None:
        super().__init__(f"the messages at positions {first} to {last} are damaged in the file")
        self.first = first
        self.last = last
        self.is_hole = is_hole


def split(first: int, parts: Sequence[Part]) -> Iterator[Group]:
    """Yields groups of consecutive parts, none of more than ROW_BYTES_MAX but for a single part."""
    begin = size = 0
    for index, part in enumerate(parts):
        size += part.size
        if size > ROW_BYTES_MAX and index > begin:
            yield (group := Group(first, parts[begin:index]))
            begin, size, first = index, part.size, group.last + 1
    if begin < len(parts):
        yield Group(first, parts[begin:])


def write(connection: sqlite3.Connection, first: int, parts: list[Part], seq: int, deflate: bool) -> int:
    """Inserts parts from a position on, in the transaction that the connection is in; returns how many bytes.

    ``seq`` is the last number of an identity of this store's own that was given so far.
    """
    written = 0
    for group in split(first, parts):
        row = row_of(group, seq, deflate)
        connection.execute(INSERT, row)
        written += len(row[-1])
    return written


def row_of(group: Group, seq: int, deflate: bool) -> Row:
    """Returns a group as it stands in the table."""
    body = msgspec.msgpack.encode([_pack(part) for part in group.parts])
    deflated = zlib.compress(body, 1) if deflate and len(body) >= DEFLATE_FROM else body
    is_smaller = len(deflated) < len(body)
    body = deflated if is_smaller else body
    count = group.last - group.first + 1
    return (group.last, count, seq, is_smaller, crc_of(group.last, count, seq, is_smaller, body), body)


def replace(
    connection: sqlite3.Connection, first: int, last: int, parts: Sequence[Part | Gap], *, deflate: bool
) -> bool:
    """Puts one row in the place of those that have the positions from one to another; returns whether it could.

    It cannot where a row begins before them, or ends behind them, or some of them are gone.
    """
    (before,) = connection.execute(SPAN_FROM, (first - 1,)).fetchone() or (None,)
    (seq,) = connection.execute(SEQ_OF, (last,)).fetchone() or (None,)
    if before != first - 1 or seq is None:
        return False
    connection.execute(DELETE, (before, last))
    connection.execute(INSERT, row_of(Group(first, parts, last), seq, deflate))
    return True


def stored_size(part: Part | Gap) -> int:
    """Returns how many bytes a part takes up in a row, roughly."""
    if isinstance(part, Gap):
        return 0
    return part.size + PART_OVERHEAD - (OVERHEAD if isinstance(part, Run) else MESSAGE_OVERHEAD)


def empty(connection: sqlite3.Connection, last: int) -> None:
    """Takes the messages out of the row that ends at a position."""
    count, seq = connection.execute("SELECT count, seq FROM message_group WHERE last = ?", (last,)).fetchone()
    connection.execute(EMPTY, (crc_of(last, count, seq, False, NO_PARTS), NO_PARTS, last))


def read(connection: sqlite3.Connection, after: int, up_to: int) -> Generator[Group]:
    """Yields the groups that hold the messages behind one position up to another. Raises CorruptGroup."""
    with contextlib.closing(connection.execute(READ, (after, up_to))) as rows:
        for row in rows:
            yield decode(row)


def decode(row: Row) -> Group:
    """Returns the group of a row. Raises CorruptGroup."""
    last, count, seq, deflated, crc, body = row
    first = last - count + 1
    try:
        if crc_of(last, count, seq, deflated, body) != crc:
            raise ValueError
        parts = msgspec.msgpack.decode(zlib.decompress(body) if deflated else body)
    except (ValueError, zlib.error) as error:
        raise CorruptGroup(first, last) from error
    return Group(first, [_unpack(part) for part in parts], last)


def crc_of(last: int, count: int, seq: int, deflated: int, body: bytes) -> int:
    """Returns the CRC-32 of a row: of its body behind its numbers, 8 bytes each, the first byte the highest."""
    return zlib.crc32(body, zlib.crc32(struct.pack(">4q", last, count, seq, deflated)))


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
    return Run(packets, names, count, kind, publisher, received_ms, gateway, epoch, first_seq, not first_seq)
