"""Damaged messages: they are set aside, so that delivery goes on behind them, and noted as a range of identities.

The bytes of a corrupt row stay in the table ``damaged`` for inspection. SQLite cannot read any row of a damaged page:
these rows are a hole, of which no bytes are kept. Which identities of this store they had follows from the rows before
and behind them; identities that a message brought along are unknown.

Corrupt places of consumers, sessions and wills are set aside when the store is opened. The name in such a row may be
corrupt as well, so a consumer without a place goes on at the oldest message that is left.
"""

import logging
import sqlite3
import sys
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from gateway.errors import is_damage
from gateway.store.consumer_names import LOST
from gateway.store.sqlite import quarantine
from gateway.store.sqlite.quarantine import Note
from gateway.store.sqlite.rows import first_row, sealed, take_out_corrupt
from gateway.store.tables import cursors, log_rows
from gateway.store.tables.drops import DAMAGED, GATEWAY
from gateway.store.tables.drops import INSERT as INSERT_RANGE
from gateway.store.tables.log_rows import CorruptRow, Hole

SCHEMA = """
CREATE TABLE damaged (
    first INTEGER NOT NULL,
    last INTEGER PRIMARY KEY,
    found_ms INTEGER NOT NULL,
    deflated INTEGER NOT NULL,
    crc INTEGER NOT NULL,
    body BLOB NOT NULL
) STRICT;
"""

SET_ASIDE = "INSERT OR IGNORE INTO damaged SELECT ?, last, ?, deflated, crc, body FROM message_group WHERE last = ?"
NOTE_HOLE = "INSERT OR IGNORE INTO damaged VALUES (?, ?, ?, 0, 0, x'')"
# Only the last position of a row that was set aside is certain.
HOLE_AT = "SELECT last FROM damaged WHERE last >= ?1 AND (last = ?1 OR (body = x'' AND first <= ?1))"
NOTED_BEHIND = "SELECT min(iif(body = x'', first, last)) FROM damaged WHERE last > ?1"
# SQLite checks neither the order of the rows in a damaged page nor their types: it may find NULLs there.
HAS_NUMBERS = "typeof(count) = 'integer' AND typeof(seq) = 'integer'"
NUMBERS_UP_TO = f"SELECT last, seq FROM message_group WHERE last <= ? AND {HAS_NUMBERS} ORDER BY last DESC LIMIT 1"
# Not "last > ?": SQLite would first look for the row with that number, which may be in the damaged page.
ROW_FROM = "SELECT * FROM message_group WHERE last >= ? AND last <= ? ORDER BY last LIMIT 1"
NUMBERS_FROM = f"""
SELECT last, count, seq FROM message_group
WHERE last >= ?1 AND last <= ?2 AND +last >= ?1 AND {HAS_NUMBERS} ORDER BY last LIMIT 1
"""

REASON = "it is not as it was stored"
WHAT = {  # set aside when the store is opened: what a row of each table is
    "cursor": "the place of consumer",
    "ending": "the end of consumer",
    "read_to": "up to when this was read:",
    "refused": "a message that was set aside by",
    "route": "what is known of",
    "seen": "identities that came over links, of origin",
    "seen_digest": "digests of messages that came over links, of origin",
    "session": "the session of client",
    "taken_command": "the newest command of",
    "unsent": "what was not handed on by",
    "will": "the will of client",
}

Numbers = tuple[int, int]
"""A position, and the last sequence number that this store has given up to there."""

logger = logging.getLogger(__name__)


def known_hole(connection: sqlite3.Connection, position: int) -> Hole | None:
    """Returns the rest of a hole that was set aside before, from a position on; None if there is none."""
    found = first_row(connection, HOLE_AT, (position,))
    return Hole(position, found[0]) if found else None


def find_hole(connection: sqlite3.Connection, position: int, up_to: int) -> CorruptRow:
    """Returns the unreadable rows from a position on: up to the next readable row, the next known hole, or the end."""
    good = _nearest(lambda at: _can_read(connection, NUMBERS_FROM, (at, up_to)), position, up_to)
    found = first_row(connection, NUMBERS_FROM, (good, up_to))
    last, count, _ = found or (up_to, 0, 0)
    # If the row at the position itself is found, only its body cannot be read.
    last = last - count if last - count >= position else last
    (noted,) = first_row(connection, NOTED_BEHIND, (position,))
    return CorruptRow(position, last if noted is None else min(last, noted - 1), is_hole=True)


def set_aside(
    reader: sqlite3.Connection, damage: CorruptRow, count: int, origin: str, epoch: int
) -> Callable[[sqlite3.Connection], None]:
    """Returns the work that takes unreadable messages out of the log; later positions and identities stay as they are.

    It reads the rows around them before the work runs: a transaction that has met a damaged page writes nothing more.
    """
    before = _numbers_before(reader, damage.first)
    if damage.is_hole:
        behind = _numbers_behind(reader, damage.last + 1, origin, epoch)
    else:
        behind = (damage.last, *first_row(reader, log_rows.SEQ_OF, (damage.last,)))
    own = _own_among(damage, before, behind)

    def write(connection: sqlite3.Connection) -> None:
        now_ms = int(time.time() * 1000)
        if damage.is_hole:
            connection.execute(NOTE_HOLE, (damage.first, damage.last, now_ms))
        else:
            connection.execute(SET_ASIDE, (damage.first, now_ms, damage.last))
            log_rows.empty(connection, damage.last)
        connection.execute(INSERT_RANGE, (DAMAGED, GATEWAY, "", origin, epoch, *own, count, now_ms, now_ms))

    return write


def _own_among(damage: CorruptRow, before: Numbers | None, behind: Numbers) -> tuple[int, int]:
    """Returns the first and last sequence number of this store that damaged messages may have, (0, 0) if none.

    ``before`` has the last position of the nearest readable row before them, if there is one; ``behind`` has the
    position before the nearest readable row behind them. Each position between the two may have an identity.
    """
    first = behind[1] - (behind[0] - damage.first)
    last = behind[1]
    if before is not None:
        first, last = max(first, before[1] + 1), min(last, before[1] + damage.last - before[0])
    else:
        first, last = max(first, 1), last - (behind[0] - damage.last)
    return (first, last) if first <= last else (0, 0)


def _numbers_before(connection: sqlite3.Connection, position: int) -> Numbers | None:
    start = max(0, position - 1)
    good = _nearest(lambda at: _can_read(connection, NUMBERS_UP_TO, (at,)), start, -1)
    return first_row(connection, NUMBERS_UP_TO, (good,)) if good >= 0 else None


def _numbers_behind(connection: sqlite3.Connection, position: int, origin: str, epoch: int) -> Numbers:
    good = _nearest(lambda at: _can_read(connection, NUMBERS_FROM, (at, sys.maxsize)), position, sys.maxsize - 1)
    found = first_row(connection, NUMBERS_FROM, (good, sys.maxsize))
    if found is None:
        return position - 1, 0
    last, count, seq = found
    begin = max(last - count, position - 1)
    try:
        parts = log_rows.decode(first_row(connection, ROW_FROM, (good, sys.maxsize))).parts
    except sqlite3.DatabaseError as error:
        if not (isinstance(error, CorruptRow) or is_damage(error)):
            raise
        parts = []
    if not parts:  # also damaged: each position may have an identity
        return begin, seq - (last - begin)
    messages = [message for part in parts for message in part.messages()]
    own = [message.seq for message in messages if (message.origin, message.epoch) == (origin, epoch)]
    return begin, min(own) - 1 if own else seq


def _nearest(can_read: Callable[[int], bool], position: int, end: int) -> int:
    """Returns the nearest readable position up to an end, by bisection; a position beyond the end if there is none."""
    step = 1 if end >= position else -1
    bad, good = position - step, position
    while (end - good) * step >= 0 and not can_read(good):
        bad, good = good, good + 2 * (good - bad)
    if (end - good) * step < 0:
        good = end + step
    while abs(good - bad) > 1:
        middle = (bad + good) // 2
        bad, good = (bad, middle) if can_read(middle) else (middle, good)
    return good


def _can_read(connection: sqlite3.Connection, query: str, values: tuple[int, ...]) -> bool:
    try:
        first_row(connection, query, values)
    except sqlite3.DatabaseError as error:
        if is_damage(error):
            return False
        raise
    return True


def set_corrupt_rows_aside(connection: sqlite3.Connection, path: Path) -> None:
    """Takes corrupt rows out of a store's file, each with a note in the quarantine. Raises sqlite3.Error."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        found = {table: take_out_corrupt(connection, table) for table in WHAT}
        notes = [_note(path.name, table, row) for table, rows in found.items() for row in rows]
        if notes:
            quarantine.set_aside(path.parent, notes)
        if found["cursor"]:
            (oldest,) = connection.execute(log_rows.OLDEST).fetchone() or (1,)
            connection.execute(cursors.SAVE, sealed((LOST, oldest - 1, 0)))
        connection.execute("COMMIT")
    except BaseException:
        connection.rollback()
        raise
    for note in notes:
        logger.error("message store: %s was set aside: %s", note.what, note.reason)


def _note(file: str, table: str, row: tuple[object, ...]) -> Note:
    what = f"{WHAT[table]} {_text_of(row[table == 'ending'])!r}"
    if table == "session" and (topic_filter := _text_of(row[1])):
        what = f"the subscription {topic_filter!r} of client {_text_of(row[0])!r}"
    return Note(file, what, REASON, "in the note", body=msgspec.msgpack.encode(row))


def _text_of(value: object) -> object:
    return value.decode(errors="replace") if isinstance(value, bytes) else value
