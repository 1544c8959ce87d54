"""A simulated NOR flash that counts its work."""

from collections.abc import Iterator
from dataclasses import dataclass

from flash_store.sector import records_offset
from tools.lab.sim.nor import NorFlash, Operation

SECTOR_SIZE = 4096


@dataclass
class Cost:
    """The work of a flash: bytes, operations, pages of 256 bytes, microseconds at typical times. `records` counts
    programs, without those of a sector's header."""

    programmed: int = 0
    read: int = 0
    erases: int = 0
    records: int = 0
    pages: int = 0
    time_us: int = 0

    def __add__(self, other: "Cost") -> "Cost":
        return Cost(*(mine + others for mine, others in self._pairs(other)))

    def __sub__(self, other: "Cost") -> "Cost":
        return Cost(*(mine - others for mine, others in self._pairs(other)))

    def worst(self, other: "Cost") -> "Cost":
        """Returns the higher value of each count."""
        return Cost(*(max(pair) for pair in self._pairs(other)))

    def _pairs(self, other: "Cost") -> Iterator[tuple[int, int]]:
        return zip(vars(self).values(), vars(other).values(), strict=True)


class MeteredFlash(NorFlash):
    """The simulated NOR flash, which also counts records, and keeps no list of its operations."""

    def __init__(self, sector_count: int, granule: int) -> None:
        super().__init__(SECTOR_SIZE, sector_count, granule)
        self._records = 0
        self.after_operation = self._count

    def cost(self) -> Cost:
        """Returns all work so far."""
        return Cost(
            self.bytes_programmed, self.bytes_read, self.erases, self._records, self.pages_programmed, self.time_us
        )

    def _count(self, operation: Operation) -> None:
        self._records += not operation.is_erase and operation.offset >= records_offset(self.granule)
        self.operations.clear()
