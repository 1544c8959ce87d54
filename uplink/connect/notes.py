"""What a route has to know after a restart, besides its place in the log and its QoS 2 flows."""

import asyncio
import contextlib
import logging
import threading
from pathlib import Path

import msgspec
from msgspec.structs import replace

from gateway.store import quarantine, shelf

FILE, TABLE = "routes.sqlite", "route"

_file_lock = threading.Lock()  # SQLite does not wait for another connection that makes the file

logger = logging.getLogger(__name__)


class Note(msgspec.Struct):
    """``server`` is the URL of the server that accepted the route last, empty if none is known, and ``client_id`` the
    route's client identifier there. ``bytes`` is what the route has sent and received on the local ``day``, a date; it
    is only counted if there is a limit. ``subscribed`` are the topic filters that the route may have subscribed to in
    its session there, and ``marks`` those by which the route knows it again (`uplink.connect.session`).
    """

    server: str = ""
    client_id: str = ""
    day: str = ""
    bytes: int = 0
    subscribed: tuple[str, ...] = ()
    marks: tuple[str, ...] = ()


class RouteNotes:
    """The note of one route, in a file that all routes share.

    Args:
        folder: the store's folder.
        name: the route's name.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder
        self._name = name
        self._saved: Note | None = None
        self.note = Note()
        self._saving = asyncio.Lock()  # so that no earlier state is written after a later one

    async def load(self) -> None:
        """Reads the note; a damaged file is put aside. Raises sqlite3.Error."""
        self.note = await asyncio.get_running_loop().run_in_executor(None, self._load)

    async def save(self) -> None:
        """Makes the note durable, if it has changed. Raises sqlite3.Error."""
        async with self._saving:
            note = replace(self.note)  # for the thread
            if note != self._saved:
                await asyncio.get_running_loop().run_in_executor(None, self._save, note)
                self._saved = note

    def _load(self) -> Note:
        with _file_lock:
            return self._read()

    def _read(self) -> Note:
        path = self._folder / FILE
        if away := quarantine.begin_anew_if_damaged(path, TABLE):
            quarantine.set_aside(self._folder, [quarantine.Note(FILE, "the whole file", "it cannot be read", away)])
            logger.error("notes of routes: they cannot be read and begin anew; what was there is in %s", away)
        notes = [entry.value for entry in shelf.read(path, TABLE, Note) if entry.key == self._name]
        self._saved = notes[0] if notes else None
        return Note() if self._saved is None else replace(self._saved)

    def _save(self, note: Note) -> None:
        with _file_lock, contextlib.closing(shelf.Shelf(self._folder / FILE, TABLE)) as opened:
            opened.change({self._name: note})
