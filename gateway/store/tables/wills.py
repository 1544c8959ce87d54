"""Wills of clients that are connected, or whose will delay has not passed [section 3.1.2.5]."""

import sqlite3
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from gateway.store.sqlite.rows import sealed
from wire.codec.packets import Publish

SCHEMA = """
CREATE TABLE will (
    session TEXT PRIMARY KEY,
    user TEXT,
    topic TEXT NOT NULL,
    payload BLOB NOT NULL,
    qos INTEGER NOT NULL,
    retain INTEGER NOT NULL,
    properties BLOB NOT NULL,
    delay_s INTEGER NOT NULL,
    due_ms INTEGER NOT NULL,
    crc INTEGER NOT NULL
) STRICT;
"""

SAVE = "INSERT OR REPLACE INTO will VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
FIND = "SELECT * FROM will WHERE session = ?"
REMOVE = "DELETE FROM will WHERE session = ?"

SIZE_OF_ONE = 1_000
USER_PROPERTY_SIZE = 100  # bytes of the objects, besides the texts

Write = Callable[[sqlite3.Connection], object]


@dataclass(slots=True, eq=False)
class StoredWill:
    """A client's will: ``publish`` is published after ``delay_s``, unless the client is back.

    ``due_ms`` is the Unix time at which the delay has passed, 0 while the client is connected. ``owner`` is the owner
    for whose limits it counts; a will from before the start has none.
    """

    session: str
    user: str | None
    publish: Publish
    delay_s: int
    due_ms: int = 0
    owner: str = ""

    @property
    def size(self) -> int:
        """Bytes of memory, an upper estimate."""
        return size_of(self.publish.topic, self.publish.payload, self.publish.properties)


def size_of(topic: str, payload: bytes, properties: Mapping[int, Any]) -> int:
    """Returns the bytes of memory that a will takes, an upper estimate."""
    size = len(topic) + len(payload)
    for value in properties.values():
        if isinstance(value, list):
            size += sum(USER_PROPERTY_SIZE + len(name) + len(text) for name, text in value)
        elif isinstance(value, str | bytes):
            size += len(value)
    return SIZE_OF_ONE + 2 * size


def load(connection: sqlite3.Connection) -> list[StoredWill]:
    """Returns all wills."""
    return [
        StoredWill(
            session, user, Publish(topic, payload, qos, bool(retain), properties=_decode(properties)), delay, due
        )
        for session, user, topic, payload, qos, retain, properties, delay, due, _ in connection.execute(
            "SELECT * FROM will"
        )
    ]


def save(will: StoredWill) -> Write:
    """Returns the work that writes a will."""
    publish = will.publish
    row = (
        will.session,
        will.user,
        publish.topic,
        publish.payload,
        publish.qos,
        int(publish.retain),
        msgspec.msgpack.encode(publish.properties),
        will.delay_s,
        will.due_ms,
    )
    return lambda connection: connection.execute(SAVE, sealed(row)) and None


def set_due(session: str, due_ms: int) -> Write:
    """Returns the work that sets when a will's delay has passed."""

    def write(connection: sqlite3.Connection) -> None:
        if row := connection.execute(FIND, (session,)).fetchone():
            connection.execute(SAVE, sealed((*row[:-2], due_ms)))

    return write


def remove(session: str) -> Write:
    """Returns the work that removes a session's will."""
    return lambda connection: connection.execute(REMOVE, (session,)) and None


def _decode(properties: bytes) -> dict[int, object]:
    return msgspec.msgpack.decode(properties, type=dict[int, object])
