"""The log's table: one row for what one commit stored, however many messages that is.

A row's ``body`` is MessagePack, deflated where ``deflated`` says so, with ``crc`` its CRC-32 as it lies there: an array
of parts in order. A part is a run of PUBLISHes as they came, or one message field by field; the first element says
which. A row holds the messages at the positions ``last - count + 1`` to ``last``; ``seq`` is the last number of an
identity of this store's own that was given up to there.
"""

import sqlite3
import zlib
from collections.abc import Generator, Iterator
from typing import Any

import msgspec

from gateway.message import Message
from gateway.store.run import Run

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
READ = "SELECT last, count, deflated, crc, body FROM message_group WHERE last > ? AND last <= ? ORDER BY last"
EMPTY = "UPDATE message_group SET deflated = 0, crc = ?, body = ? WHERE last = ?"
TRIM = "DELETE FROM message_group WHERE last <= ?"
NEWEST = "SELECT last, seq FROM message_group ORDER BY last DESC LIMIT 1"
OLDEST = "SELECT last - count + 1 FROM message_group ORDER BY last LIMIT 1"

ROW_BYTES_MAX = 256 * 1024  # a commit with more of them takes several rows: a row is read as a whole
DEFLATE_FROM = 256  # bytes; less becomes no smaller
ONE_MESSAGE = 0  # a part's first element; a run has its protocol level there

Part = Message | Run
"""What is stored in one piece: a message, or many as they came."""


class Group:
    """Consecutive messages, the first at position ``first``, the last at ``last``; none where they were damaged."""

    __slots__ = ("first", "last", "parts", "size")

    def __init__(self, first: int, parts: list[Part], last: int | None = None) -> None:
        self.first = first
        self.last = first + sum(part.count for part in parts) - 1 if last is None else last
        self.parts = parts
        self.size = sum(part.size for part in parts)

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


class CorruptGroup(sqlite3.DatabaseError):
    """A row that cannot be read; the messages are those behind ``first - 1`` up to ``last``."""

    def __init__(self, first: int, last: int) -> None:
        super().__init__(f"the messages at positions {first} to {last} are damaged in the file")
        self.first = first
        self.last = last


def split(first: int, parts: list[Part]) -> Iterator[Group]:
    """Yields groups of consecutive parts, none of more than ROW_BYTES_MAX but for a single part."""
    begin = size = 0
    for index, part in enumerate(parts):
        size += part.size
        if size > ROW_BYTES_MAX and index > begin:
            yield (group := Group(first, parts[begin:index]))
            begin, size, first = index, part.size, group.last + 1
    if begin < len(parts):
        yield Group(first, parts[begin:])


def write(connection: sqlite3.Connection, first: int, parts: list[Part], seq: int, deflate: bool) -> None:
    """Inserts parts from a position on, in the transaction that the connection is in.

    ``seq`` is the last number of an identity of this store's own that was given so far.
    """
    for group in split(first, parts):
        body = msgspec.msgpack.encode([_pack(part) for part in group.parts])
        deflated = zlib.compress(body, 1) if deflate and len(body) >= DEFLATE_FROM else body
        is_smaller = len(deflated) < len(body)
        body = deflated if is_smaller else body
        row = (group.last, group.last - group.first + 1, seq, is_smaller, zlib.crc32(body), body)
        connection.execute(INSERT, row)


def empty(connection: sqlite3.Connection, last: int) -> None:
    """Takes the messages out of the row that ends at a position."""
    body = msgspec.msgpack.encode([])
    connection.execute(EMPTY, (zlib.crc32(body), body, last))


def read(connection: sqlite3.Connection, after: int, up_to: int, epoch: int) -> Generator[Group]:
    """Yields the groups that hold the messages behind one position up to another. Raises CorruptGroup."""
    for last, count, deflated, crc, body in connection.execute(READ, (after, up_to)):
        first = last - count + 1
        try:
            if zlib.crc32(body) != crc:
                raise ValueError
            parts = msgspec.msgpack.decode(zlib.decompress(body) if deflated else body)
        except (ValueError, zlib.error) as error:
            raise CorruptGroup(first, last) from error
        yield Group(first, [_unpack(part, epoch) for part in parts], last)


def _pack(part: Part) -> tuple[Any, ...]:
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
        part.first_seq,
    )


def _unpack(fields: list[Any], epoch: int) -> Part:
    kind, *rest = fields
    if kind == ONE_MESSAGE:
        return Message(*rest)
    packets, topics, count, publisher, received_ms, gateway, first_seq = rest
    return Run(packets, dict.fromkeys(topics), count, kind, publisher, received_ms, gateway, epoch, first_seq)
