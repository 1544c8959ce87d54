"""The statements of routes among landed messages [docs/reference/route-numbers.md], as rows of their tables.

A statement decides what counts as lost. So it is believed only if the message is one that its gateway's route would
send: on the statements' topic of this route, made by this gateway, and handed on by this route.
"""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cloud.transforms.record import PAYLOAD_MAX
from cloud.transforms.rows import TIME_END_MS
from cloud.transforms.verdicts.classify import Numbers
from wire.route_numbers import STATEMENT_TOPICS, STATEMENT_TYPE, Statement, decode_statement, statement_topic

STATEMENTS = "statements"
ORIGINS = "statement_origins"
DROPPED = "statement_dropped"
REFUSED = "statement_refused"
LEFT_OUT = "statement_left_out"
"""The tables."""


class Stated(NamedTuple):
    """What the statements of a file say: rows of Python values by table, and the faults of others by their place."""

    rows: dict[str, list[tuple[Any, ...]]]
    problems: dict[int, str]


class _Refused(Exception):
    """A message is not the statement that it seems to be. The text says why."""


def find_statements(messages: pa.Table) -> Numbers:
    """Returns the places of the messages that are, or seem to be, statements."""
    typed = pc.fill_null(pc.equal(messages["content_type"], STATEMENT_TYPE), False)
    return np.flatnonzero(pc.or_(typed, pc.starts_with(messages["topic"], STATEMENT_TOPICS)).to_numpy())


def read_statements(messages: pa.Table, places: Numbers, batch: int) -> Stated:
    """Returns what the messages at these places state."""
    stated = Stated({STATEMENTS: [], ORIGINS: [], DROPPED: [], REFUSED: [], LEFT_OUT: []}, {})
    for place, message in zip(places.tolist(), messages.take(pa.array(places)).to_pylist(), strict=True):
        try:
            statement = _check(message)
        except (_Refused, ValueError) as error:
            stated.problems[place] = f"no statement of a route: {error}"
            continue
        for table, row in _rows(statement, message["seq"], _time_of(message), batch):
            stated.rows[table].append(row)
    return stated


def _check(message: dict[str, Any]) -> Statement:
    """Returns the statement in a message. Raises _Refused and ValueError."""
    topic = message["topic"]
    if message["content_type"] != STATEMENT_TYPE:
        raise _Refused(f"its content type is {message['content_type']!r}")
    if len(message["payload"]) > PAYLOAD_MAX:
        raise _Refused(f"it has {len(message['payload'])} bytes; up to {PAYLOAD_MAX} are decoded")
    statement = decode_statement(message["payload"])
    for text in _texts(statement):
        text.encode()
    if statement_topic(statement.gateway, statement.route) != topic:
        raise _Refused(f"{statement.gateway}/{statement.route} makes none on the topic {topic}")
    if message["origin"] != statement.gateway:
        raise _Refused(f"its origin is {message['origin']!r}, not its gateway {statement.gateway!r}")
    if message["received_ms"] is not None and not 0 <= message["received_ms"] < TIME_END_MS:
        raise _Refused("its time of acceptance is beyond the year 9999")
    links = [(link["gateway"], link["route"]) for link in message["via"]]
    if (statement.gateway, statement.route) not in links:
        raise _Refused(f"it did not come over the route {statement.route!r} of {statement.gateway!r}")
    return statement


def _texts(statement: Statement) -> Iterator[str]:
    yield from (statement.gateway, statement.route)
    for handed in statement.origins:
        yield handed.origin
    for one in statement.dropped:
        yield from (one.reason, one.consumer, one.origin)
    for left in statement.left_out:
        yield left.origin


def _time_of(message: dict[str, Any]) -> datetime | None:
    received_ms = message["received_ms"]
    return None if received_ms is None else datetime.fromtimestamp(received_ms / 1000, UTC)


def _rows(
    statement: Statement, seq: int, stated_at: datetime | None, batch: int
) -> Iterator[tuple[str, tuple[Any, ...]]]:
    about = (statement.gateway, statement.route, f"{statement.epoch:08x}", statement.statement)
    yield STATEMENTS, (*about, statement.first, statement.last, bool(statement.backfill), seq, stated_at, batch)
    for handed in statement.origins:
        seqs = (handed.highest, handed.messages, handed.first, handed.last)
        yield ORIGINS, (*about, handed.origin, f"{handed.epoch:08x}", *seqs, stated_at, batch)
    for one in statement.dropped:
        origin = (one.origin, f"{one.epoch:08x}")
        counts = (one.first, one.last, one.messages)
        yield DROPPED, (*about, one.reason, one.consumer, *origin, *counts, stated_at, batch)
    for lo, hi in statement.refused:
        yield REFUSED, (*about, lo, hi, batch)
    for left in statement.left_out:
        for lo, hi in left.runs:
            yield LEFT_OUT, (*about, left.origin, f"{left.epoch:08x}", lo, hi, batch)
