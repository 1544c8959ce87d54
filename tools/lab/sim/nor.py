"""NOR flash in RAM with its faults: torn programs and erases, bad sectors, bits that drift.

Times are those of a W25Q. All random choices follow from the seed.
"""

import errno
import random
from collections.abc import Callable
from typing import NamedTuple

from flash_store.block_device import IOCTL_BLOCK_COUNT, IOCTL_BLOCK_ERASE, IOCTL_BLOCK_SIZE
from flash_store.errors import DeviceFailed
from tools.lab.sim.nor_cells import Cells

PAGE_SIZE = 256
PROGRAM_US = 700  # of a page
ERASE_US = 45_000  # of a sector of 4 KiB
READ_BYTES_PER_US = 20


class PowerCut(BaseException):
    """The power went during a program or an erase. It is a BaseException, so that no code under test catches it."""


class Operation(NamedTuple):
    """A program of `content`, or an erase where that is empty."""

    sector: int
    offset: int
    content: bytes

    @property
    def is_erase(self) -> bool:
        return not self.content


def _nothing(operation: Operation) -> None:
    pass


class NorFlash:
    """A block device of MicroPython's protocol, extended form. Counters go on for ever.

    Faults, all without effect until they are set: those of its `cells`; `bad_erases`, sectors where an erase has no
    effect, and `bad_programs`, where a program stops half-way, both raise DeviceFailed unless `silent`;
    `noise`: the share of reads that return one wrong bit, as on a long or fast SPI bus. A read of what is uncorrectable
    raises OSError.
    `before_operation` and `after_operation` are called with each operation; `operations` tells them all.
    """

    def __init__(
        self, sector_size: int, sector_count: int, granule: int, seed: int = 0, image: bytes | None = None
    ) -> None:
        self.sector_size, self.sector_count, self.granule = sector_size, sector_count, granule
        self._random = random.Random(seed)
        self.cells = Cells(image or b"\xff" * sector_size * sector_count, sector_size, granule, self._random)
        self.bad_erases: set[int] = set()
        self.bad_programs: set[int] = set()
        self.silent = False
        self.noise = 0.0
        self.before_operation: Callable[[Operation], None] = _nothing
        self.after_operation: Callable[[Operation], None] = _nothing
        self.operations: list[Operation] = []
        self.reads = self.bytes_read = self.bytes_programmed = self.pages_programmed = 0
        self.erase_counts = [0] * sector_count
        self._cut_after: int | None = None

    @property
    def image(self) -> bytearray:
        """What it holds."""
        return self.cells.image

    @property
    def violations(self) -> int:
        """How many granules were programmed twice or after half an erase."""
        return self.cells.violations

    @property
    def erases(self) -> int:
        return sum(self.erase_counts)

    @property
    def time_us(self) -> int:
        """The time of all operations at typical durations, in microseconds."""
        erases = self.erases * ERASE_US
        return erases + self.pages_programmed * PROGRAM_US + self.bytes_read // READ_BYTES_PER_US

    def readblocks(self, block: int, buffer: bytearray | memoryview, offset: int = 0) -> None:
        """Read len(buffer) bytes from `offset` in `block`."""
        size = len(buffer)
        if not 0 <= block < self.sector_count or offset < 0 or offset + size > self.sector_size:
            raise DeviceFailed(f"sector {block}: {size} bytes at {offset} are not within it")
        self.reads += 1
        self.bytes_read += size
        if not self.cells.read(block * self.sector_size + offset, buffer):
            raise OSError(errno.EIO, f"sector {block}: uncorrectable error at {offset}")
        if size and self.noise and self._random.random() < self.noise:
            buffer[self._random.randrange(size)] ^= 1 << self._random.randrange(8)

    def writeblocks(self, block: int, buffer: bytes | bytearray | memoryview, offset: int = 0) -> None:
        """Program whole granules."""
        size = len(buffer)
        is_whole = size and not offset % self.granule and not size % self.granule
        if not is_whole or not 0 <= block < self.sector_count or offset < 0 or offset + size > self.sector_size:
            raise DeviceFailed(f"sector {block}: {size} bytes at {offset} are not whole granules within it")
        self._do(Operation(block, offset, bytes(buffer)))

    def ioctl(self, operation: int, argument: int) -> int:
        """The protocol's ioctl: block count, block size, block erase; the others have nothing to do."""
        if operation == IOCTL_BLOCK_COUNT:
            return self.sector_count
        if operation == IOCTL_BLOCK_SIZE:
            return self.sector_size
        if operation == IOCTL_BLOCK_ERASE:
            if not 0 <= argument < self.sector_count:
                raise DeviceFailed(f"there is no sector {argument}")
            self._do(Operation(argument, 0, b""))
        return 0

    def size_of(self, operation: Operation) -> int:
        """The number of places where an operation can be cut: each byte that it programs or erases."""
        return len(operation.content) or self.sector_size

    def cut_at(self, byte: int | None) -> None:
        """The power goes when this many bytes more have been programmed or erased: that operation raises PowerCut.
        None calls it off."""
        self._cut_after = byte

    @property
    def is_cut_ahead(self) -> bool:
        return self._cut_after is not None

    def torn(self, operation: Operation, byte: int) -> "NorFlash":
        """The flash after a power cut at this byte of an operation that it has not done yet."""
        flash = self.copy()
        flash._tear(operation, byte)
        return flash

    def drift(self) -> None:
        """Time passes; see `Cells.drift`."""
        self.cells.drift()

    def redo(self, operation: Operation) -> None:
        """Do an operation recorded elsewhere."""
        self._do(operation)

    def copy(self) -> "NorFlash":
        """A copy with the same content and faults, and its own random choices. It has no callbacks; its counters start
        at 0."""
        other = NorFlash.__new__(NorFlash)
        other.__dict__.update(self.__dict__)
        other._random = random.Random(self._random.getrandbits(64))
        other.cells = self.cells.copy(other._random)
        other.bad_erases, other.bad_programs = set(self.bad_erases), set(self.bad_programs)
        other.erase_counts = list(self.erase_counts)
        other.before_operation = other.after_operation = _nothing
        other.operations = []
        other.reads = other.bytes_read = other.bytes_programmed = other.pages_programmed = 0
        other._cut_after = None
        return other

    def _do(self, operation: Operation) -> None:
        self.before_operation(operation)
        self.operations.append(operation)
        if self._cut_after is not None:
            if self._cut_after < self.size_of(operation):
                self._tear(operation, self._cut_after)
                self._cut_after = None
                raise PowerCut
            self._cut_after -= self.size_of(operation)
        done = self._erase(operation.sector) if operation.is_erase else self._program(operation)
        self.after_operation(operation)
        if not done and not self.silent:
            raise DeviceFailed(f"sector {operation.sector} failed at {operation.offset}")

    def _program(self, operation: Operation) -> bool:
        sector, offset, content = operation
        start = sector * self.sector_size + offset
        self.bytes_programmed += len(content)
        self.pages_programmed += (start + len(content) - 1) // PAGE_SIZE - start // PAGE_SIZE + 1
        if sector in self.bad_programs:
            self._tear(operation, self._random.randrange(len(content)))
            return False
        return self.cells.program(start, content)

    def _erase(self, sector: int) -> bool:
        self.erase_counts[sector] += 1
        if sector in self.bad_erases:
            self.cells.forgive(sector)
            return False
        self.cells.erase(sector)
        return True

    def _tear(self, operation: Operation, byte: int) -> None:
        """Do an operation up to this byte."""
        if not byte:
            return
        if not operation.is_erase:
            start = operation.sector * self.sector_size + operation.offset
            self.cells.tear_program(start, operation.content, byte)
        elif operation.sector not in self.bad_erases:
            self.cells.tear_erase(operation.sector, byte)
