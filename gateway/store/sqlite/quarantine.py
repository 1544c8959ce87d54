"""Notes of what was set aside because the medium has changed it: what it was, and its bytes, for inspection.

A note is written before its row is taken out of its table, so that after a crash the row is there or noted.
"""

import contextlib
import sqlite3
import time
from pathlib import Path

import msgspec

from gateway.errors import StoreError, is_damage
from gateway.store.sqlite import shelf
from gateway.store.sqlite.disk import words_of
from gateway.store.sqlite.shelf import Shelf

FILE, TABLE = "quarantine.sqlite", "note"


class Note(msgspec.Struct, frozen=True):
    """A note of one row or file.

    ``what`` names the row and its ``file``, ``reason`` says what is wrong with it, ``kept`` where its bytes are now: in
    the note's own ``body``, a row in MessagePack, or elsewhere. ``messages`` is how many messages are lost with it,
    ``found_ms`` the Unix time.
    """

    file: str
    what: str = msgspec.field(name="place")
    reason: str
    kept: str
    messages: int = 0
    body: bytes = b""
    found_ms: int = msgspec.field(default_factory=lambda: int(time.time() * 1000))

    @property
    def key(self) -> str:
        """The note's key: there is one note for each row."""
        return f"{self.file}: {self.what}"


def set_aside(folder: Path, notes: list[Note]) -> None:
    """Writes notes durably; a new note replaces an older one of the same row. It reads no other note.

    Raises:
        sqlite3.Error: a note cannot be written, so that no row may be taken out of its table.
    """
    try:
        _write(folder / FILE, notes)
    except sqlite3.DatabaseError as error:
        if not is_damage(error):
            raise
        _move_away(folder / FILE)
        _write(folder / FILE, notes)


def _write(path: Path, notes: list[Note]) -> None:
    with contextlib.closing(Shelf(path, TABLE)) as opened:
        opened.change({note.key: note for note in notes})


def notes_in(folder: Path) -> list[Note]:
    """Returns all readable notes, the oldest first, without writing.

    Raises StoreError.
    """
    try:
        notes = [entry.value for entry in shelf.read(folder / FILE, TABLE, Note)]
    except (sqlite3.Error, OSError) as error:
        raise StoreError(f"quarantine notes {folder / FILE}: {words_of(error, folder)}") from error
    return [note for note in notes if note is not None]


def begin_anew_if_damaged(path: Path, table: str) -> str:
    """Moves a damaged file out of the way; returns its new name, "" if it is not damaged.

    For files on which nothing depends. Raises sqlite3.Error for other errors than damage.
    """
    try:
        shelf.read(path, table, object)
    except sqlite3.DatabaseError as error:
        if not is_damage(error):
            raise
        return _move_away(path)
    return ""


def _move_away(path: Path) -> str:
    """Gives a damaged file another name, and returns that."""
    away = path.with_name(f"{path.name}.damaged-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}")
    for companion in ("-wal", "-shm"):
        with contextlib.suppress(FileNotFoundError):
            path.with_name(path.name + companion).rename(away.with_name(away.name + companion))
    path.rename(away)
    return away.name
