"""Messages that the medium has spoilt: set aside, so that everything behind them goes on, and noted as a range.

The bytes of a row stay in ``damaged`` for whoever wants to look at them. Where a page is damaged SQLite gets at none of
its rows: these are a hole, of which there are no bytes. Identities of this store's own among them are known by what is
before and after; those that a message brought from elsewhere are not.
"""

import sqlite3
import sys
import time
from collections.abc import Callable

from gateway.errors import is_damage
from gateway.store import groups
from gateway.store.drops import GATEWAY
from gateway.store.drops import INSERT as INSERT_RANGE
from gateway.store.groups import CorruptGroup, Hole
from gateway.store.reading import first_row

DAMAGED = "damaged"

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
# Of a row that was set aside only its last position is certain.
HOLE_AT = "SELECT last FROM damaged WHERE last >= ?1 AND (last = ?1 OR (body = x'' AND first <= ?1))"
NOTED_BEHIND = "SELECT min(iif(body = x'', first, last)) FROM damaged WHERE last > ?1"
PLACE_UP_TO = "SELECT last, seq FROM message_group WHERE last <= ? ORDER BY last DESC LIMIT 1"
# Not "last > ?": for that SQLite goes where a row with that number would be, which may be in the damaged page.
ROW_FROM = "SELECT * FROM message_group WHERE last >= ? AND last <= ? ORDER BY last LIMIT 1"
PLACE_FROM = "SELECT last, count, seq FROM message_group WHERE last >= ? AND last <= ? ORDER BY last LIMIT 1"


def known_hole(connection: sqlite3.Connection, position: int) -> Hole | None:
    """Returns the rest of a hole that was set aside, from a position on."""
    found = first_row(connection, HOLE_AT, (position,))
    return Hole(position, found[0]) if found else None


def find_hole(connection: sqlite3.Connection, position: int, up_to: int) -> CorruptGroup:
    """Returns what cannot be read from a position on: up to the next row that can, to what is noted, or to the end."""
    good = _nearest(lambda at: _can_read(connection, PLACE_FROM, (at, up_to)), position, up_to)
    place = first_row(connection, PLACE_FROM, (good, up_to))
    last, count, _ = place or (up_to, 0, 0)
    # Where the row at the position itself shows, it is its body that cannot be read.
    last = last - count if last - count >= position else last
    (noted,) = first_row(connection, NOTED_BEHIND, (position,))
    return CorruptGroup(position, last if noted is None else min(last, noted - 1), is_hole=True)


def set_aside(
    reading: sqlite3.Connection, damage: CorruptGroup, count: int, origin: str, epoch: int
) -> Callable[[sqlite3.Connection], None]:
    """Returns what takes so many messages out of the log; positions and identities go on behind them.

    It looks around before it is called: a transaction that has met a damaged page writes nothing any more.
    """
    before = _place_before(reading, damage.first)
    if damage.is_hole:
        behind = _place_behind(reading, damage.last + 1, origin, epoch)
    else:
        behind = (damage.last, *first_row(reading, groups.SEQ_OF, (damage.last,)))
    own = _own_among(damage, before, behind)

    def write(connection: sqlite3.Connection) -> None:
        now_ms = int(time.time() * 1000)
        if damage.is_hole:
            connection.execute(NOTE_HOLE, (damage.first, damage.last, now_ms))
        else:
            connection.execute(SET_ASIDE, (damage.first, now_ms, damage.last))
            groups.empty(connection, damage.last)
        connection.execute(INSERT_RANGE, (DAMAGED, GATEWAY, "", origin, epoch, *own, count, now_ms, now_ms))

    return write


Place = tuple[int, int]
"""A position, and the last number of an own identity given up to there."""


def _own_among(damage: CorruptGroup, before: Place | None, behind: Place) -> tuple[int, int]:
    """The first and the last number of an own identity that damaged messages may have; (0, 0) where they have none.

    ``before`` and ``behind`` are the last position of the nearest row before them that can be read, if any, and the one
    before the nearest row behind them. Where they do not adjoin, each position between may have an identity.
    """
    first = behind[1] - (behind[0] - damage.first)
    last = behind[1]
    if before is not None:
        first, last = max(first, before[1] + 1), min(last, before[1] + damage.last - before[0])
    else:
        first, last = max(first, 1), last - (behind[0] - damage.last)
    return (first, last) if first <= last else (0, 0)


def _place_before(connection: sqlite3.Connection, position: int) -> Place | None:
    start = max(0, position - 1)
    good = _nearest(lambda at: _can_read(connection, PLACE_UP_TO, (at,)), start, -1)
    return first_row(connection, PLACE_UP_TO, (good,)) if good >= 0 else None


def _place_behind(connection: sqlite3.Connection, position: int, origin: str, epoch: int) -> Place:
    good = _nearest(lambda at: _can_read(connection, PLACE_FROM, (at, sys.maxsize)), position, sys.maxsize - 1)
    place = first_row(connection, PLACE_FROM, (good, sys.maxsize))
    if place is None:
        return position - 1, 0
    last, count, seq = place
    begin = max(last - count, position - 1)
    try:
        parts = groups.decode(first_row(connection, ROW_FROM, (good, sys.maxsize))).parts
    except sqlite3.DatabaseError as error:
        if not (isinstance(error, CorruptGroup) or is_damage(error)):
            raise
        parts = []
    if not parts:  # damaged as well: each position may have an identity
        return begin, seq - (last - begin)
    messages = [message for part in parts for message in part.messages()]
    own = [message.seq for message in messages if (message.origin, message.epoch) == (origin, epoch)]
    return begin, min(own) - 1 if own else seq


def _nearest(can_read: Callable[[int], bool], position: int, end: int) -> int:
    """Returns the place nearest to a position from which can be read, up to an end; behind that where there is none."""
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
