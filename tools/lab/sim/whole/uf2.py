"""UF2 files (github.com/microsoft/uf2): how they are made, and which of their blocks an RP2's drive takes."""

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field

BLOCK_BYTES = 512
BLOCK = struct.Struct("<IIIIIIII476sI")
FIRST_MAGIC, SECOND_MAGIC, LAST_MAGIC = 0x0A32_4655, 0x9E5D_5157, 0x0AB1_6F30
NOT_FOR_FLASH, HAS_FAMILY = 0x1, 0x2000
RP2040_FAMILY, RP2350_FAMILY = 0xE48B_FF56, 0xE48B_FF59
FLASH_AT = 0x1000_0000
PAYLOAD_BYTES = 256


def make_uf2(content: bytes, family: int = RP2040_FAMILY, address: int = FLASH_AT) -> bytes:
    """A file that writes `content` to this address of the chip."""
    pages = [content[at : at + PAYLOAD_BYTES] for at in range(0, len(content), PAYLOAD_BYTES)]
    return b"".join(
        BLOCK.pack(
            FIRST_MAGIC,
            SECOND_MAGIC,
            HAS_FAMILY,
            address + number * PAYLOAD_BYTES,
            PAYLOAD_BYTES,
            number,
            len(pages),
            family,
            page.ljust(PAYLOAD_BYTES, b"\0"),
            LAST_MAGIC,
        )
        for number, page in enumerate(pages)
    )


@dataclass
class Download:
    """What a drive has taken so far. It ignores blocks for another chip, as the ROM does.

    Attributes:
        pages: what goes to which address of the flash, by the number of its block.
    """

    family: int
    flash_size: int
    pages: dict[int, tuple[int, bytes]] = field(default_factory=dict)
    count: int = 0

    @property
    def is_whole(self) -> bool:
        """Whether every block of the file has come."""
        return 0 < self.count == len(self.pages)

    def take(self, content: bytes) -> None:
        """Takes whole blocks. A block of a file with another count of blocks begins a new download."""
        for fields in _blocks(content):
            flags, address, size, number, count, family, data = fields
            is_ours = flags & HAS_FAMILY and not flags & NOT_FOR_FLASH and family == self.family
            start = address - FLASH_AT
            if not is_ours or size != PAYLOAD_BYTES or start % PAYLOAD_BYTES or number >= count:
                continue
            if not 0 <= start <= self.flash_size - size:
                continue
            if count != self.count:
                self.pages, self.count = {}, count
            self.pages[number] = start, data[:size]


def _blocks(content: bytes) -> Iterator[tuple[int, int, int, int, int, int, bytes]]:
    """The blocks with the right marks: flags, address, size, number, count, family, data."""
    for at in range(0, len(content) - BLOCK_BYTES + 1, BLOCK_BYTES):
        first, second, *fields, last = BLOCK.unpack_from(content, at)
        if (first, second, last) == (FIRST_MAGIC, SECOND_MAGIC, LAST_MAGIC):
            yield tuple(fields)
