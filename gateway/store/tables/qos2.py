"""QoS 2 messages on their way to a client or over a route [section 4.3.3]: noted before PUBLISH, and before PUBREL.

A flow belongs to one session or route, and the cursor that it came from is past it, so that no other consumer can get
it and no crash can begin it a second time. What is done is kept until that cursor's saved place says so too.
"""

import sqlite3
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from gateway.store.unsettled import Missing

BEGUN, RELEASED, DONE = range(3)
ROUTE_END = "\0"  # of the session name that a route's flows have: no client identifier holds it [MQTT-1.5.4-2]

SCHEMA = """
CREATE TABLE flow (
    session TEXT NOT NULL,
    packet_identifier INTEGER NOT NULL,
    source TEXT NOT NULL,
    position INTEGER NOT NULL,
    topic TEXT NOT NULL,
    retain INTEGER NOT NULL,
    identifiers BLOB NOT NULL,
    state INTEGER NOT NULL
) STRICT;
CREATE INDEX flow_of ON flow (session, packet_identifier);
"""

BEGIN = "INSERT INTO flow VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
MOVE = "UPDATE flow SET state = ? WHERE session = ? AND packet_identifier = ? AND state < ?"
END_ALL = f"UPDATE flow SET state = {DONE} WHERE session = ?"
FORGET_DONE = f"""
DELETE FROM flow WHERE state = {DONE} AND NOT EXISTS (
    SELECT 1 FROM cursor WHERE cursor.consumer = flow.source AND cursor.position < flow.position
)
"""

Write = Callable[[sqlite3.Connection], None]


@dataclass(slots=True)
class Flow:
    """One message to one session: ``position`` in the log, or the retained message of ``topic`` from there.

    ``source`` is the consumer that it came from; ``identifiers`` are those of the subscriptions that it matches.
    ``is_noted`` where it is in the file, and not in memory alone. ``missing`` is told whether the client has received
    the message, where a full store has dropped it meanwhile.
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
    missing: Missing | None = field(default=None, compare=False)


def load(connection: sqlite3.Connection) -> list[Flow]:
    """Returns all flows, those done as well, in the order in which they began."""
    rows = connection.execute("SELECT * FROM flow ORDER BY rowid")
    return [_flow_from(row) for row in rows]


def begin(flows: Iterable[Flow]) -> Write:
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
        )
        for flow in flows
    ]
    return lambda connection: _write_all(connection, BEGIN, rows)


def move(session: str, packet_identifiers: Iterable[int], state: int) -> Write:
    """Flows are released or done."""
    rows = [(state, session, packet_identifier, state) for packet_identifier in packet_identifiers]
    return lambda connection: _write_all(connection, MOVE, rows)


def end_all(session: str) -> Write:
    """A session is no more, and so are its flows."""
    return lambda connection: _write_all(connection, END_ALL, [(session,)])


def _flow_from(row: tuple[Any, ...]) -> Flow:
    session, packet_identifier, source, position, topic, retain, identifiers, state = row
    decoded = msgspec.msgpack.decode(identifiers, type=tuple[int, ...])
    return Flow(session, packet_identifier, source, position, topic, bool(retain), decoded, state)


def _write_all(connection: sqlite3.Connection, statement: str, rows: Sequence[tuple[object, ...]]) -> None:
    connection.executemany(statement, rows)
