"""Messages that the medium has spoilt: set aside, so that everything behind them goes on, and noted as a range.

Their bytes stay in ``damaged`` for whoever wants to look at them. Identities of this store's own among them are known
by the rows before and after; those that a message brought from elsewhere are not.
"""

import sqlite3
import time
from collections.abc import Callable

from gateway.store import groups
from gateway.store.drops import GATEWAY
from gateway.store.drops import INSERT as INSERT_RANGE
from gateway.store.groups import CorruptGroup

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
SEQ_UP_TO = "SELECT seq FROM message_group WHERE last <= ? ORDER BY last DESC LIMIT 1"


def set_aside(damage: CorruptGroup, origin: str, epoch: int) -> Callable[[sqlite3.Connection], None]:
    """Takes a row's messages out of the log; positions and identities go on behind them."""

    def write(connection: sqlite3.Connection) -> None:
        now_ms = int(time.time() * 1000)
        connection.execute(SET_ASIDE, (damage.first, now_ms, damage.last))
        groups.empty(connection, damage.last)
        (before,) = connection.execute(SEQ_UP_TO, (damage.first - 1,)).fetchone() or (None,)
        (last,) = connection.execute(SEQ_UP_TO, (damage.last,)).fetchone() or (0,)
        first = last if before is None else before + 1
        count = damage.last - damage.first + 1
        own = (first, last) if first <= last else (0, 0)
        connection.execute(INSERT_RANGE, (DAMAGED, GATEWAY, "", origin, epoch, *own, count, now_ms, now_ms))

    return write
