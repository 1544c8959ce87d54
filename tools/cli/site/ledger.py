"""The ledger of a site: a line for each thing that was given, in the order of giving. It holds no secret.

A line is there before its key is, and it says ``begun`` until all is there: keys, certificate, account and rules. So
no key is without a line, and no line claims what is not there. A certificate that another one takes the place of is
``replaced`` and valid until it is revoked. What ends is ``ending`` until nothing of it is left.
"""

import os
import re
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Literal

import msgspec

from gateway.store import disk, shelf
from host.files import SECRET_MODE
from tools.cli.site.errors import SiteError

FILE, TABLE = "ledger.sqlite", "given"
BOARD = re.compile(r"(?:^|; )board (\S+)$")  # at the end of a holder
BEGUN: Final = "begun"
GIVEN: Final = "given"
REPLACED: Final = "replaced"
ENDING: Final = "ending"
REVOKED: Final = "revoked"
CERTIFICATE: Final = "certificate"
PASSWORD: Final = "password"
GATEWAY: Final = "gateway"

Kind = Literal["certificate", "password", "gateway"]
State = Literal["begun", "given", "replaced", "ending", "revoked"]


class Line(msgspec.Struct, frozen=True):
    """What was given to one device or gateway.

    ``serial`` is the certificate's serial number in hexadecimal digits, "" without one. Times are unix times;
    ``ends_ms`` is 0 for a password, and ``ended_ms`` is 0 until it is revoked. ``holder`` says what got it: a board's
    number, a place; "" if that is not known.
    """

    name: str
    kind: Kind
    state: State
    given_ms: int
    ends_ms: int = 0
    ended_ms: int = 0
    serial: str = ""
    holder: str = ""

    @property
    def is_open(self) -> bool:
        """Whether it is given, or half given: its name is taken."""
        return self.state in (BEGUN, GIVEN)

    @property
    def is_valid(self) -> bool:
        """Whether it is given, half given, or replaced and not revoked yet."""
        return self.is_open or self.state == REPLACED

    @property
    def board(self) -> str:
        """The number of the board that has it, "" if that is not known."""
        found = BOARD.search(self.holder)
        return found[1] if found else ""

    @property
    def is_current(self) -> bool:
        """Whether something of it may be in the site's folder."""
        return self.state != REVOKED


Lines = dict[str, Line]
"""Lines by their keys in the ledger, in the order of giving."""


class SiteLedger:
    """An open ledger; ``change`` returns when a change is on disk.

    Raises:
        SiteError: it cannot be read; the text says which file.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / FILE
        self.lines = read_lines(folder)
        with _naming(folder):
            self._shelf = shelf.Shelf(self._path, TABLE)

    def change(self, lines: Mapping[str, Line]) -> None:
        """Adds lines, or replaces them, all or none. Raises SiteError."""
        with _naming(self._path.parent):
            self._shelf.change(lines)
        self.lines.update(lines)

    def add(self, lines: list[Line]) -> Lines:
        """Adds lines at the end; returns them with their keys. Raises SiteError."""
        last = max(map(int, self.lines), default=0)
        added = {f"{last + number:08}": line for number, line in enumerate(lines, 1)}
        self.change(added)
        return added

    def open_line(self, name: str) -> tuple[str, Line] | None:
        """Returns what a name has now, with its key; None if it has nothing."""
        return next(((key, line) for key, line in self.lines.items() if line.name == name and line.is_open), None)

    def valid_lines(self, name: str) -> Lines:
        """Returns all that a name has, replaced certificates too."""
        return {key: line for key, line in self.lines.items() if line.name == name and line.is_valid}

    def close(self) -> None:
        self._shelf.close()


def make_ledger(folder: Path) -> None:
    """Makes the ledger of a new site, which other users cannot read. Raises SiteError, OSError."""
    os.close(os.open(folder / FILE, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, SECRET_MODE))
    SiteLedger(folder).close()


def read_lines(folder: Path) -> Lines:
    """Returns the lines of a ledger without writing. Raises SiteError: there is none, or it is damaged."""
    if not (folder / FILE).is_file():
        raise SiteError(f"{folder / FILE}: the ledger is not there; restore it from a backup, also from an old one")
    with _naming(folder), _readable(folder) as readable:
        entries = shelf.read(readable / FILE, TABLE, Line)
    if damaged := [entry.key for entry in entries if entry.value is None]:
        raise SiteError(f"{folder / FILE}: {len(damaged)} of its lines are damaged; restore it from a backup")
    return {entry.key: entry.value for entry in sorted(entries, key=lambda one: one.key) if entry.value is not None}


@contextmanager
def _readable(folder: Path) -> Iterator[Path]:
    """Yields a folder with the ledger that SQLite can read: it writes beside a file, and a disk may be read-only."""
    if os.access(folder, os.W_OK):
        yield folder
        return
    with tempfile.TemporaryDirectory() as copy:
        for file in (path for path in folder.glob(f"{FILE}*") if not path.name.endswith("-shm")):
            shutil.copyfile(file, Path(copy, file.name))
        yield Path(copy)


@contextmanager
def _naming(folder: Path) -> Iterator[None]:
    """Has an error of the database be one of the site."""
    try:
        yield
    except (sqlite3.Error, OSError, msgspec.DecodeError) as error:
        raise SiteError(f"{folder / FILE}: {disk.words_of(error, folder)}") from error
