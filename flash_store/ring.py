"""The sectors as a ring: which are free, which is the head, how much of each is live or dead."""

from array import array

from flash_store import record, sector
from flash_store.sector import Open

# In place of a sector_seq, which counts from 1:
FREE = 0
DIRTY = 0xFFFFFFFF  # to be erased before use
BAD = 0xFFFFFFFE  # an erase or its header failed: left alone until the next mount


class Ring:
    """The state of all sectors in RAM, 8 bytes each: sector_seq, live messages, dead granules."""

    def __init__(self, flash, granule: int, epoch: int) -> None:
        self.flash = flash
        self.granule = granule
        self.epoch = epoch
        self.first = sector.records_offset(granule)
        self.seqs = array("I", (DIRTY for _ in range(flash.sector_count)))
        self._live = array("H", (0 for _ in range(flash.sector_count)))
        self._dead = array("H", (0 for _ in range(flash.sector_count)))
        self._is_checked = bytearray(flash.sector_count)  # 1: was erased since the mount
        self.head = 0
        self.head_offset = flash.sector_size  # where the next record goes
        self.durable_tail = 0  # sectors with a smaller sector_seq are dead, and the flash says so
        self.erases = 0
        self._erase_count_max = 0

    @property
    def capacity(self) -> int:
        """Bytes of records that one sector takes."""
        return self.flash.sector_size - self.first

    @property
    def reserve(self) -> int:
        """Sectors that new messages leave free: one for the first of a relocation's records, the others for
        acknowledgements, so many that what these displace is worth relocating before the last one is needed."""
        overhead = self.flash.sector_count * record.extent(0, self.granule)
        return 2 + (overhead + self.capacity - 1) // self.capacity

    def count(self, state: int) -> int:
        return sum(1 for seq in self.seqs if seq == state)

    def first_dirty(self) -> int:
        return list(self.seqs).index(DIRTY)

    def is_used(self, index: int) -> bool:
        return self.seqs[index] != FREE and self.seqs[index] < BAD

    def used(self) -> list[int]:
        """Sectors that hold records, oldest first."""
        return sorted((i for i in range(len(self.seqs)) if self.is_used(i)), key=lambda i: self.seqs[i])

    def tail(self) -> int:
        """The sector used longest ago."""
        return self.used()[0]

    def live_seq(self, default: int) -> int:
        """sector_seq of the oldest sector with something live, `default` when there is none."""
        return min((self.seqs[i] for i in range(len(self.seqs)) if self._live[i]), default=default)

    def erasable(self) -> int:
        """How many sectors an erase alone would free."""
        head_seq = self.seqs[self.head]
        limit = min(self.live_seq(head_seq), head_seq)
        dead = sum(1 for index in range(len(self.seqs)) if self.is_used(index) and self.seqs[index] < limit)
        return dead + self.count(DIRTY)

    def is_live(self, index: int) -> bool:
        return self._live[index] > 0

    def add_live(self, place: int) -> None:
        self._live[self.sector_of(place)] += 1

    def add_dead(self, index: int, size: int) -> None:
        """`size` bytes were used up and hold no message."""
        self._dead[index] += size // self.granule

    def kill(self, place: int) -> None:
        """The message at `place` is dead from now on."""
        index = self.sector_of(place)
        self._live[index] -= 1
        self.add_dead(index, record.size_at(self.flash, index, self.offset_of(place), self.granule))

    def discard(self, index: int) -> None:
        """Nothing in this sector counts any more."""
        self._live[index] = 0
        self.seqs[index] = DIRTY

    def is_relocation_worthwhile(self, index: int) -> bool:
        """True when the live part of this sector has room elsewhere, and all dead bytes between live ones make up
        a sector over and above what relocating writes itself."""
        state = record.extent(0, self.granule)
        live_max = self.capacity - self._dead[index] * self.granule
        dead = sum(self._dead[i] for i in range(len(self.seqs)) if self.is_used(i)) * self.granule
        if not self.count(FREE):  # the last chance to move it, if it gains anything
            return live_max + state <= self.room() and dead > self.flash.sector_count * state
        return dead > self.capacity + self.flash.sector_count * state

    def place(self, index: int, offset: int) -> int:
        """A place on flash as a u32."""
        return index << 16 | offset // self.granule

    def sector_of(self, place: int) -> int:
        return place >> 16

    def offset_of(self, place: int) -> int:
        return (place & 0xFFFF) * self.granule

    def seed(self, index: int) -> int:
        return record.seed(self.epoch, self.seqs[index])

    def room(self) -> int:
        """Bytes left in the head."""
        return self.flash.sector_size - self.head_offset

    def program(self, encoded: bytearray) -> int | None:
        """Add a record to the head; returns its place, None when it failed: then the head takes no more."""
        place = self.place(self.head, self.head_offset)
        if not self.flash.program(self.head, self.head_offset, encoded):
            self.add_dead(self.head, self.room())
            self.head_offset = self.flash.sector_size
            return None
        self.head_offset += len(encoded)
        return place

    def open_next(self, next_id: int, boot_id: int) -> bool:
        """Make the next free sector the head; False when that one turns out not to be usable."""
        count = len(self.seqs)
        around = (i % count for i in range(self.head + 1, self.head + 1 + count))
        index = next(i for i in around if self.seqs[i] in (FREE, DIRTY))
        if self.seqs[index] == DIRTY:
            self.erase(index)  # left out, it would wear less than the others for ever
            return False
        if not self._is_checked[index] and not self._is_erased(index):
            self.seqs[index] = DIRTY
            return False
        seq = max(self.seqs[i] if self.is_used(i) else 0 for i in range(count)) + 1
        tail_seq = self.live_seq(seq)
        header = sector.encode_open(Open(seq, tail_seq, next_id, boot_id), self.epoch, self.granule)
        if not self.flash.program(index, sector.padded(sector.FREE_SIZE, self.granule), header):
            self.seqs[index] = BAD
            return False
        self.seqs[index] = seq
        self.head, self.head_offset, self.durable_tail = index, self.first, tail_seq
        return True

    def erase(self, index: int) -> None:
        """Erase a sector and write its FREE header; a sector that fails is left alone from then on."""
        free = sector.read_free(self.flash, index)
        count = (free.erase_count if free else self._erase_count_max) + 1
        self._erase_count_max = max(self._erase_count_max, count)
        self._live[index] = self._dead[index] = 0
        header = sector.encode_free(self.granule, count, self.epoch)
        done = self.flash.erase(index) and self.flash.program(index, 0, header)
        self.seqs[index] = FREE if done else BAD
        self._is_checked[index] = 1
        self.erases += 1

    def _is_erased(self, index: int) -> bool:
        """An erase that was cut may leave the FREE header and clear the OPEN one: only a blank rest proves it free."""
        start = sector.padded(sector.FREE_SIZE, self.granule)
        return self.flash.is_blank(index, start, self.flash.sector_size - start)
