"""What the medium has spoilt and was set aside: a note of each, so that somebody can look at it and at what it was.

A note is written before what it tells of is taken out of its place, so that a crash leaves it there or noted.
"""

import contextlib
import sqlite3
import time
from pathlib import Path

import msgspec

from gateway.errors import StoreError, is_damage
from gateway.store import shelf
from gateway.store.shelf import Shelf

FILE, TABLE = "quarantine.sqlite", "note"


class Note(msgspec.Struct, frozen=True):
    """What was set aside.

    ``file`` and ``place`` say where it was, ``reason`` what is wrong with it, ``kept`` where it is now: in the note's
    own ``body``, a row in MessagePack, or elsewhere. ``messages`` is how many are lost with it, ``found_ms`` unix time.
    """

    file: str
    place: str
    reason: str
    kept: str
    messages: int = 0
    body: bytes = b""
    found_ms: int = msgspec.field(default_factory=lambda: int(time.time() * 1000))

    @property
    def key(self) -> str:
        """What it is known by."""
        return f"{self.file}: {self.place}"


def set_aside(folder: Path, notes: list[Note]) -> None:
    """Writes notes, durably; of one place there is one, the last.

    Raises:
        sqlite3.Error: a note cannot be written, so that nothing may be taken out of its place.
    """
    begin_anew_if_damaged(folder / FILE, TABLE)
    with contextlib.closing(Shelf(folder / FILE, TABLE)) as opened:
        opened.put({note.key: msgspec.msgpack.encode(note) for note in notes})


def notes_in(folder: Path) -> list[Note]:
    """Returns all notes that can be read, the oldest first, without writing.

    Raises StoreError.
    """
    try:
        bodies = [entry.body for entry in shelf.read(folder / FILE, TABLE)]
    except (sqlite3.Error, OSError) as error:
        raise StoreError(f"quarantine notes {folder / FILE}: {error}") from error
    return [msgspec.msgpack.decode(body, type=Note) for body in bodies if body is not None]


def begin_anew_if_damaged(path: Path, table: str) -> str:
    """Where a file that nothing depends on cannot be read, another one may begin; returns the name that it has then.

    Raises sqlite3.Error for what is no damage.
    """
    try:
        shelf.read(path, table)
    except sqlite3.DatabaseError as error:
        if not is_damage(error):
            raise
        away = path.with_name(f"{path.name}.damaged-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}")
        for companion in ("-wal", "-shm"):
            with contextlib.suppress(FileNotFoundError):
                path.with_name(path.name + companion).rename(away.with_name(away.name + companion))
        path.rename(away)
        return away.name
    return ""
