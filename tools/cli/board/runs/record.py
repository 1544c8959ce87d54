"""Which board of a table has which name: a file beside the table, from which a repeated run goes on."""

import csv
import os
import threading
from pathlib import Path

from tools.cli.board.errors import Refused

BEGUN, READY = "begun", "ready"


class Record:
    """The file: a line `NAME,NUMBER,begun` when a board is found, and `NAME,NUMBER,ready` when it is done.

    The methods may be called from any thread, and raise OSError.

    Raises:
        Refused: a line of the file cannot be read.
    """

    def __init__(self, table: Path) -> None:
        self.path = table.with_name(f"{table.name}.boards")
        self._lock = threading.Lock()
        self._numbers: dict[str, str] = {}
        self._ready: set[str] = set()
        if self.path.exists():
            for number, cells in enumerate(csv.reader(self.path.read_text().splitlines()), 1):
                if len(cells) != 3 or cells[2] not in (BEGUN, READY):
                    raise Refused(f"{self.path}:{number}: expected NAME,NUMBER,{BEGUN} or NAME,NUMBER,{READY}")
                self._note(*cells)

    def is_ready(self, name: str) -> bool:
        """Whether this board was flashed to its end."""
        return name in self._ready

    def name_of(self, number: str) -> str | None:
        """The name of the board with this number, None for one that is not in the file."""
        return next((name for name, one in self._numbers.items() if one == number), None)

    def claim(self, name: str, number: str) -> None:
        """Notes that this board gets the name. Raises Refused: it has another, or the name is on another board."""
        with self._lock:
            other = self.name_of(number)
            if other is not None and other != name:
                raise Refused(f"this board, {number}, is {other}: {self.path} says so")
            if self._numbers.get(name, number) != number:
                raise Refused(
                    f"{name} is another board, {self._numbers[name]}: {self.path} says so. Delete its lines there if "
                    "this one takes its place"
                )
            if other is None:
                self._append(name, number, BEGUN)

    def finish(self, name: str) -> None:
        """Notes that the board is ready."""
        with self._lock:
            if name in self._numbers and name not in self._ready:
                self._append(name, self._numbers[name], READY)

    def _append(self, *cells: str) -> None:
        with self.path.open("a") as file:
            file.write(",".join(cells) + "\n")
            file.flush()
            os.fsync(file.fileno())
        self._note(*cells)

    def _note(self, name: str, number: str, state: str) -> None:
        self._numbers[name] = number
        if state == READY:
            self._ready.add(name)
