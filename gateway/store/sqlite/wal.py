"""Reads SQLite's write-ahead log (WAL) without SQLite, which stops at the first corrupt frame.

The format is https://www.sqlite.org/fileformat2.html#walformat. Each transaction is synced before the next one begins,
so a power cut can damage the last transaction alone. If a frame of one more transaction follows the commit frame behind
the damage, it is not a power cut: the medium has changed transactions that were acknowledged.
"""

import mmap
import sqlite3
import struct
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from gateway.store.sqlite.rows import open_at_rest

HEADER_SIZE = 32
FRAME_HEADER_SIZE = 24
MAGIC = 0x377F0682  # the checksums' byte order is little endian; one more: big endian
FILE_MAGIC = b"SQLite format 3\0"
NO_SALTS = bytes(8)  # where no frame was written
PAGE_SIZES = [2**power for power in range(9, 16)]
PAGE_SIZE = 2048  # bytes, of the databases that the store makes
END_IN_SHARED_MEMORY = 16  # where SQLite notes, in its own byte order, how many frames it has found


class _Frame(NamedTuple):
    """A page in the WAL, from ``offset`` on; ``is_commit`` if it ends a transaction."""

    number: int
    offset: int
    is_commit: bool
    is_whole: bool


class Wal:
    """The WAL of a database.

    After ``read``, ``newest`` has the offset of the newest committed version of each page by its number, and
    ``is_damaged`` says whether a synced transaction is corrupt.

    Args:
        path: the database's file.
        page_size: the database's.
    """

    def __init__(self, path: Path, page_size: int) -> None:
        self.bytes = map_file(path.with_name(path.name + "-wal"))
        self.newest: dict[int, int] = {}
        self.is_damaged = False
        self._page_size = page_size

    def frames(self) -> Iterator[int]:
        """Yields where the frames of this round begin, whole or not."""
        if len(self.bytes) >= HEADER_SIZE + FRAME_HEADER_SIZE:
            salts = self._salts()
            for start in self._starts():
                if self._salts_at(start) == salts:
                    yield start

    def _starts(self) -> range:
        step = FRAME_HEADER_SIZE + self._page_size
        return range(HEADER_SIZE, len(self.bytes) - step + 1, step)

    def _salts_at(self, start: int) -> bytes:
        return self.bytes[start + 8 : start + 16]

    def _salts(self) -> bytes | None:
        """Returns the salts that all frames of this round have; None if the WAL has no frame.

        If the WAL's header is corrupt, the frames tell: each round's first salt is the former round's plus 1.
        """
        sums = _checksum(self.bytes[: HEADER_SIZE - 8], self._order(), 0, 0)
        if any(self.bytes[:HEADER_SIZE]) and sums == struct.unpack_from(">II", self.bytes, 24):
            return self.bytes[16:24]
        found = Counter(map(self._salts_at, self._starts()))
        del found[NO_SALTS]
        most = max(found.values(), default=0)
        return max((salts for salts, count in found.items() if count > 1 or most == 1), default=None)

    def _order(self) -> str:
        (magic,) = struct.unpack_from(">I", self.bytes)
        return ">" if magic == MAGIC + 1 else "<"

    def read(self) -> None:
        """Reads every frame."""
        transaction: list[_Frame] = []
        unsure: list[_Frame] = []  # a transaction behind a corrupt frame, until one more frame follows
        is_corrupt = False
        for frame in self._read_frames():
            if not frame.is_whole:
                is_corrupt = True
                continue
            if unsure:
                self.is_damaged = True
                self._take(unsure)
                unsure = []
            transaction.append(frame)
            if frame.is_commit:
                if is_corrupt:
                    unsure = transaction
                else:
                    self._take(transaction)
                transaction = []
        if self.is_damaged:  # not by a power cut
            self._take(unsure)

    def _take(self, transaction: list[_Frame]) -> None:
        self.newest.update((frame.number, frame.offset) for frame in transaction)

    def _read_frames(self) -> Iterator[_Frame]:
        """Yields the frames of this round, and one that is not whole in place of missing ones."""
        order = self._order() if self.bytes else ""
        expected = HEADER_SIZE
        sums = struct.unpack_from(">II", self.bytes, 24) if self.bytes else (0, 0)
        for start in self.frames():
            offset = start + FRAME_HEADER_SIZE
            if start != expected:
                yield _Frame(0, 0, False, False)
                sums = struct.unpack_from(">II", self.bytes, start - self._page_size - 8)
            number, size, _, _, *said = struct.unpack_from(">6I", self.bytes, start)
            # Each frame's checksum continues the one that the frame before holds.
            sums = _checksum(self.bytes[start : start + 8], order, *sums)
            is_whole = _checksum(self.bytes[offset : offset + self._page_size], order, *sums) == tuple(said)
            yield _Frame(number, offset, size > 0, is_whole)
            sums = (said[0], said[1])
            expected = offset + self._page_size


def hides_transactions(path: Path) -> bool:
    """Whether SQLite would ignore synced transactions of a database, and overwrite them.

    SQLite is asked how many frames it finds; only if there are more, each frame is read. Pages that were copied into
    the database are not hidden, whatever the WAL has become.
    """
    file = map_file(path)
    size = page_size_of(file)
    wal = Wal(path, size)
    count = sum(1 for _ in wal.frames())
    if not count:
        return False
    try:
        with open_at_rest(path):
            shared = path.with_name(path.name + "-shm").read_bytes()
    except (sqlite3.DatabaseError, OSError):
        return False  # opening the store reports it
    (seen,) = struct.unpack_from("=I", shared, END_IN_SHARED_MEMORY)
    if count <= seen:
        return False
    wal.read()
    return wal.is_damaged and any(
        file[(number - 1) * size : number * size] != wal.bytes[offset : offset + size]
        for number, offset in wal.newest.items()
    )


def page_size_of(file: "bytes | mmap.mmap") -> int:
    """Returns the size of a database's pages: as its header says, or as the store makes them where that is damaged."""
    if file[: len(FILE_MAGIC)] == FILE_MAGIC:
        (size,) = struct.unpack_from(">H", file, len(FILE_MAGIC))
        if size in PAGE_SIZES:
            return int(size)
    return PAGE_SIZE


def map_file(path: Path) -> "bytes | mmap.mmap":
    """Maps a file's bytes, without taking memory for them."""
    if not path.exists() or not path.stat().st_size:
        return b""
    with path.open("rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def _checksum(data: bytes, order: str, sum_1: int, sum_2: int) -> tuple[int, int]:
    words = struct.unpack(f"{order}{len(data) // 4}I", data)
    for first, second in zip(words[::2], words[1::2], strict=True):
        sum_1 = sum_1 + first + sum_2 & 0xFFFF_FFFF
        sum_2 = sum_2 + second + sum_1 & 0xFFFF_FFFF
    return sum_1, sum_2
