"""Places of consumers, sessions and wills that the medium has spoilt: set aside when the store is opened.

Whose place it was cannot be known: its name may be spoilt as well. So whoever is without one goes on at the oldest
message that is left, where nothing is passed over.
"""

import logging
import sqlite3
from pathlib import Path

import msgspec

from gateway.store import consumers, groups, quarantine
from gateway.store.checksum import sealed, take_out_spoilt
from gateway.store.quarantine import Note

REASON = "it is not as it was stored"
WHAT = {
    "cursor": "the place of consumer",
    "ending": "the end of consumer",
    "session": "the session of client",
    "will": "the will of client",
}

logger = logging.getLogger(__name__)


def set_spoilt_rows_aside(connection: sqlite3.Connection, path: Path) -> None:
    """Takes them out of a store's file, with a note of each beside it. Raises sqlite3.Error."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        found = {table: take_out_spoilt(connection, table) for table in WHAT}
        notes = [_note(path.name, table, row) for table, rows in found.items() for row in rows]
        if notes:
            quarantine.set_aside(path.parent, notes)
        if found["cursor"]:
            (oldest,) = connection.execute(groups.OLDEST).fetchone() or (1,)
            connection.execute(consumers.SAVE, sealed((consumers.LOST, oldest - 1, 0)))
        connection.execute("COMMIT")
    except BaseException:
        connection.rollback()
        raise
    for note in notes:
        logger.error("message store: %s was set aside: %s", note.place, note.reason)


def _note(file: str, table: str, row: tuple[object, ...]) -> Note:
    place = f"{WHAT[table]} {_text_of(row[table == 'ending'])!r}"
    if table == "session" and (topic_filter := _text_of(row[1])):
        place = f"the subscription {topic_filter!r} of client {_text_of(row[0])!r}"
    return Note(file, place, REASON, "in the note", body=msgspec.msgpack.encode(row))


def _text_of(value: object) -> object:
    return value.decode(errors="replace") if isinstance(value, bytes) else value
