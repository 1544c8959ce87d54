"""QoS 2 messages on their way, in both directions [section 4.3.3].

An outgoing flow belongs to one session or route. Its row is written before its PUBLISH is sent, and again before its
PUBREL. Then its message counts as acknowledged for the cursor that handed it out. The row of a flow that is done stays
until the saved place of that cursor, and of a route's backfill too, is behind the message: else a crash would begin
the flow a second time. The newest row of each session stays until the session ends: behind its packet identifier the
next start goes on, as a client may still have something under those before it.
A route's column batch is one flow for all of its messages.

The packet identifier of an incoming message is written in the transaction that stores the message, so that a PUBLISH
that is sent again after a crash is known. With it goes the digest of its content, to the table `released`. It stays
there behind the PUBREL, for the seconds in which the PUBCOMP may be lost.
"""

import sqlite3
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import msgspec

from gateway.store.consumer_names import BACKFILL
from gateway.store.tables.evicted import EvictedMessage

BEGUN, RELEASED, DONE, ENDED = range(4)  # ENDED: done, and so is the session
ROUTE_END = "\0"  # ends the session name of a route's flows: no client identifier contains it [MQTT-1.5.4-2]

SCHEMA = """
CREATE TABLE flow (
    session TEXT NOT NULL,
    packet_identifier INTEGER NOT NULL,
    source TEXT NOT NULL,
    position INTEGER NOT NULL,
    topic TEXT NOT NULL,
    retain INTEGER NOT NULL,
    identifiers BLOB NOT NULL,
    state INTEGER NOT NULL,
    ranges BLOB NOT NULL,
    via TEXT NOT NULL
) STRICT;
CREATE INDEX flow_of ON flow (session, packet_identifier);
CREATE TABLE incoming (
    session TEXT NOT NULL,
    packet_identifier INTEGER NOT NULL,
    PRIMARY KEY (session, packet_identifier)
) STRICT, WITHOUT ROWID;
"""

BEGIN = "INSERT INTO flow VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
MOVE = "UPDATE flow SET state = ? WHERE session = ? AND packet_identifier = ? AND state < ?"
BEGIN_AGAIN = f"UPDATE flow SET state = {BEGUN} WHERE session = ? AND packet_identifier = ? AND state = {RELEASED}"
END_ALL = f"UPDATE flow SET state = {ENDED} WHERE session = ?"
FORGET_DONE = f"""
DELETE FROM flow
WHERE (state = {ENDED} OR (state = {DONE} AND rowid NOT IN (SELECT max(rowid) FROM flow GROUP BY session)))
AND NOT EXISTS (
    SELECT 1 FROM cursor
    WHERE cursor.consumer IN (flow.source, '{BACKFILL}' || flow.source) AND cursor.position < flow.position
)
"""
RELEASED_SCHEMA = """
CREATE TABLE IF NOT EXISTS released (
    session TEXT NOT NULL,
    packet_identifier INTEGER NOT NULL,
    digest BLOB NOT NULL,
    PRIMARY KEY (session, packet_identifier)
) STRICT, WITHOUT ROWID
"""
NOTE_RELEASED = "INSERT OR REPLACE INTO released VALUES (?, ?, ?)"
FORGET_RELEASED = "DELETE FROM released WHERE session = ? AND packet_identifier = ?"
LOAD_INCOMING = """
SELECT session, packet_identifier, coalesce(digest, x'')
FROM incoming LEFT JOIN released USING (session, packet_identifier)
"""
LOAD_RELEASED = """
SELECT session, packet_identifier, digest FROM released
WHERE (session, packet_identifier) NOT IN (SELECT session, packet_identifier FROM incoming)
"""
NOTE_INCOMING = "INSERT OR IGNORE INTO incoming VALUES (?, ?)"
RELEASE_INCOMING = "DELETE FROM incoming WHERE session = ? AND packet_identifier = ?"
FORGET_INCOMING = "DELETE FROM incoming WHERE session = ?", "DELETE FROM released WHERE session = ?"

Write = Callable[[sqlite3.Connection], None]
Ranges = tuple[tuple[int, int], ...]
Digests = dict[int, bytes]
"""Packet identifiers of incoming messages with the digests of their contents, empty where one is not known."""


@dataclass(slots=True)
class Flow:
    """A message on its way to one session: at ``position`` in the log, or the retained message of ``topic`` from there.

    ``source`` is the consumer that it came from; ``identifiers`` are the Subscription Identifiers of the matching
    subscriptions. ``is_noted`` is True if the flow is in the file as well as in memory. ``evicted`` are told whether
    the client has received the messages that a full store has evicted meanwhile. ``ranges`` are the positions of the
    messages in a column batch, in order, and then ``position`` is the last of them. ``via`` has the route
    numbers, empty for none.
    """

    session: str
    packet_identifier: int
    source: str
    position: int
    topic: str = ""
    retain: bool = False
    identifiers: tuple[int, ...] = ()
    state: int = BEGUN
    is_noted: bool = True
    ranges: Ranges = ()
    via: str = ""
    evicted: list[EvictedMessage] = field(default_factory=list, compare=False)

    @property
    def first(self) -> int:
        """The position of its first message."""
        return self.ranges[0][0] if self.ranges else self.position

    @property
    def positions(self) -> Iterable[int]:
        """The positions of its messages, in order."""
        if not self.ranges:
            return (self.position,)
        return chain.from_iterable(range(first, last + 1) for first, last in self.ranges)

    def note_evicted(self, message: EvictedMessage) -> None:
        """A full store has evicted a message of the flow."""
        self.evicted.append(message)

    @property
    def needs_message(self) -> bool:
        """Whether the message may have to be sent again. A route's may until its PUBCOMP, as the next broker may lose
        a message that it has not released.
        """
        last = RELEASED if self.session.endswith(ROUTE_END) else BEGUN
        return self.state <= last and not self.topic


def load_flows(connection: sqlite3.Connection) -> list[Flow]:
    """Returns all flows, also the ones that are done, in the order in which they began."""
    rows = connection.execute("SELECT * FROM flow ORDER BY rowid")
    return [_flow_from(row) for row in rows]


def begin(flows: Iterable[Flow]) -> Write:
    """Returns the work that notes new flows."""
    rows = [
        (
            flow.session,
            flow.packet_identifier,
            flow.source,
            flow.position,
            flow.topic,
            flow.retain,
            msgspec.msgpack.encode(flow.identifiers),
            BEGUN,
            encode_ranges(flow.ranges),
            flow.via,
        )
        for flow in flows
    ]
    return lambda connection: _write_all(connection, BEGIN, rows)


def move(session: str, packet_identifiers: Iterable[int], state: int) -> Write:
    """Returns the work that makes flows released or done."""
    rows = [(state, session, packet_identifier, state) for packet_identifier in packet_identifiers]
    return lambda connection: _write_all(connection, MOVE, rows)


def begin_again(session: str, packet_identifiers: Iterable[int]) -> Write:
    """Returns the work that makes released flows begun ones: their messages go again from the start."""
    rows = [(session, packet_identifier) for packet_identifier in packet_identifiers]
    return lambda connection: _write_all(connection, BEGIN_AGAIN, rows)


def end_all(session: str) -> Write:
    """Returns the work that ends all flows of a session."""
    return lambda connection: _write_all(connection, END_ALL, [(session,)])


def load_incoming(connection: sqlite3.Connection) -> dict[str, Digests]:
    """Returns the incoming messages that are not released, by session."""
    return _by_session(connection, LOAD_INCOMING)


def load_released(connection: sqlite3.Connection) -> dict[str, Digests]:
    """Returns the incoming messages that were released shortly before their connections ended, by session."""
    return _by_session(connection, LOAD_RELEASED)


def _by_session(connection: sqlite3.Connection, query: str) -> dict[str, Digests]:
    found: dict[str, Digests] = {}
    for session, packet_identifier, digest in connection.execute(query):
        found.setdefault(session, {})[packet_identifier] = digest
    return found


def note_released(session: str, digests: Digests) -> Write:
    """Returns the work that notes the contents of messages, until the client has their PUBCOMPs."""
    rows = [(session, packet_identifier, digest) for packet_identifier, digest in digests.items()]
    return lambda connection: _write_all(connection, NOTE_RELEASED, rows)


def forget_released(session: str, packet_identifiers: Iterable[int]) -> Write:
    """Returns the work that forgets such messages."""
    rows = [(session, packet_identifier) for packet_identifier in packet_identifiers]
    return lambda connection: _write_all(connection, FORGET_RELEASED, rows)


def note_incoming(session: str, packet_identifiers: list[int]) -> Write:
    """Returns the work that notes incoming messages."""
    rows = [(session, packet_identifier) for packet_identifier in packet_identifiers]
    return lambda connection: _write_all(connection, NOTE_INCOMING, rows)


def release_incoming(session: str, packet_identifiers: list[int]) -> Write:
    """Returns the work that frees packet identifiers which the client has released."""
    rows = [(session, packet_identifier) for packet_identifier in packet_identifiers]
    return lambda connection: _write_all(connection, RELEASE_INCOMING, rows)


def forget_incoming(session: str) -> Write:
    """Returns the work that forgets all incoming messages of an ended session, released ones too."""

    def forget(connection: sqlite3.Connection) -> None:
        for statement in FORGET_INCOMING:
            connection.execute(statement, (session,))

    return forget


def _flow_from(row: tuple[Any, ...]) -> Flow:
    session, packet_identifier, source, position, topic, retain, identifiers, state, ranges, via = row
    decoded = msgspec.msgpack.decode(identifiers, type=tuple[int, ...])
    flow = Flow(session, packet_identifier, source, position, topic, bool(retain), decoded, state)
    flow.ranges, flow.via = decode_ranges(ranges), via
    return flow


def encode_ranges(ranges: Ranges) -> bytes:
    """Returns ranges as the table has them."""
    return msgspec.msgpack.encode(ranges)


def decode_ranges(encoded: bytes) -> Ranges:
    """Returns the ranges of a row."""
    return msgspec.msgpack.decode(encoded, type=Ranges)


def _write_all(connection: sqlite3.Connection, statement: str, rows: Sequence[tuple[object, ...]]) -> None:
    connection.executemany(statement, rows)
