"""NOR flash simulated in a file, for firmware that runs without a flash chip."""

import os

from flash_store.block_device import IOCTL_BLOCK_COUNT, IOCTL_BLOCK_ERASE, IOCTL_BLOCK_SIZE, IOCTL_SYNC
from flash_store.errors import DeviceFailed, StoreCorrupt

ERASED = b"\xff" * 256  # written piece by piece: a whole sector would take much of a board's heap


def open_sized(path: str, size: int):
    """Opens `path` for reading and writing, and extends it to `size` bytes with erased flash.

    Raises StoreCorrupt if the file is longer.
    """
    try:
        file = open(path, "r+b", 0)  # noqa: SIM115 - FileFlash keeps the file open
    except OSError:
        file = open(path, "w+b", 0)  # noqa: SIM115
    present = file.seek(0, 2)
    if present > size:
        file.close()
        raise StoreCorrupt(f"flash file {path} has {present} bytes, expected at most {size}")
    while present < size:
        present += file.write(ERASED[: size - present])
    return file


class FileFlash:
    """NOR flash in a file. An erase sets 0xFF; a granule can be programmed once per erase; each change is synced."""

    def __init__(self, path: str, sector_size: int = 4096, sector_count: int = 64, granule: int = 16) -> None:
        self._file = open_sized(path, sector_size * sector_count)
        self.sector_size = sector_size
        self.sector_count = sector_count
        self.granule = granule
        self._programmed: set = set()  # granules programmed with all ones, because they look blank

    def readblocks(self, block: int, buffer, offset: int = 0) -> None:
        """Reads len(buffer) bytes from `offset` in `block`."""
        self._file.seek(block * self.sector_size + offset)
        if self._file.readinto(buffer) != len(buffer):
            raise DeviceFailed(f"short read in sector {block} at {offset}")

    def writeblocks(self, block: int, buffer, offset: int = 0) -> None:
        """Programs whole granules; raises DeviceFailed if one was programmed since its last erase."""
        length = len(buffer)
        if offset % self.granule or length % self.granule or offset + length > self.sector_size:
            raise DeviceFailed(f"program of {length} bytes in sector {block} at {offset} is not made of whole granules")
        self._check_blank(block, offset, length)
        whole, ones = memoryview(buffer), ERASED[: self.granule]
        for at in range(0, length, self.granule):
            if whole[at : at + self.granule] == ones:
                self._programmed.add((block * self.sector_size + offset + at) // self.granule)
        self._file.seek(block * self.sector_size + offset)
        self._file.write(buffer)
        self._sync()

    def ioctl(self, operation: int, argument: int) -> int | None:
        """The protocol's ioctl: sync, block count, block size, block erase."""
        if operation == IOCTL_BLOCK_COUNT:
            return self.sector_count
        if operation == IOCTL_BLOCK_SIZE:
            return self.sector_size
        if operation == IOCTL_BLOCK_ERASE:
            self._erase(argument)
        elif operation == IOCTL_SYNC:
            self._sync()
        return 0

    def close(self) -> None:
        self._file.close()

    def _check_blank(self, block: int, offset: int, length: int) -> None:
        before = memoryview(bytearray(min(length, len(ERASED))))
        first = (block * self.sector_size + offset) // self.granule
        numbers = range(first, first + length // self.granule)
        is_blank = not (self._programmed and any(number in self._programmed for number in numbers))
        for at in range(0, length, len(ERASED)):
            piece = before[: length - at]
            self.readblocks(block, piece, offset + at)
            is_blank = is_blank and piece == ERASED[: len(piece)]
        if not is_blank:
            raise DeviceFailed(f"sector {block} at {offset} was programmed since its last erase")

    def _erase(self, block: int) -> None:
        first = block * self.sector_size // self.granule
        self._programmed.difference_update(range(first, first + self.sector_size // self.granule))
        self._file.seek(block * self.sector_size)
        for _ in range(self.sector_size // len(ERASED)):
            self._file.write(ERASED)
        self._sync()

    def _sync(self) -> None:
        self._file.flush()  # MicroPython's flush is an fsync
        if hasattr(os, "fsync"):
            os.fsync(self._file.fileno())
