"""The sectors as a ring: which are in use, which are free, which is the head, how much of each is filled."""

from array import array

from flash_store import record, sector
from flash_store.sector import Open

# In place of a sector_seq, which counts from 1:
FREE = 0x20000000  # or above: free, with the erase_count in the lower bits; small integers on a 32-bit board
BAD = 0x3FFFFFFE  # an erase or its header failed: left alone until the next mount
DIRTY = 0x3FFFFFFF  # to be erased before use
_COUNT = 0x1FFFFFFF
COUNT_MAX = _COUNT - 2  # an erase_count that would be BAD or DIRTY

RELOCATION = 2  # sectors that only a relocation may use
_ERASED = 1  # what `_filled` says of a free sector that was erased since the mount


class Ring:
    """The state of all sectors in RAM, 8 bytes each: sector_seq or what stands in its place, granules filled, order.

    `used_count` sectors are in use; the oldest `dead_count` of them are known to hold nothing that counts. No method
    that an append needs looks at all sectors, however many there are.
    """

    def __init__(self, flash, granule: int = 0, epoch: int = 0) -> None:
        self.flash = flash
        self.granule = granule
        self.epoch = epoch
        count = flash.sector_count
        self.seqs = array("I", range(count))  # of a length that is known: nothing has to grow
        self._filled = array("H", range(count))  # granules of records in a sector in use
        # Going round from `_start`: those in use, oldest first, the free ones as they are to be used, the dirty ones.
        self._order = array("H", range(count))
        for index in range(count):
            self.seqs[index], self._filled[index] = DIRTY, 0
        self._start = 0
        self.used_count = 0
        self.dead_count = 0
        self._free_count = 0
        self._dirty_count = count
        self.filled = 0  # granules of records in all sectors in use
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

    def end(self, index: int) -> int:
        """Where the records of a sector in use end."""
        return self.head_offset if index == self.head else self.first() + self._filled[index] * self.granule

    def is_free(self, index: int) -> bool:
        return FREE <= self.seqs[index] < BAD

    def is_used(self, index: int) -> bool:
        return self.seqs[index] < FREE

    def free(self) -> int:
        """How many sectors are free."""
        return self._free_count

    def dirty(self) -> int:
        """How many sectors are to be erased before use."""
        return self._dirty_count

    def bad(self) -> int:
        """How many sectors are left alone until the next mount."""
        return len(self.seqs) - self.used_count - self._free_count - self._dirty_count

    def used(self, position: int) -> int:
        """The sector in use that was opened as the `position`th of them: 0 is the tail."""
        return self._order[(self._start + position) % len(self._order)]

    def first_dirty(self) -> int:
        """A sector that is to be erased before use."""
        return self.used(self.used_count + self._free_count)

    def arrange(self) -> None:
        """The mount has read all headers into `seqs`: put the sectors in order."""
        count = len(self.seqs)
        heads = [index for index in range(count) if self.seqs[index] == self.sector_seq]
        self.head = heads[-1] if heads else 0
        self._start = self.used_count = self._free_count = self._dirty_count = 0
        for index in self._round():  # a ring that goes round is in order but for few
            if self.is_used(index):
                self._sort_in(index, 0, self.used_count)
                self.used_count += 1
        for index in self._round():
            if self.is_free(index):
                self._sort_in(index, self.used_count, self.used_count + self._free_count)
                self._free_count += 1
        for index in self._round():
            if self.seqs[index] == DIRTY:
                self._set(self.used_count + self._free_count + self._dirty_count, index)
                self._dirty_count += 1

    def fill(self, index: int, end: int) -> None:
        """The mount found that a sector's records end here."""
        granules = (end - self.first()) // self.granule
        self.filled += granules - self._filled[index]
        self._filled[index] = granules
        if index == self.head:
            self.head_offset = end

    def void(self, index: int) -> None:
        """Nothing in this sector counts: it is erased before its next use."""
        if self.is_used(index):
            self.filled -= self._filled[index]
        self._take_out(self._position(index))
        self._set(self.used_count + self._free_count + self._dirty_count, index)
        self._dirty_count += 1
        self.seqs[index] = DIRTY

    def distrust_free(self) -> None:
        """An erase may have gone without its ERASE: what reads as free may be what a cut left of it [R8]."""
        first, end = self.used_count, self.used_count + self._free_count
        kept = first
        for position in range(first, end):
            index = self.used(position)
            if self._filled[index] == _ERASED:
                self._set(position, self.used(kept))
                self._set(kept, index)
                kept += 1
            else:
                self.seqs[index] = DIRTY
        self._free_count = kept - first
        self._dirty_count += end - kept

    def erase_count(self, index: int) -> int:
        """erase_count of a free sector."""
        return self.seqs[index] & _COUNT

    def tail(self) -> int:
        """The sector used longest ago."""
        return self.used(0)

    def place(self, index: int, offset: int) -> int:
        """A place on flash as a u32."""
        return index << 16 | offset // self.granule

    def sector_of(self, place: int) -> int:
        return place >> 16

    def offset_of(self, place: int) -> int:
        return (place & 0xFFFF) * self.granule

    def size_at(self, place: int) -> int:
        """Bytes on flash of the message or setting at this place; 0 where its header cannot be believed any more."""
        return record.size_at(self.flash, self.sector_of(place), self.offset_of(place), self.granule)

    def seed(self, index: int) -> int:
        return record.seed(self.epoch, self.seqs[index])

    def scan(self, index: int):
        """The records of a sector in use, see `record.scan`."""
        return record.scan(self.flash, index, self.first(), self.seed(index), self.granule, self.end(index))

    def room(self) -> int:
        """Bytes left in the head."""
        return self.flash.sector_size - self.head_offset

    def program(self, encoded: bytearray) -> int | None:
        """Add a record to the head; returns its place, None when it failed: then the head takes no more. Raises
        MemoryError: then the record may be there or not."""
        place = self.place(self.head, self.head_offset)
        done = None
        try:
            done = self.flash.program(self.head, self.head_offset, encoded)
        finally:  # no granule is programmed twice
            size = self.room() if done is False else len(encoded)
            self.head_offset += size
            self.filled += size // self.granule
            self._filled[self.head] += size // self.granule
        if not done and self._free_count <= RELOCATION:
            self.distrust_free()  # the last boot may have fared the same, and erased without room for a note
        return place if done else None

    def open_next(self, next_id: int, boot_id: int) -> bool:
        """Make the free sector that was erased least often the head [A1]; False when it turns out not to be usable."""
        index = self.used(self.used_count)
        if self._filled[index] != _ERASED and not self._is_blank(index):
            self.void(index)
            return False
        self.sector_seq = seq = self.sector_seq + 1
        tail_seq = self.seqs[self.used(self.dead_count)] if self.dead_count < self.used_count else seq
        header = sector.encode_open(Open(seq, tail_seq, next_id, boot_id), self.epoch, self.granule)
        try:
            done = self.flash.program(index, sector.open_offset(self.granule), header)
        except MemoryError:
            self.void(index)
            raise
        if not done:
            self._take_out(self.used_count)
            self.seqs[index] = BAD
            return False
        self._free_count -= 1
        self.used_count += 1
        self.seqs[index] = seq
        self._filled[index] = 0
        self.head, self.head_offset = index, self.first()
        return True

    def next_erase_count(self, index: int) -> int:
        """What this sector's FREE will say after its next erase."""
        free = sector.read_free(self.flash, index)
        return (free.erase_count if free else self.erase_count_max) + 1

    def erase(self, index: int, erase_count: int) -> None:
        """Erase the tail or a dirty sector and write its FREE header; a sector that fails is left alone from
        then on."""
        self.erase_count_max = max(self.erase_count_max, erase_count)
        header = sector.encode_free(self.granule, erase_count, self.epoch)
        done = self.flash.erase(index) and self.flash.program(index, 0, header)
        if self.is_used(index):
            self.filled -= self._filled[index]
        self._take_out(self._position(index))
        self.seqs[index] = FREE | min(erase_count, COUNT_MAX) if done else BAD
        self._filled[index] = _ERASED
        self.erases += 1
        if done:
            end = self.used_count + self._free_count
            self._set(end + self._dirty_count, self.used(end))  # a dirty one makes room: their order does not matter
            self._sort_in(index, self.used_count, end)
            self._free_count += 1

    def erase_counts(self):
        """How often each sector was erased in its life, as its header says; 0 where none can be read."""
        for index in range(len(self.seqs)):
            free = sector.read_free(self.flash, index)
            yield free.erase_count if free else 0

    def _round(self):
        """All sectors, from the one behind the head."""
        count = len(self.seqs)
        for number in range(count):
            yield (self.head + 1 + number) % count

    def _position(self, index: int) -> int:
        """Of a sector that is in the order; the tail and the dirty ones are found first."""
        count = self.used_count + self._free_count + self._dirty_count
        position = 0 if self.is_used(index) else self.used_count + self._free_count * (self.seqs[index] == DIRTY)
        while self.used(position % count) != index:
            position += 1
        return position % count

    def _set(self, position: int, index: int) -> None:
        self._order[(self._start + position) % len(self._order)] = index

    def _sort_in(self, index: int, start: int, end: int) -> None:
        """Put a sector among those from `start` to `end` by what `seqs` says, behind its equals."""
        while end > start and self.seqs[self.used(end - 1)] > self.seqs[index]:
            self._set(end, self.used(end - 1))
            end -= 1
        self._set(end, index)

    def _take_out(self, position: int) -> None:
        """Leave a sector out of the order."""
        count = self.used_count + self._free_count + self._dirty_count
        if position < self.used_count:
            self.used_count -= 1
            self.dead_count -= position < self.dead_count
        elif position < self.used_count + self._free_count:
            self._free_count -= 1
        else:
            self._dirty_count -= 1
        if position == 0:
            self._start = (self._start + 1) % len(self._order)
            return
        for at in range(position + 1, count):
            self._set(at - 1, self.used(at))

    def _is_blank(self, index: int) -> bool:
        """An erase that was cut may leave the FREE header and clear the OPEN one: only a blank rest proves it free."""
        start = sector.open_offset(self.granule)
        return self.flash.is_blank(index, start, self.flash.sector_size - start)
