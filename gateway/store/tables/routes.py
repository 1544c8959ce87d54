"""The table ``route``: each route that has a cursor, also if it is no longer configured. And the table ``unsent``.

A new store, a repaired one and a copy each have an epoch of their own. A session that began under another epoch may
have QoS 2 packet identifiers that mean other messages to the next broker, so such a session is not resumed.
The route also begins epochs of its numbers then.

A row of ``unsent`` is about the positions ``chunk * CHUNK`` to ``chunk * CHUNK + CHUNK - 1`` of a route that keeps
messages until receipts: bit n of ``bits``, from the lowest of the first byte on, says that the route came past the n-th
of them without handing its message on, as rules leave it out or a limit dropped it.
"""

import sqlite3
from collections import defaultdict
from collections.abc import Callable, Iterable

import msgspec

from gateway.store.sqlite.rows import sealed

SCHEMA = """
CREATE TABLE route (
    consumer TEXT PRIMARY KEY,
    epoch INTEGER NOT NULL,
    filters BLOB NOT NULL,
    numberings BLOB NOT NULL,
    backfill BLOB NOT NULL,
    crc INTEGER NOT NULL
) STRICT;
"""
UNSENT_SCHEMA = """
CREATE TABLE IF NOT EXISTS unsent (
    consumer TEXT NOT NULL,
    chunk INTEGER NOT NULL,
    bits BLOB NOT NULL,
    crc INTEGER NOT NULL,
    PRIMARY KEY (consumer, chunk)
) STRICT;
"""
CHUNK_BITS = 13
CHUNK = 1 << CHUNK_BITS  # positions in a row of ``unsent``
SAVE = "INSERT OR REPLACE INTO route VALUES (?, ?, ?, ?, ?, ?)"
REMOVE = "DELETE FROM route WHERE consumer = ?"
LOAD = "SELECT consumer, epoch, filters, numberings, backfill FROM route ORDER BY consumer"
SAVE_UNSENT = "INSERT OR REPLACE INTO unsent VALUES (?, ?, ?, ?)"
REMOVE_UNSENT = "DELETE FROM unsent WHERE consumer = ? AND chunk < ?"
LOAD_UNSENT = "SELECT consumer, chunk, bits FROM unsent"

Write = Callable[[sqlite3.Connection], None]
UNKNOWN_FILTERS = ("",)
"""The filters of a route in a store of the first builds of 0.1.0, which noted none; its configuration has them."""


class Handed(msgspec.Struct, array_like=True):
    """How many messages of an origin's epoch were handed on, and their lowest and highest seq."""

    messages: int
    first: int
    last: int

    def take_in(self, more: "Handed") -> None:
        """Adds others of the same epoch."""
        self.messages += more.messages
        self.first, self.last = min(self.first, more.first), max(self.last, more.last)


class Numbering(msgspec.Struct):
    """The numbers that a route gives the messages of a lane [docs/reference/route-numbers.md].

    ``epoch`` is that of the numbers, 0 for none, and ``store_epoch`` the store's when they began; ``basis`` says which
    messages the route took then. ``states`` says whether there are statements. ``statements`` were made, and the last
    one says what happened up to the number ``said`` and the Unix time ``said_ms``. ``due`` are the messages from there
    up to the number ``due_to``, by origin and epoch, which the next statement is to cover once all of them are
    acknowledged; ``handed`` are those behind them up to the number ``counted``. ``left_out`` are runs of seqs that the
    route has come past for good and left out, and that no statement has named; ``left_out_ahead`` are those behind
    messages in flight, which come again after a crash: other filters may choose these then.
    """

    epoch: int = 0
    store_epoch: int = 0
    basis: str = ""
    states: bool = False
    statements: int = 0
    said: int = 0
    said_ms: int = 0
    due_to: int = 0
    due: dict[tuple[str, int], Handed] = {}
    counted: int = 0
    handed: dict[tuple[str, int], Handed] = {}
    left_out: dict[tuple[str, int], list[tuple[int, int]]] = {}
    left_out_ahead: dict[tuple[str, int], list[tuple[int, int]]] = {}


class RouteRow(msgspec.Struct, frozen=True):
    """One row.

    ``epoch`` is the store's when the route's session at the next broker began, 0 if none has begun. ``filters`` are the
    topic filters of the messages that the route takes, ``numberings`` the route numbers of its lanes, by the
    lane's place. ``backfill`` has the first and last positions of the ranges that its backfill has or had.
    """

    consumer: str
    epoch: int
    filters: tuple[str, ...]
    numberings: dict[str, Numbering] = {}
    backfill: tuple[tuple[int, int], ...] = ()


def load(connection: sqlite3.Connection) -> dict[str, RouteRow]:
    """Returns the rows by consumer."""
    rows = (
        RouteRow(
            consumer,
            epoch,
            msgspec.msgpack.decode(filters, type=tuple[str, ...]),
            msgspec.msgpack.decode(numberings, type=dict[str, Numbering]),
            msgspec.msgpack.decode(backfill, type=tuple[tuple[int, int], ...]),
        )
        for consumer, epoch, filters, numberings, backfill in connection.execute(LOAD)
    )
    return {row.consumer: row for row in rows}


def save(row: RouteRow) -> Write:
    """Returns the work that writes a row."""
    blobs = (msgspec.msgpack.encode(one) for one in (row.filters, row.numberings, row.backfill))
    columns = sealed((row.consumer, row.epoch, *blobs))

    def write(connection: sqlite3.Connection) -> None:
        connection.execute(SAVE, columns)

    return write


def remove(consumer: str) -> Write:
    """Returns the work that removes a row."""

    def write(connection: sqlite3.Connection) -> None:
        connection.execute(REMOVE, (consumer,))

    return write


def load_unsent(connection: sqlite3.Connection) -> dict[str, dict[int, int]]:
    """Returns the bits of each chunk by consumer."""
    found: dict[str, dict[int, int]] = defaultdict(dict)
    for consumer, chunk, bits in connection.execute(LOAD_UNSENT).fetchall():
        found[consumer][chunk] = int.from_bytes(bits, "little")
    return found


def save_unsent(consumer: str, chunks: Iterable[tuple[int, int]]) -> Write:
    """Returns the work that writes chunks with their bits."""
    rows = [sealed((consumer, chunk, bits.to_bytes(CHUNK // 8, "little"))) for chunk, bits in chunks]

    def write(connection: sqlite3.Connection) -> None:
        connection.executemany(SAVE_UNSENT, rows)

    return write


def remove_unsent(consumer: str, before: int) -> Write:
    """Returns the work that removes a consumer's chunks before one."""

    def write(connection: sqlite3.Connection) -> None:
        connection.execute(REMOVE_UNSENT, (consumer, before))

    return write
