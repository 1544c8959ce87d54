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
from gateway.store.groups import CorruptGroup, Group
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
HOLE_AT = "SELECT last FROM damaged WHERE body = x'' AND first <= ?1 AND last >= ?1"
SEQ_UP_TO = "SELECT seq FROM message_group WHERE last <= ? ORDER BY last DESC LIMIT 1"
# Not "last > ?": for that SQLite goes where a row with that number would be, which may be in the damaged page.
ROW_FROM = "SELECT * FROM message_group WHERE last >= ? AND last <= ? ORDER BY last LIMIT 1"
PLACE_FROM = "SELECT last, count FROM message_group WHERE last >= ? AND last <= ? ORDER BY last LIMIT 1"


def known_hole(connection: sqlite3.Connection, position: int) -> Group | None:
    """Returns the rest of a hole that was set aside, from a position on, as a group without messages."""
    found = first_row(connection, HOLE_AT, (position,))
    return Group(position, [], found[0]) if found else None


def find_hole(connection: sqlite3.Connection, position: int, up_to: int) -> CorruptGroup:
    """Returns what cannot be read from a position on: up to the next row that can, or to the end."""
    bad, good = position - 1, position
    while good <= up_to and not _can_read_from(connection, good, up_to):
        bad, good = good, good + 2 * (good - bad)
    good = min(good, up_to + 1)
    while good - bad > 1:
        middle = (bad + good) // 2
        bad, good = (bad, middle) if _can_read_from(connection, middle, up_to) else (middle, good)
    place = first_row(connection, PLACE_FROM, (good, up_to))
    last, count = place or (up_to, 0)
    # Where the row at the position itself shows, it is its body that cannot be read.
    return CorruptGroup(position, last - count if last - count >= position else last, is_hole=True)


def set_aside(damage: CorruptGroup, origin: str, epoch: int) -> Callable[[sqlite3.Connection], None]:
    """Takes messages out of the log; positions and identities go on behind them."""

    def write(connection: sqlite3.Connection) -> None:
        now_ms = int(time.time() * 1000)
        count = damage.last - damage.first + 1
        (before,) = first_row(connection, SEQ_UP_TO, (damage.first - 1,)) or (None,)
        if damage.is_hole:
            connection.execute(NOTE_HOLE, (damage.first, damage.last, now_ms))
            last = _seq_before(connection, damage.last + 1, origin, epoch)
        else:
            connection.execute(SET_ASIDE, (damage.first, now_ms, damage.last))
            groups.empty(connection, damage.last)
            (last,) = first_row(connection, SEQ_UP_TO, (damage.last,)) or (0,)
        first = max(1, last - count + 1) if before is None else before + 1
        own = (first, last) if first <= last else (0, 0)
        connection.execute(INSERT_RANGE, (DAMAGED, GATEWAY, "", origin, epoch, *own, count, now_ms, now_ms))

    return write


def _can_read_from(connection: sqlite3.Connection, position: int, up_to: int) -> bool:
    try:
        first_row(connection, PLACE_FROM, (position, up_to))
    except sqlite3.DatabaseError as error:
        if is_damage(error):
            return False
        raise
    return True


def _seq_before(connection: sqlite3.Connection, position: int, origin: str, epoch: int) -> int:
    """The last number of an own identity given before a position, as far as what is behind it says."""
    row = first_row(connection, ROW_FROM, (position, sys.maxsize))
    if row is None:
        return 0
    messages = [message for part in groups.decode(row).parts for message in part.messages()]
    own = [message.seq for message in messages if (message.origin, message.epoch) == (origin, epoch)]
    return min(own) - 1 if own else int(row[2])
