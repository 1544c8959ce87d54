"""SQLite's write-ahead log (WAL), read without SQLite, which ends its reading at the first frame that is spoilt.

The format is https://www.sqlite.org/fileformat2.html#walformat. A transaction is synced before the next one begins.
Where a frame is spoilt and another one comes behind the commit that follows, it was not the power that went while it
was written: transactions that were acknowledged are spoilt, or stand behind what is.
"""

import mmap
import sqlite3
import struct
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from gateway.store.reading import open_at_rest

HEADER_SIZE = 32
FRAME_HEADER_SIZE = 24
MAGIC = 0x377F0682  # the checksums' byte order is little endian; one more: big endian
FILE_MAGIC = b"SQLite format 3\0"
NO_SALTS = bytes(8)  # where there is no frame yet
PAGE_SIZES = [2**power for power in range(9, 16)]
OURS, OURS_BEFORE = 2048, 4096  # bytes of a page, as the store makes them, and as SQLite does by itself
RECORDS_FROM = {2: 12, 5: 12, 10: 8, 13: 8}  # in a page, by its kind: where the places of its records are
LOOKED_AT_MAX = 64 * 1024 * 1024  # bytes of a file that does not say what its pages are
END_IN_SHARED_MEMORY = 16  # where SQLite notes, in its own byte order, how many frames it has found


class _Frame(NamedTuple):
    """A page in the WAL, from ``offset`` on; ``is_commit`` where a transaction ends with it."""

    number: int
    offset: int
    is_commit: bool
    is_whole: bool


class Wal:
    """The WAL of a database.

    After ``read`` ``newest`` says where the pages of committed transactions are, by their numbers, and ``is_damaged``
    whether a transaction is spoilt that had been synced.

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
            for start in self._places():
                if self._salts_at(start) == salts:
                    yield start

    def _places(self) -> range:
        step = FRAME_HEADER_SIZE + self._page_size
        return range(HEADER_SIZE, len(self.bytes) - step + 1, step)

    def _salts_at(self, start: int) -> bytes:
        return self.bytes[start + 8 : start + 16]

    def _salts(self) -> bytes | None:
        """What all frames of this round have in common; None where there is only room for frames.

        Where the WAL's own header is spoilt the frames say it: each round's first salt is that of the last one and 1.
        """
        sums = _checksum(self.bytes[: HEADER_SIZE - 8], self._order(), 0, 0)
        if any(self.bytes[:HEADER_SIZE]) and sums == struct.unpack_from(">II", self.bytes, 24):
            return self.bytes[16:24]
        found = Counter(map(self._salts_at, self._places()))
        del found[NO_SALTS]
        most = max(found.values(), default=0)
        return max((salts for salts, count in found.items() if count > 1 or most == 1), default=None)

    def _order(self) -> str:
        (magic,) = struct.unpack_from(">I", self.bytes)
        return ">" if magic == MAGIC + 1 else "<"

    def read(self) -> None:
        """Looks at every frame."""
        transaction: list[_Frame] = []
        unsure: list[_Frame] = []  # a transaction behind what is spoilt, until one more frame has come
        is_spoilt = False
        for frame in self._read_frames():
            if not frame.is_whole:
                is_spoilt = True
                continue
            if unsure:
                self.is_damaged = True
                self._take(unsure)
                unsure = []
            transaction.append(frame)
            if frame.is_commit:
                if is_spoilt:
                    unsure = transaction
                else:
                    self._take(transaction)
                transaction = []
        if self.is_damaged:  # and no power cut is behind it
            self._take(unsure)

    def _take(self, transaction: list[_Frame]) -> None:
        self.newest.update((frame.number, frame.offset) for frame in transaction)

    def _read_frames(self) -> Iterator[_Frame]:
        """Yields the frames of this round, and one that is not whole in the place of others."""
        order = self._order() if self.bytes else ""
        expected = HEADER_SIZE
        sums = struct.unpack_from(">II", self.bytes, 24) if self.bytes else (0, 0)
        for start in self.frames():
            offset = start + FRAME_HEADER_SIZE
            if start != expected:
                yield _Frame(0, 0, False, False)
                sums = struct.unpack_from(">II", self.bytes, start - self._page_size - 8)
            number, size, _, _, *said = struct.unpack_from(">6I", self.bytes, start)
            # Each frame is held against what the one before says of itself.
            sums = _checksum(self.bytes[start : start + 8], order, *sums)
            is_whole = _checksum(self.bytes[offset : offset + self._page_size], order, *sums) == tuple(said)
            yield _Frame(number, offset, size > 0, is_whole)
            sums = (said[0], said[1])
            expected = offset + self._page_size


def hides_transactions(path: Path) -> bool:
    """Whether SQLite would pass over transactions of a database that had been synced, and write over them.

    It is asked how many frames it finds; only where there are more, each of them is looked at. What has been copied
    into the database is not hidden, whatever the WAL has become.
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
        return False  # whoever opens it is told
    (seen,) = struct.unpack_from("=I", shared, END_IN_SHARED_MEMORY)
    if count <= seen:
        return False
    wal.read()
    return wal.is_damaged and any(
        file[(number - 1) * size : number * size] != wal.bytes[offset : offset + size]
        for number, offset in wal.newest.items()
    )


def page_size_of(file: "bytes | mmap.mmap") -> int:
    """Returns the size of a database's pages; where its file does not say, as it looks."""
    if file[: len(FILE_MAGIC)] == FILE_MAGIC:
        (size,) = struct.unpack_from(">H", file, len(FILE_MAGIC))
        if size in PAGE_SIZES:
            return int(size)
    return OURS if _count_pages(file, OURS) > 1.5 * _count_pages(file, OURS_BEFORE) else OURS_BEFORE


def _count_pages(file: "bytes | mmap.mmap", size: int) -> int:
    """How many pages of records there are in a file, or its beginning, if pages are of a size."""
    return sum(_has_records(file[at : at + size]) for at in range(size, min(len(file), LOOKED_AT_MAX) - size + 1, size))


def _has_records(page: bytes) -> bool:
    if page[0] not in RECORDS_FROM:
        return False
    start = RECORDS_FROM[page[0]]
    count, content = struct.unpack_from(">HH", page, 3)
    if not 0 < start + 2 * count <= content <= len(page):
        return False
    return all(content <= cell < len(page) for cell in struct.unpack_from(f">{count}H", page, start))


def map_file(path: Path) -> "bytes | mmap.mmap":
    """A file's bytes, without taking memory for them."""
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
