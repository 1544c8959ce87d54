"""Consumers that have ended, until ranges say what waited for them: a start goes on with those that a kill has left."""

import sqlite3
from collections.abc import Callable

import msgspec

from gateway.message import Message
from gateway.store.checksum import sealed
from gateway.subscriptions import Subscription

SCHEMA = """
CREATE TABLE ending (
    number INTEGER PRIMARY KEY,
    consumer TEXT NOT NULL,
    body BLOB NOT NULL,
    crc INTEGER NOT NULL
) STRICT;
"""
SAVE = "INSERT OR REPLACE INTO ending VALUES (?, ?, ?, ?)"
REMOVE = "DELETE FROM ending WHERE number = ?"
LOAD = "SELECT number, body FROM ending ORDER BY number"

Write = Callable[[sqlite3.Connection], None]


class Identity(msgspec.Struct, frozen=True, array_like=True):
    """A message's publisher and identity: what a range needs of it."""

    publisher: str
    origin: str
    epoch: int
    seq: int

    def message(self) -> Message:
        """Returns a message that has these and nothing else."""
        return Message("", b"", publisher=self.publisher, origin=self.origin, epoch=self.epoch, seq=self.seq)


class StoredEnding(msgspec.Struct, frozen=True):
    """A consumer as it was.

    ``on_the_way`` are positions of what was sent to it and is not acknowledged, ``given_away`` of what it will not get
    though it has not passed them. Of ``places``, stretches of positions behind ``unread_from``, messages may have
    waited for it that match its ``subscriptions``; and of topic names that are ``set_aside`` all between two positions.
    ``evicted`` is there alone, of a consumer that has not ended: what a full store dropped while it was on its way.
    """

    consumer: str
    unread_from: int
    on_the_way: list[int]
    given_away: list[int]
    places: list[tuple[int, int]]
    subscriptions: list[Subscription]
    set_aside: dict[str, tuple[int, int]] = {}
    evicted: list[Identity] = []


def load(connection: sqlite3.Connection) -> dict[int, StoredEnding]:
    """Returns them by their numbers."""
    rows = connection.execute(LOAD)
    return {number: msgspec.msgpack.decode(body, type=StoredEnding) for number, body in rows}


def save(number: int, ending: StoredEnding) -> Write:
    row = sealed((number, ending.consumer, msgspec.msgpack.encode(ending)))

    def write(connection: sqlite3.Connection) -> None:
        connection.execute(SAVE, row)

    return write


def remove(number: int) -> Write:
    def write(connection: sqlite3.Connection) -> None:
        connection.execute(REMOVE, (number,))

    return write
