"""The sectors as a ring: which are free, which is the head, how much of each is live or dead."""

from array import array

from flash_store import record, sector
from flash_store.sector import Open

# In place of a sector_seq, which counts from 1:
FREE = 0x20000000  # or above: free, with the erase_count in the lower bits; small integers on a 32-bit board
BAD = 0x3FFFFFFE  # an erase or its header failed: left alone until the next mount
DIRTY = 0x3FFFFFFF  # to be erased before use
_COUNT = 0x1FFFFFFF

RELOCATION = 2  # sectors that only a relocation may use


class Ring:
    """The state of all sectors in RAM, 8 bytes each: sector_seq or what stands in its place, live and dead granules."""

    def __init__(self, flash, granule: int, epoch: int) -> None:
        self.flash = flash
        self.granule = granule
        self.epoch = epoch
        count = flash.sector_count
        self.seqs = array("I", (DIRTY for _ in range(count)))
        self._live = array("H", (0 for _ in range(count)))
        self._dead = array("H", (0 for _ in range(count)))
        self._erased = 0  # a bit for each sector that was erased since the mount
        self.head = 0
        self.head_offset = flash.sector_size  # where the next record goes
        self.sector_seq = 0  # the highest that any OPEN has, also one that failed
        self.erases = 0
        self.erase_count_max = 0

    @property
    def capacity(self) -> int:
        """Bytes of records that one sector takes."""
        return self.flash.sector_size - self.first()

    @property
    def reserve(self) -> int:
        """Sectors that new messages leave free: two for a relocation, of which a power cut may spoil one, one for
        settings, and for acknowledgements so many that what these displace is worth relocating once they are full."""
        notes = self.flash.sector_count * record.extent(0, self.granule)
        return RELOCATION + 1 + (self.capacity // 2 + notes + self.capacity - 1) // self.capacity

    def first(self) -> int:
        """Where a sector's records begin."""
        return sector.records_offset(self.granule)

    def is_free(self, index: int) -> bool:
        return FREE <= self.seqs[index] < BAD

    def is_used(self, index: int) -> bool:
        return self.seqs[index] < FREE

    def free(self) -> int:
        """How many sectors are free."""
        return sum(1 for index in range(len(self.seqs)) if self.is_free(index))

    def count(self, state: int) -> int:
        """How many sectors are BAD or DIRTY."""
        return sum(1 for seq in self.seqs if seq == state)

    def used(self) -> list[int]:
        """Sectors that hold records, oldest first."""
        return sorted((i for i in range(len(self.seqs)) if self.is_used(i)), key=lambda i: self.seqs[i])

    def first_dirty(self) -> int:
        """A sector that is to be erased before use."""
        return list(self.seqs).index(DIRTY)

    def use(self, index: int, seq: int) -> None:
        """The mount found this sector in use."""
        self.seqs[index] = seq
        self.sector_seq = max(self.sector_seq, seq)

    def set_free(self, index: int, erase_count: int) -> None:
        """The mount found this sector free."""
        self.seqs[index] = FREE | min(erase_count, _COUNT - 2)

    def void(self, index: int) -> None:
        """Nothing in this sector counts: it is erased before its next use."""
        self.seqs[index] = DIRTY

    def distrust_free(self) -> None:
        """An erase may have gone without its ERASE: what reads as free may be what a cut left of it [R8]."""
        for index in range(len(self.seqs)):
            if self.is_free(index) and not self._erased >> index & 1:
                self.void(index)

    def erase_count(self, index: int) -> int:
        """erase_count of a free sector."""
        return self.seqs[index] & _COUNT

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
        self.add_dead(index, self.size_at(place))

    def size_at(self, place: int) -> int:
        """Bytes on flash of the message or setting at this place; 0 where its header cannot be believed any more."""
        return record.size_at(self.flash, self.sector_of(place), self.offset_of(place), self.granule)

    def bury(self, index: int) -> None:
        """Nothing in this sector counts any more."""
        self._live[index] = 0
        self._dead[index] = self.capacity // self.granule

    def is_relocation_worthwhile(self, live: int) -> bool:
        """True when these live bytes of a sector have room elsewhere, and all dead bytes between live ones make up
        an eighth of what is used, or half a sector, over and above what relocating all of it would write itself."""
        note = record.extent(0, self.granule)
        used = self.used()
        dead = sum(self._dead[i] for i in used) * self.granule - len(used) * note
        if not self.free():  # the last chance to move it, if it gains anything
            return live + note <= self.room() and dead > 0
        return live + note <= self.capacity // 2 or dead > min(self.capacity // 2, len(used) * self.capacity // 8)

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
            if self.free() <= RELOCATION:  # the last boot may have fared the same, and erased without room for a note
                self.distrust_free()
            return None
        self.head_offset += len(encoded)
        return place

    def open_next(self, next_id: int, boot_id: int) -> bool:
        """Make the free sector that was erased least often the head [A1]; False when it turns out not to be usable."""
        count = len(self.seqs)
        free = [i % count for i in range(self.head + 1, self.head + 1 + count) if self.is_free(i % count)]
        index = min(free, key=self.erase_count)
        if not self._erased >> index & 1 and not self._is_blank(index):
            self.seqs[index] = DIRTY
            return False
        self.sector_seq = seq = self.sector_seq + 1
        header = sector.encode_open(Open(seq, self.live_seq(seq), next_id, boot_id), self.epoch, self.granule)
        if not self.flash.program(index, sector.open_offset(self.granule), header):
            self.seqs[index] = BAD
            return False
        self.seqs[index] = seq
        self.head, self.head_offset = index, self.first()
        return True

    def next_erase_count(self, index: int) -> int:
        """What this sector's FREE will say after its next erase."""
        free = sector.read_free(self.flash, index)
        return (free.erase_count if free else self.erase_count_max) + 1

    def erase(self, index: int, erase_count: int) -> None:
        """Erase a sector and write its FREE header; a sector that fails is left alone from then on."""
        self.erase_count_max = max(self.erase_count_max, erase_count)
        self._live[index] = self._dead[index] = 0
        header = sector.encode_free(self.granule, erase_count, self.epoch)
        done = self.flash.erase(index) and self.flash.program(index, 0, header)
        self.seqs[index] = FREE | erase_count if done else BAD
        self._erased |= 1 << index
        self.erases += 1

    def erase_counts(self) -> list[int]:
        """How often each sector was erased in its life, as its header says; 0 where none can be read."""
        frees = [sector.read_free(self.flash, index) for index in range(len(self.seqs))]
        return [free.erase_count if free else 0 for free in frees]

    def _is_blank(self, index: int) -> bool:
        """An erase that was cut may leave the FREE header and clear the OPEN one: only a blank rest proves it free."""
        start = sector.open_offset(self.granule)
        return self.flash.is_blank(index, start, self.flash.sector_size - start)
