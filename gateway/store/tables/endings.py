"""The table ``ending``: a row for each consumer that has ended, until the messages that waited for it have ranges.

Rows with numbers below 0 list messages that a full store has evicted while they were in flight to a consumer
[gateway.store.tables.evicted].
"""

import sqlite3
from collections.abc import Callable

import msgspec

from gateway.message import Message
from gateway.store.sqlite.rows import sealed
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
    """A message's identity and its publisher: what a range needs of the message."""

    publisher: str
    origin: str
    epoch: int
    seq: int

    def message(self) -> Message:
        """Returns a message without topic name and payload that has this identity."""
        return Message("", b"", publisher=self.publisher, origin=self.origin, epoch=self.epoch, seq=self.seq)


class StoredEnding(msgspec.Struct, frozen=True):
    """A consumer as it was when it ended.

    A message waited for the consumer in one of three cases. Its position is in ``on_the_way``: it was in flight, and
    not acknowledged. Its position is in one of the ``ranges`` behind ``unread_from``, and one of the ``subscriptions``
    matches it. Its topic name is in ``held_back``, and its position is between the two positions
    there. No message at a position in ``given_away`` waited: a QoS 2 flow has taken it.

    If there are ``kept`` subscriptions, the consumer goes on with these, and messages that they match still wait.

    If there are messages in ``evicted``, the consumer has not ended, and the other fields are empty.
    """

    consumer: str
    unread_from: int
    on_the_way: list[int]
    given_away: list[int]
    ranges: list[tuple[int, int]] = msgspec.field(name="places")
    subscriptions: list[Subscription]
    held_back: dict[str, tuple[int, int]] = msgspec.field(default_factory=dict, name="set_aside")
    evicted: list[Identity] = []
    kept: list[Subscription] = []


def load(connection: sqlite3.Connection) -> dict[int, StoredEnding]:
    """Returns the endings by their numbers."""
    rows = connection.execute(LOAD)
    return {number: msgspec.msgpack.decode(body, type=StoredEnding) for number, body in rows}


def save(number: int, ending: StoredEnding) -> Write:
    """Returns the work that writes an ending."""
    row = sealed((number, ending.consumer, msgspec.msgpack.encode(ending)))

    def write(connection: sqlite3.Connection) -> None:
        connection.execute(SAVE, row)

    return write


def remove(number: int) -> Write:
    """Returns the work that removes an ending."""

    def write(connection: sqlite3.Connection) -> None:
        connection.execute(REMOVE, (number,))

    return write
