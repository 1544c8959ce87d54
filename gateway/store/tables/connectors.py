"""What connectors note: up to when each of their sources was read, and the newest command that each has taken.

All that a source said before its mark is stored, or is in a gap that was told. A command is noted as begun before
anything of it goes to a unit, and as answered in the transaction that stores its answer. So after a crash it is known
of each command that it was answered, that it was not begun, or that it may have been carried out.
"""

import sqlite3
from collections.abc import Callable
from typing import NamedTuple

from gateway.store.sqlite.rows import sealed

READ_TO_SCHEMA = """
CREATE TABLE IF NOT EXISTS read_to (
    source TEXT PRIMARY KEY,
    read_ms INTEGER NOT NULL,
    crc INTEGER NOT NULL
) STRICT
"""
TAKEN_SCHEMA = """
CREATE TABLE IF NOT EXISTS taken_command (
    consumer TEXT PRIMARY KEY,
    position INTEGER NOT NULL,
    state TEXT NOT NULL,
    crc INTEGER NOT NULL
) STRICT
"""

BEGUN, ANSWERED = "begun", "answered"  # in the column ``state``
SAVE_READ_TO = "INSERT OR REPLACE INTO read_to VALUES (?, ?, ?)"
SAVE_TAKEN = "INSERT OR REPLACE INTO taken_command VALUES (?, ?, ?, ?)"
FORGET_TAKEN = "DELETE FROM taken_command WHERE consumer = ?"
TAKE_BACK = """
UPDATE taken_command SET position = :head, state = 'answered', crc = crc_of_all(consumer, :head, 'answered')
WHERE position > :head
"""
"""After messages behind ``:head`` were lost, whose positions will be used again."""

Write = Callable[[sqlite3.Connection], None]


class TakenCommand(NamedTuple):
    """The newest command of a connector: its position in the log, and whether it was answered."""

    position: int
    is_answered: bool


def load_read_to(connection: sqlite3.Connection) -> dict[str, int]:
    """Returns the Unix time in ms of each source."""
    return dict(connection.execute("SELECT source, read_ms FROM read_to").fetchall())


def save_read_to(source: str, read_ms: int) -> Write:
    """Returns the work that notes up to when a source was read; it goes with the messages that were read."""
    return _executing(SAVE_READ_TO, sealed((source, read_ms)))


def load_taken(connection: sqlite3.Connection) -> dict[str, TakenCommand]:
    """Returns the newest command of each consumer."""
    rows = connection.execute("SELECT consumer, position, state FROM taken_command").fetchall()
    return {consumer: TakenCommand(position, state == ANSWERED) for consumer, position, state in rows}


def save_taken(consumer: str, taken: TakenCommand) -> Write:
    """Returns the work that notes a consumer's newest command."""
    return _executing(SAVE_TAKEN, sealed((consumer, taken.position, ANSWERED if taken.is_answered else BEGUN)))


def forget_taken(consumer: str) -> Write:
    """Returns the work that forgets a consumer's command."""
    return _executing(FORGET_TAKEN, (consumer,))


def _executing(statement: str, columns: tuple[object, ...]) -> Write:
    def write(connection: sqlite3.Connection) -> None:
        connection.execute(statement, columns)

    return write
