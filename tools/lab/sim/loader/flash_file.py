"""The flash chip of a simulated board: a file with the rules of NOR.

An erase sets the bits of whole sectors, a program only clears bits: what was not erased before is ANDed. Other
processes may have the same file open, as the running firmware does.
"""

import os
from collections.abc import Iterator
from pathlib import Path

from tools.lab.sim.nor import ERASE_US, PAGE_SIZE, PROGRAM_US, PowerCut

SECTOR_SIZE = 4096
BLOCK_SIZE = 64 * 1024  # the chip erases a whole block faster than its sectors
BLOCK_ERASE_US = 150_000  # of a W25Q, typically
MAKER, KIND = 0xEF, 0x40  # of its JEDEC ID, a W25Q


class FlashFile:
    """A flash chip of `size` bytes, a power of two; erased where the file does not exist yet.

    Raises ValueError where the file has another size.

    Attributes:
        busy_us: how long a real chip would have been busy so far, at typical times, in microseconds.
        cut_after: the bytes that are still programmed or erased before the power goes, with PowerCut. None: it stays.
    """

    def __init__(self, path: Path, size: int = 4 * 1024 * 1024) -> None:
        if not path.exists():
            path.write_bytes(b"\xff" * size)
        elif path.stat().st_size != size:
            raise ValueError(f"{path} has {path.stat().st_size} bytes, expected {size}")
        self.path, self.size = path, size
        self.busy_us = 0
        self.cut_after: int | None = None
        self._file = os.open(path, os.O_RDWR)

    def close(self) -> None:
        os.close(self._file)

    @property
    def jedec_id(self) -> int:
        """What the chip answers to command 0x9F, its first byte lowest."""
        return (self.size.bit_length() - 1) << 16 | KIND << 8 | MAKER

    def read(self, address: int, size: int) -> bytes:
        """Reads bytes. Raises ValueError outside the chip."""
        self._check(address, size)
        return os.pread(self._file, size, address)

    def program(self, address: int, content: bytes) -> None:
        """Clears the bits that are 0 in `content`. Raises ValueError outside the chip, PowerCut."""
        before = self.read(address, len(content))
        allowed = len(content) if self.cut_after is None else min(self.cut_after, len(content))
        cleared = int.from_bytes(before, "little") & int.from_bytes(content, "little")
        os.pwrite(self._file, cleared.to_bytes(len(content), "little")[:allowed], address)
        self.busy_us += PROGRAM_US * (-(-len(content) // PAGE_SIZE))
        self._note(allowed, len(content))

    def erase(self, address: int, size: int) -> None:
        """Sets all bits of the sectors that begin before `address + size`. Raises ValueError outside the chip,
        PowerCut."""
        charged_to = address
        for start in self.sectors(address, size):
            if start >= charged_to or start == address // SECTOR_SIZE * SECTOR_SIZE:
                is_block = not start % BLOCK_SIZE and start + BLOCK_SIZE <= address + size
                self.busy_us += BLOCK_ERASE_US if is_block else ERASE_US
                charged_to = start + (BLOCK_SIZE if is_block else SECTOR_SIZE)
            allowed = SECTOR_SIZE if self.cut_after is None else min(self.cut_after, SECTOR_SIZE)
            os.pwrite(self._file, b"\xff" * allowed, start)
            self._note(allowed, SECTOR_SIZE)

    def sectors(self, address: int, size: int) -> Iterator[int]:
        """The addresses of the sectors that hold any of these bytes. Raises ValueError outside the chip."""
        self._check(address, size)
        first = address // SECTOR_SIZE * SECTOR_SIZE
        return iter(range(first, address + size, SECTOR_SIZE))

    def _note(self, done: int, wanted: int) -> None:
        if self.cut_after is not None:
            self.cut_after -= done
            if done < wanted:
                self.cut_after = None
                raise PowerCut

    def _check(self, address: int, size: int) -> None:
        if not 0 <= address <= address + size <= self.size:
            raise ValueError(f"{size} bytes at 0x{address:x} are not within a flash of {self.size} bytes")
