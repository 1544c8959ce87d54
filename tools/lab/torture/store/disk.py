"""What may be left on a disk when the power goes: all that was synced, and of the rest any sectors."""

import random
from collections.abc import Iterable
from pathlib import Path

from tools.lab.torture.store.trace import Event, Remove, SyncBegun, SyncEnded, Truncate, Write

SECTOR_SIZE = 512  # what a disk writes as a whole


class File:
    """One file: what is on the medium, and what may be."""

    def __init__(self, durable: bytes = b"") -> None:
        self._durable = bytearray(durable)
        self._pending: list[Write | Truncate] = []
        self._syncing: dict[str, int] = {}  # by thread: how much of what is pending

    def take(self, event: Event) -> None:
        if isinstance(event, (Write, Truncate)):
            self._pending.append(event)
        elif isinstance(event, SyncBegun):
            self._syncing[event.thread] = len(self._pending)
        elif isinstance(event, SyncEnded):
            count = self._syncing.pop(event.thread)
            for one in self._pending[:count]:
                _apply(self._durable, one)
            del self._pending[:count]
            self._syncing = {thread: max(0, other - count) for thread, other in self._syncing.items()}

    def cut(self, dice: random.Random, share: float) -> bytes:
        """Its bytes after a power cut: of what is pending about a share, sector by sector."""
        left = bytearray(self._durable)
        for one in self._pending:
            if isinstance(one, Truncate):
                if dice.random() < share:
                    _apply(left, one)
                continue
            for start in _sectors(one):
                if dice.random() < share:
                    piece = one.data[max(0, start - one.offset) : start + SECTOR_SIZE - one.offset]
                    _apply(left, Write(one.path, max(start, one.offset), piece))
        return bytes(left)


class Disk:
    """The files of a folder, all that is there now on the medium."""

    def __init__(self, folder: Path) -> None:
        self._files = {str(path): File(path.read_bytes()) for path in folder.glob("*")}

    def take(self, event: Event) -> None:
        """Something happens to a file."""
        if isinstance(event, Remove):
            self._files.pop(event.path, None)
        elif isinstance(event, (Write, Truncate, SyncBegun, SyncEnded)):
            self._files.setdefault(event.path, File()).take(event)

    def cut(self, dice: random.Random, folder: Path) -> None:
        """Makes a folder of what is left when the power goes now."""
        share = dice.choice((0.0, 0.5, 0.9, 1.0))
        for path, file in self._files.items():
            (folder / Path(path).name).write_bytes(file.cut(dice, share))


def _sectors(write: Write) -> Iterable[int]:
    return range(write.offset // SECTOR_SIZE * SECTOR_SIZE, write.offset + len(write.data), SECTOR_SIZE)


def _apply(left: bytearray, event: Write | Truncate) -> None:
    if isinstance(event, Truncate):
        del left[event.size :]
        left.extend(bytes(event.size - len(left)))
        return
    left.extend(bytes(max(0, event.offset - len(left))))
    left[event.offset : event.offset + len(event.data)] = event.data
