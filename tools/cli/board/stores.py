"""Stores of messages on a board's flash: where one may lie, and what it holds."""

from dataclasses import dataclass

from tools.cli.flash.reader import read_store
from tools.cli.flash.store import NoStore, Store

SECTOR_BYTES = 4096
FREE_BYTES = 16  # of a sector's header
BLANK = b"\xff"


@dataclass(frozen=True)
class Region:
    """A part of the flash that was read.

    Attributes:
        is_named: whether the board's partition table says that a store is there.
        store: the store in it; None if there is none that can be read.
        fault: why there is none; "" if the region is blank.
    """

    offset: int
    size: int
    is_named: bool
    store: Store | None
    fault: str

    @property
    def unacknowledged(self) -> int:
        """How many messages no broker has acknowledged."""
        return len(self.store.messages) if self.store else 0

    @property
    def area(self) -> range:
        """Its addresses."""
        return range(self.offset, self.offset + self.size)

    @property
    def place(self) -> str:
        return f"0x{self.offset:x}"


def look_into(content: bytes, offset: int, is_named: bool) -> Region:
    """Says what a region holds."""
    if not content.strip(BLANK) or _is_cut_erase(content):
        return Region(offset, len(content), is_named, None, "")
    try:
        return Region(offset, len(content), is_named, read_store(content, SECTOR_BYTES), "")
    except NoStore as error:
        return Region(offset, len(content), is_named, None, str(error))


def find_stores(content: bytes, offset: int) -> list[Region]:
    """Finds stores anywhere in this part of the flash, where no table says where one may be."""
    begins = [at for at in range(0, len(content), SECTOR_BYTES) if content[at : at + 2] == b"HF"]
    if not begins:
        return []
    first, last = begins[0], begins[-1] + SECTOR_BYTES
    found = look_into(content[first:last], offset + first, is_named=False)
    return [found] if found.store or "format version" in found.fault else []


def _is_cut_erase(content: bytes) -> bool:
    """Whether only one sector is left, and its header is gone: an erase of the region was cut there."""
    left = [
        content[at : at + SECTOR_BYTES]
        for at in range(0, len(content), SECTOR_BYTES)
        if content[at : at + SECTOR_BYTES].strip(BLANK)
    ]
    return len(left) == 1 and left[0].startswith(BLANK * FREE_BYTES)
