"""Reads the pages of an SQLite file without SQLite, which refuses a damaged file as a whole.

The file format is https://www.sqlite.org/fileformat2.html. A page is the newest one in the WAL's committed
transactions, or otherwise the one in the file.
"""

import struct
from pathlib import Path

from gateway.store.sqlite.wal import FILE_MAGIC, Wal, map_file, page_size_of

TRUNK_HEADER_SIZE = 8


class Pages:
    """The pages by number, from 1 to ``count``.

    ``header_damaged`` if the file does not say what it is; ``wal_damaged`` if a synced transaction is corrupt.

    Args:
        path: the file.
        is_alone: whether it is read without its WAL.

    Raises:
        OSError: the file cannot be read.
    """

    def __init__(self, path: Path, *, is_alone: bool = False) -> None:
        self._file = map_file(path)
        self.header_damaged = self._file[: len(FILE_MAGIC)] != FILE_MAGIC
        self.size = page_size_of(self._file)
        self._wal = Wal(path, self.size)
        if not is_alone:
            self._wal.read()
        self.wal_damaged = self._wal.is_damaged
        self.count = max(len(self._file) // self.size, max(self._wal.newest, default=0))

    def __getitem__(self, number: int) -> bytes:
        """Returns a page, b"" if there is none."""
        if number in self._wal.newest:
            offset = self._wal.newest[number]
            return self._wal.bytes[offset : offset + self.size]
        page = self._file[(number - 1) * self.size : number * self.size]
        return page if number > 0 and len(page) == self.size else b""

    @property
    def kind(self) -> tuple[int, int]:
        """The file's ``application_id`` and ``user_version``."""
        version, application_id = struct.unpack_from(">I4xI", self[1], 60)
        return application_id, version

    @property
    def expected_count(self) -> int:
        """How many pages the file should have, if it says so."""
        if self[1].startswith(FILE_MAGIC):
            return max(self.count, struct.unpack_from(">I", self[1], 28)[0])
        return self.count

    def free(self) -> set[int]:
        """Returns the pages that are not in use; their content was deleted."""
        if self[1].startswith(FILE_MAGIC):
            (first, total) = struct.unpack_from(">II", self[1], 32)
            free = self._free_from(first)
            if len(free) == total:
                return free
        return set().union(*map(self._listed_by, range(2, self.count + 1)))

    def _free_from(self, trunk: int) -> set[int]:
        free: set[int] = set()
        while trunk and trunk not in free and (listed := self._listed_by(trunk)):
            free |= listed
            (trunk,) = struct.unpack_from(">I", self[trunk])
        return free

    def _listed_by(self, number: int) -> set[int]:
        """Returns a trunk page of the list of free pages with the pages listed in it; nothing if it is not a trunk
        page.
        """
        page = self[number]
        if not page:
            return set()
        following, count = struct.unpack_from(">II", page)
        if following > self.count or not 0 <= count <= self.size // 4 - 2 or not (following or count):
            return set()
        listed = struct.unpack_from(f">{count}I", page, TRUNK_HEADER_SIZE)
        is_list = all(1 < one <= self.count for one in listed) and len({*listed, number}) == count + 1
        return {number, *listed} if is_list else set()
