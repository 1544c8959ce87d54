"""Ends a process before one of its operations on files, or at a moment; tells what a power cut may undo.

Python tells each operation before it is done (PEP 578). They are counted, so the same number is the same place again.
It does not tell what delta-rs does: files in the logs of tables that no sync has reached are looked for at the cut.
"""

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from cloud.tables.stored_table import LOG_FOLDER

SAVED_BYTES = 1 << 20
_NAMING = ("os.rename", "os.link", "os.remove", "os.rmdir", "os.mkdir")


def kill_this_process() -> None:
    """Ends this process by SIGKILL."""
    os.kill(os.getpid(), signal.SIGKILL)


class Undone(msgspec.Struct):
    """What no sync has made durable: new names, removed files with their content, and the content of files."""

    added: list[str] = []
    removed: dict[str, bytes] = {}
    content: list[str] = []


class Cutter:
    """Counts operations on files of a folder, and ends the process before operation `at`.

    What no sync had reached when a process ended has not been reached when the next one begins.
    """

    def __init__(self, folder: Path, left: Path, end: Callable[[], None] = kill_this_process) -> None:
        """left: the file that says what may be undone, when the cut has come. end: ends the process."""
        self._folder = str(folder)
        self._left = left
        self._unsynced = left.with_suffix(".unsynced")
        self._end = end
        self._at: int | None = None
        self._busy = False
        self._operations = 0
        self._undone = Undone()
        self._named: set[str] = set()
        self._synced: set[str] = set()
        sys.addaudithook(self._hear)

    def begin(self, at: int | None) -> None:
        """Counts from 0. The cut is before operation `at`."""
        self._at, self._operations, self._undone = at, 0, Undone()
        left = Undone()
        if self._unsynced.exists():
            left = msgspec.msgpack.decode(self._unsynced.read_bytes(), type=Undone)
            self._unsynced.unlink()
        self._named = set(self._logs()) - set(left.added)
        self._synced = set(self._logs()) - set(left.content)

    def spare(self) -> int:
        """Lets the process live: it has done all that it was to do. Returns how many operations there were."""
        self._at = None
        return self._operations

    def cut(self) -> None:
        """Says what may be undone, and ends the process."""
        there = self._logs()
        self._undone.added += [one for one in there if one not in self._named]
        self._undone.content = [one for one in there if one not in self._synced]
        left = msgspec.msgpack.encode(self._undone)
        self._left.write_bytes(left)
        self._unsynced.write_bytes(left)
        self._end()

    def _logs(self) -> list[str]:
        """Returns the files in the logs of tables."""
        return [str(path) for path in Path(self._folder).glob(f"*/{LOG_FOLDER}/[0-9_]*") if path.suffix != ".tmp"]

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self._busy or (event != "open" and event not in _NAMING):
            return
        paths = [os.fspath(one) for one in arguments[:2] if isinstance(one, str | os.PathLike)]
        if not paths or not all(isinstance(one, str) and one.startswith(self._folder) for one in paths[:1]):
            return
        is_reading = event == "open" and (arguments[2] or 0) & (os.O_WRONLY | os.O_RDWR) == 0
        is_in_log = os.path.basename(os.path.dirname(paths[0])) == LOG_FOLDER
        if is_reading and not is_in_log and not os.path.isdir(paths[0]):
            return
        self._busy = True
        try:
            if self._at is not None and self._operations >= self._at:
                self.cut()
            self._operations += 1
            self._note(event, paths)
        finally:
            self._busy = False

    def _note(self, event: str, paths: list[str]) -> None:
        if event == "open" and os.path.isdir(paths[0]):  # to sync the folder
            self._undone.added = [one for one in self._undone.added if os.path.dirname(one) != paths[0]]
            removed = self._undone.removed.items()
            self._undone.removed = {one: content for one, content in removed if os.path.dirname(one) != paths[0]}
            self._named.update(one for one in self._logs() if os.path.dirname(one) == paths[0])
        elif event == "open" and os.path.basename(os.path.dirname(paths[0])) == LOG_FOLDER:  # to sync it
            self._synced.add(paths[0])
        elif event in ("os.rename", "os.link"):
            self._undone.added.append(paths[1])
        elif event == "os.remove" and os.path.isfile(paths[0]) and os.path.getsize(paths[0]) <= SAVED_BYTES:
            self._undone.removed[paths[0]] = Path(paths[0]).read_bytes()
