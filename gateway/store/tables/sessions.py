"""The table ``session``: one row for each session, and one for each of its subscriptions.

It is in the log's file, so that a session and its place in the log are written together.
"""

import sqlite3
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import msgspec

from gateway.store.sqlite.rows import sealed
from gateway.subscriptions import Subscription

SCHEMA = """
CREATE TABLE session (
    client_id TEXT NOT NULL,
    topic_filter TEXT NOT NULL,
    body BLOB NOT NULL,
    crc INTEGER NOT NULL,
    PRIMARY KEY (client_id, topic_filter)
) STRICT;
"""
SAVE = "INSERT OR REPLACE INTO session VALUES (?, ?, ?, ?)"
REMOVE = "DELETE FROM session WHERE client_id = ? AND topic_filter = ?"
REMOVE_ALL = "DELETE FROM session WHERE client_id = ?"
LOAD = "SELECT client_id, topic_filter, body FROM session ORDER BY rowid"

Write = Callable[[sqlite3.Connection], None]


class SessionDescription(msgspec.Struct, frozen=True):
    """One durable session, without its subscriptions and its place in the log.

    ``disconnected_ms`` is the Unix time at which its connection ended, None while it is connected. ``user`` is the user
    that made it. ``link`` has the settings of the link whose other end it is, as `gateway.network.link` encodes them,
    and "" for a session of an ordinary client. ``left_at`` is the newest position in the log when its connection ended,
    0 while it is connected, or if that is not known.
    """

    expiry_s: int
    disconnected_ms: int | None
    user: str | None = None
    link: str = ""
    left_at: int = 0


SessionEntry = SessionDescription | Subscription
"""The body of a row; a row with the topic filter "" describes the session itself."""


@dataclass
class StoredSession:
    """A session with its subscriptions by topic filter (with the share name for a shared one).

    ``description`` is None if the session's own row is corrupt.
    """

    description: SessionDescription | None = None
    subscriptions: dict[str, Subscription] = field(default_factory=dict)


def load(connection: sqlite3.Connection) -> dict[str, StoredSession]:
    """Returns the sessions by client identifier, in the order in which they were saved."""
    found: dict[str, StoredSession] = {}
    for client_id, topic_filter, body in connection.execute(LOAD):
        session = found.setdefault(client_id, StoredSession())
        if topic_filter:
            session.subscriptions[topic_filter] = msgspec.msgpack.decode(body, type=Subscription)
        else:
            session.description = msgspec.msgpack.decode(body, type=SessionDescription)
    return found


@dataclass(slots=True)
class SaveSession:
    """Writes rows of a session by topic filter, "" for the session itself; None removes a row."""

    client_id: str
    entries: Mapping[str, SessionEntry | None]

    def __call__(self, connection: sqlite3.Connection) -> None:
        encode = msgspec.msgpack.Encoder().encode
        there = [(name, encode(entry)) for name, entry in self.entries.items() if entry is not None]
        connection.executemany(SAVE, [sealed((self.client_id, *row)) for row in there])
        connection.executemany(
            REMOVE, [(self.client_id, name) for name, entry in self.entries.items() if entry is None]
        )


def remove_session(client_id: str) -> Write:
    """Returns the work that removes all rows of a session."""

    def write(connection: sqlite3.Connection) -> None:
        connection.execute(REMOVE_ALL, (client_id,))

    return write


def filters_of(sessions: Iterable[StoredSession]) -> list[str]:
    """Returns the topic filters of all subscriptions, each once, in order."""
    return sorted({topic_filter for session in sessions for topic_filter in session.subscriptions})
