"""NOR flash in RAM with its faults: torn programs and erases, bad sectors, bits that drift.

Erased bits are 1, a program clears bits; a granule takes one program until its sector is erased. Times are those of a
W25Q. All random choices follow from the seed.
"""

import errno
import random
from collections.abc import Callable
from typing import NamedTuple

from flash_store.block_device import IOCTL_BLOCK_COUNT, IOCTL_BLOCK_ERASE, IOCTL_BLOCK_SIZE
from flash_store.errors import DeviceFailed

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
    """A block device of MicroPython's protocol, extended form. `image` is what it holds; counters go on for ever.

    Faults, all without effect until they are set: `bad_erases`, sectors where an erase has no effect, and
    `bad_programs`, where a program stops half-way, both raise DeviceFailed unless `silent`;
    `drifts`: a torn program may read as whole, with bits that `drift` later;
    `noise`: the share of reads that return one wrong bit, as on a long or fast SPI bus;
    `uncorrectable`, addresses of granules whose reads raise OSError until their sector is erased; `has_ecc`: what a cut
    left of a granule, and what has drifted too far, may become uncorrectable.
    `before_operation` and `after_operation` are called with each operation; `operations` tells them all.
    `violations` counts granules programmed twice, and programs of a sector whose last erase was cut.
    """

    def __init__(
        self, sector_size: int, sector_count: int, granule: int, seed: int = 0, image: bytes | None = None
    ) -> None:
        self.sector_size, self.sector_count, self.granule = sector_size, sector_count, granule
        self.image = bytearray(b"\xff" * sector_size * sector_count if image is None else image)
        self.bad_erases: set[int] = set()
        self.bad_programs: set[int] = set()
        self.silent = False
        self.noise = 0.0
        self.drifts = self.has_ecc = False
        self.uncorrectable: set[int] = set()
        self.before_operation: Callable[[Operation], None] = _nothing
        self.after_operation: Callable[[Operation], None] = _nothing
        self.operations: list[Operation] = []
        self.violations = self.reads = self.bytes_read = self.bytes_programmed = self.pages_programmed = 0
        self.erase_counts = [0] * sector_count
        self._random = random.Random(seed)
        self._half_erased: set[int] = set()
        self._weak: dict[int, tuple[int, float]] = {}  # by sector: a mask of its bits, how often they read as 0
        self._marginal: dict[int, int] = {}  # masks of bits by address
        self._cut_after: int | None = None
        blank = b"\xff" * granule
        self._programmed = bytearray(
            self.image[at : at + granule] != blank for at in range(0, len(self.image), granule)
        )

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
        start = block * self.sector_size + offset
        buffer[:] = self.image[start : start + size]
        self.reads += 1
        self.bytes_read += size
        if self.uncorrectable:
            first = start // self.granule * self.granule
            if any(at in self.uncorrectable for at in range(first, start + size, self.granule)):
                raise OSError(errno.EIO, f"sector {block}: uncorrectable error at {offset}")
        if block in self._weak:
            self._read_weak(block, offset, buffer)
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
        """Time passes: of the bits that torn programs have left marginal some read as erased from now on."""
        for at, mask in list(self._marginal.items()):
            gone = mask & self._random.getrandbits(8) & self._random.getrandbits(8)
            if gone:
                self.image[at] |= gone
                self._marginal[at] = mask & ~gone
                if self.has_ecc and self._random.randrange(2):
                    self.uncorrectable.add(at // self.granule * self.granule)

    def redo(self, operation: Operation) -> None:
        """Do an operation recorded elsewhere."""
        self._do(operation)

    def copy(self) -> "NorFlash":
        """A copy with the same content and faults, and its own random choices. It has no callbacks; its counters start
        at 0."""
        other = NorFlash.__new__(NorFlash)
        other.__dict__.update(self.__dict__)
        other.image = bytearray(self.image)
        other._programmed = bytearray(self._programmed)
        other.bad_erases, other.bad_programs = set(self.bad_erases), set(self.bad_programs)
        other._half_erased, other._weak = set(self._half_erased), dict(self._weak)
        other._marginal, other.uncorrectable = dict(self._marginal), set(self.uncorrectable)
        other.erase_counts = list(self.erase_counts)
        other.before_operation = other.after_operation = _nothing
        other.operations = []
        other.violations = other.reads = other.bytes_read = other.bytes_programmed = other.pages_programmed = 0
        other._cut_after = None
        other._random = random.Random(self._random.getrandbits(64))
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
        if not self._note_programmed(sector, offset, len(content)):
            return False
        self._clear_bits(start, content)
        return True

    def _erase(self, sector: int) -> bool:
        self.erase_counts[sector] += 1
        # A granule may be programmed once for each erase that was asked for, also where the device was silent.
        self._set_programmed(sector, 0, self.sector_size, 0)
        if sector in self.bad_erases:
            return False
        start = sector * self.sector_size
        self.image[start : start + self.sector_size] = b"\xff" * self.sector_size
        self._settle(start, start + self.sector_size)
        self._weak.pop(sector, None)
        self._half_erased.discard(sector)
        return True

    def _tear(self, operation: Operation, byte: int) -> None:
        """Do an operation up to this byte."""
        if operation.is_erase:
            if byte and operation.sector not in self.bad_erases:
                self._tear_erase(operation.sector, byte)
            return
        sector, offset, content = operation
        if not byte:
            return
        if self.drifts and self._random.randrange(3) == 0:
            self._program_weakly(operation)
            return
        done = byte // self.granule * self.granule
        begun = bytes(content[done : done + self.granule])
        noise = self._random.randbytes(self.granule - (byte - done))  # what comes after the byte is cleared in part
        torn = begun[: byte - done] + _either(begun[byte - done :], noise)
        if not self._note_programmed(sector, offset, done + self.granule * (torn != b"\xff" * len(torn))):
            return
        self._clear_bits(sector * self.sector_size + offset, content[:done] + torn)
        if self.has_ecc and self._random.randrange(2):
            self.uncorrectable.add(sector * self.sector_size + offset + done)

    def _program_weakly(self, operation: Operation) -> None:
        """The cut comes when all bits read as programmed, and some have not enough charge to stay so."""
        sector, offset, content = operation
        start = sector * self.sector_size + offset
        if not self._note_programmed(sector, offset, len(content)):
            return
        self._clear_bits(start, content)
        for _ in range(self._random.choice((1, 2, 2, 4, 16))):
            at = self._random.randrange(len(content))
            self._marginal[start + at] = self._marginal.get(start + at, 0) | (
                ~content[at] & 1 << self._random.randrange(8)
            )

    def _settle(self, start: int, end: int) -> None:
        """Nothing that was programmed here is left."""
        self._marginal = {at: mask for at, mask in self._marginal.items() if not start <= at < end}
        self.uncorrectable = {at for at in self.uncorrectable if not start <= at < end}

    def _tear_erase(self, sector: int, byte: int) -> None:
        """An erase was cut when it had come this far: some way between what was there and a blank that cannot last."""
        size = self.sector_size
        start = sector * size
        before = bytes(self.image[start : start + size])
        self._settle(start, start + size)
        stage = self._random.choice((self._swept, self._preprogrammed, self._rising, self._blank, self._patchy))
        after = stage(before, byte)
        self.image[start : start + size] = after
        self._half_erased.add(sector)
        if self.has_ecc:
            for at in range(start, start + size, self.granule):
                if self._random.randrange(8) == 0:
                    self.uncorrectable.add(at)
        weakness = self._random.choice((0.0, 0.02, 0.5))
        if weakness:
            mask = self._random.getrandbits(8 * size) & self._random.getrandbits(8 * size)
            self._weak[sector] = (mask, weakness)
        blank = b"\xff" * self.granule
        first = start // self.granule
        for number in range(size // self.granule):
            self._programmed[first + number] = after[number * self.granule : (number + 1) * self.granule] != blank

    def _swept(self, before: bytes, byte: int) -> bytes:
        return b"\xff" * byte + before[byte:]

    def _preprogrammed(self, before: bytes, byte: int) -> bytes:
        return bytes(byte) + before[byte:]

    def _rising(self, before: bytes, byte: int) -> bytes:
        noise = self._random.randbytes(len(before))
        return _either(before, noise if 2 * byte < len(before) else _either(noise, self._random.randbytes(len(noise))))

    def _blank(self, before: bytes, byte: int) -> bytes:
        """All reads as erased, or all but the headers."""
        kept = self._random.choice((0, 0, 32, 64, 2 * self.granule, 4 * self.granule))
        return before[:kept] + b"\xff" * (len(before) - kept)

    def _patchy(self, before: bytes, byte: int) -> bytes:
        """Granules that are done, begun, or not touched yet; often the headers are among the last."""
        kept = self._random.choice((0, 64))
        pieces = [before[:kept]]
        for at in range(kept, len(before), self.granule):
            piece = before[at : at + self.granule]
            noise = _either(piece, self._random.randbytes(len(piece)))
            pieces.append(self._random.choice((piece, piece, noise, b"\xff" * len(piece))))
        return b"".join(pieces)[: len(before)]

    def _note_programmed(self, sector: int, offset: int, size: int) -> bool:
        """Count what may not be; False when a granule was programmed before."""
        first = (sector * self.sector_size + offset) // self.granule
        twice = self._programmed.count(1, first, first + size // self.granule)
        self.violations += twice + (sector in self._half_erased)
        self._set_programmed(sector, offset, size, 1)
        return not twice

    def _set_programmed(self, sector: int, offset: int, size: int, value: int) -> None:
        first, count = (sector * self.sector_size + offset) // self.granule, size // self.granule
        self._programmed[first : first + count] = bytes((value,)) * count

    def _clear_bits(self, start: int, content: bytes) -> None:
        there = int.from_bytes(self.image[start : start + len(content)], "little")
        both = there & int.from_bytes(content, "little")
        self.image[start : start + len(content)] = both.to_bytes(len(content), "little")

    def _read_weak(self, sector: int, offset: int, buffer: bytearray | memoryview) -> None:
        mask, odds = self._weak[sector]
        if self._random.random() < odds:
            bits = 8 * len(buffer)
            low = (mask >> 8 * offset) & self._random.getrandbits(bits)
            seen = int.from_bytes(buffer, "little") & ~low
            buffer[:] = seen.to_bytes(len(buffer), "little")


def _either(one: bytes, other: bytes) -> bytes:
    """The bits that are 1 in one of two texts of the same length."""
    return (int.from_bytes(one, "little") | int.from_bytes(other, "little")).to_bytes(len(one), "little")
