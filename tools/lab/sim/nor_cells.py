"""The cells of a NOR flash: what programs and erases leave in them, whole or cut, and how their bits drift.

Erased bits are 1, a program clears bits; a granule takes one program until its sector is erased.
"""

import random
from typing import Self


class Cells:
    """The cells of a chip, whose content is `image`.

    Args:
        content: what the chip holds.
        chance: decides what a cut leaves, and what drifts.

    Attributes:
        drifts: whether a torn program may read as whole, with bits that `drift` later.
        has_ecc: whether what a cut left of a granule, and what has drifted too far, may become uncorrectable.
        uncorrectable: addresses of granules that cannot be read until their sector is erased.
        violations: how many granules were programmed twice, and how many programs came to a sector whose last erase was
            cut.
    """

    def __init__(self, content: bytes, sector_size: int, granule: int, chance: random.Random) -> None:
        self.image = bytearray(content)
        self.sector_size, self.granule = sector_size, granule
        self.drifts = self.has_ecc = False
        self.uncorrectable: set[int] = set()
        self.violations = 0
        self._random = chance
        self._half_erased: set[int] = set()
        self._weak: dict[int, tuple[int, float]] = {}  # by sector: a mask of its bits, how often they read as 0
        self._marginal: dict[int, int] = {}  # masks of bits by address
        self._programmed = bytearray(self.image[at : at + granule] != b"\xff" * granule for at in self._granules(0, -1))

    def copy(self, chance: random.Random) -> Self:
        """Returns cells with the same content and faults, and other chance."""
        other = self.__class__.__new__(self.__class__)
        other.__dict__.update(self.__dict__, image=bytearray(self.image), violations=0, _random=chance)
        other.uncorrectable = set(self.uncorrectable)
        other._half_erased, other._weak = set(self._half_erased), dict(self._weak)
        other._marginal, other._programmed = dict(self._marginal), bytearray(self._programmed)
        return other

    def read(self, start: int, buffer: bytearray | memoryview) -> bool:
        """Fills a buffer; returns False if a granule there cannot be read."""
        size = len(buffer)
        buffer[:] = self.image[start : start + size]
        first = start // self.granule * self.granule
        if self.uncorrectable and not self.uncorrectable.isdisjoint(range(first, start + size, self.granule)):
            return False
        if (weak := self._weak.get(start // self.sector_size)) and self._random.random() < weak[1]:
            low = (weak[0] >> 8 * (start % self.sector_size)) & self._random.getrandbits(8 * size)
            seen = int.from_bytes(buffer, "little") & ~low
            buffer[:] = seen.to_bytes(size, "little")
        return True

    def program(self, start: int, content: bytes) -> bool:
        """Programs whole granules; returns False, and does nothing, if one was programmed before."""
        if not self._note_programmed(start, len(content)):
            return False
        self._clear_bits(start, content)
        return True

    def erase(self, sector: int) -> None:
        """Erases a sector."""
        start = sector * self.sector_size
        self.forgive(sector)
        self.image[start : start + self.sector_size] = b"\xff" * self.sector_size
        self._settle(start)
        self._weak.pop(sector, None)
        self._half_erased.discard(sector)

    def forgive(self, sector: int) -> None:
        """Lets each granule of a sector be programmed again: its erase was asked for, and may have had no effect."""
        first, count = sector * self.sector_size // self.granule, self.sector_size // self.granule
        self._programmed[first : first + count] = bytes(count)

    def tear_program(self, start: int, content: bytes, byte: int) -> None:
        """Programs up to this byte of the content, not 0: of its granule only some bits are cleared."""
        if self.drifts and self._random.randrange(3) == 0:
            self._program_weakly(start, content)
            return
        done = byte // self.granule * self.granule
        begun = bytes(content[done : done + self.granule])
        noise = self._random.randbytes(self.granule - (byte - done))  # what comes after the byte is cleared in part
        torn = begun[: byte - done] + _either(begun[byte - done :], noise)
        if not self._note_programmed(start, done + self.granule * (torn != b"\xff" * len(torn))):
            return
        self._clear_bits(start, content[:done] + torn)
        if self.has_ecc and self._random.randrange(2):
            self.uncorrectable.add(start + done)

    def tear_erase(self, sector: int, byte: int) -> None:
        """An erase was cut when it had come this far: some way between what was there and a blank that cannot last."""
        size = self.sector_size
        start = sector * size
        before = bytes(self.image[start : start + size])
        self._settle(start)
        stage = self._random.choice((self._swept, self._preprogrammed, self._rising, self._blank, self._patchy))
        self.image[start : start + size] = stage(before, byte)
        self._half_erased.add(sector)
        if self.has_ecc:
            self.uncorrectable.update(at for at in self._granules(start, size) if self._random.randrange(8) == 0)
        weakness = self._random.choice((0.0, 0.02, 0.5))
        if weakness:
            mask = self._random.getrandbits(8 * size) & self._random.getrandbits(8 * size)
            self._weak[sector] = (mask, weakness)
        blank = b"\xff" * self.granule
        for at in self._granules(start, size):
            self._programmed[at // self.granule] = self.image[at : at + self.granule] != blank

    def drift(self) -> None:
        """Time passes: of the bits that torn programs have left marginal some read as erased from now on."""
        for at, mask in list(self._marginal.items()):
            gone = mask & self._random.getrandbits(8) & self._random.getrandbits(8)
            if gone:
                self.image[at] |= gone
                self._marginal[at] = mask & ~gone
                if self.has_ecc and self._random.randrange(2):
                    self.uncorrectable.add(at // self.granule * self.granule)

    def _granules(self, start: int, size: int) -> range:
        return range(start, len(self.image) if size < 0 else start + size, self.granule)

    def _program_weakly(self, start: int, content: bytes) -> None:
        """The cut comes when all bits read as programmed, and some have not enough charge to stay so."""
        if not self.program(start, content):
            return
        for _ in range(self._random.choice((1, 2, 2, 4, 16))):
            at = self._random.randrange(len(content))
            weak = ~content[at] & 1 << self._random.randrange(8)
            self._marginal[start + at] = self._marginal.get(start + at, 0) | weak

    def _settle(self, start: int) -> None:
        """Nothing that was programmed in the sector that starts here is left."""
        sector = range(start, start + self.sector_size)
        self._marginal = {at: mask for at, mask in self._marginal.items() if at not in sector}
        self.uncorrectable = {at for at in self.uncorrectable if at not in sector}

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

    def _note_programmed(self, start: int, size: int) -> bool:
        """Counts what may not be; returns False if a granule was programmed before."""
        first, count = start // self.granule, size // self.granule
        twice = self._programmed.count(1, first, first + count)
        self.violations += twice + (start // self.sector_size in self._half_erased)
        self._programmed[first : first + count] = b"\1" * count
        return not twice

    def _clear_bits(self, start: int, content: bytes) -> None:
        there = int.from_bytes(self.image[start : start + len(content)], "little")
        both = there & int.from_bytes(content, "little")
        self.image[start : start + len(content)] = both.to_bytes(len(content), "little")


def _either(one: bytes, other: bytes) -> bytes:
    """The bits that are 1 in one of two texts of the same length."""
    return (int.from_bytes(one, "little") | int.from_bytes(other, "little")).to_bytes(len(one), "little")
