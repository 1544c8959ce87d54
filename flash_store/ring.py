"""The sectors as a ring: which of them are in use or free, which one is the head, and how much of each is filled."""

from array import array

from flash_store import record, sector
from flash_store.sector import Open

# These values stand in place of a sector_seq, which counts from 1. All are small integers on a 32-bit board.
FREE = 0x20000000  # this or above: free, with the erase_count in the lower bits
BAD = 0x3FFFFFFE  # an erase, or programming a header, has failed: not used until the next mount
DIRTY = 0x3FFFFFFF  # must be erased before use
_COUNT = 0x1FFFFFFF
COUNT_MAX = _COUNT - 2  # a higher erase_count would read as BAD or DIRTY

RELOCATION = 2  # sectors that only a relocation may use
_ERASED = 1  # value in `_filled` of a free sector that was erased since the mount


class Ring:
    """The state of all sectors in RAM, in 8 bytes each: sector_seq (or FREE, BAD, DIRTY), filled granules, order.

    `used_count` sectors are in use; the oldest `dead_count` of them are known to hold no live record. No method that an
    append calls visits all sectors, however many there are.
    """

    def __init__(self, flash, granule: int = 0, epoch: int = 0) -> None:
        self.flash = flash
        self.granule = granule
        self.epoch = epoch
        count = flash.sector_count
        self.seqs = array("I", range(count))  # a range has a known length, so the array need not grow
        self._filled = array("H", range(count))  # granules of records in a sector in use
        # A ring from `_start` on: sectors in use, oldest first; free sectors in the order of use; dirty sectors.
        self._order = array("H", range(count))
        for index in range(count):
            self.seqs[index], self._filled[index] = DIRTY, 0
        self.until: str | None = None  # not None: sectors count until they are erased, though they hold nothing live
        self._start = 0
        self.used_count = 0
        self.dead_count = 0
        self._free_count = 0
        self._dirty_count = count
        self.filled = 0  # granules of records in all sectors in use
        self.head = 0
        self.head_offset = flash.sector_size  # where the next record goes
        self.sector_seq = 0  # the highest one in any OPEN, including an OPEN whose program failed
        self.erases = 0
        self.erase_count_max = 0

    @property
    def capacity(self) -> int:
        """The bytes of records that fit into one sector."""
        return self.flash.sector_size - self.first()

    @property
    def reserve(self) -> int:
        """The number of sectors that new messages must leave free.

        Two are for relocation, because a power cut may make one unusable; one is for settings; the others are for
        acknowledgements, enough of them that relocating pays off when they are full.
        """
        notes = self.flash.sector_count * record.extent(0, self.granule)
        return RELOCATION + 1 + (self.capacity // 2 + notes + self.capacity - 1) // self.capacity

    def first(self) -> int:
        """Returns the offset of a sector's first record."""
        return sector.records_offset(self.granule)

    def end(self, index: int) -> int:
        """Returns the offset at which the records of a sector in use end."""
        return self.head_offset if index == self.head else self.first() + self._filled[index] * self.granule

    def is_free(self, index: int) -> bool:
        return FREE <= self.seqs[index] < BAD

    def is_used(self, index: int) -> bool:
        return self.seqs[index] < FREE

    def free(self) -> int:
        """Returns how many sectors are free."""
        return self._free_count

    def dirty(self) -> int:
        """Returns how many sectors must be erased before use."""
        return self._dirty_count

    def bad(self) -> int:
        """Returns how many sectors are not used until the next mount."""
        return len(self.seqs) - self.used_count - self._free_count - self._dirty_count

    def used(self, position: int) -> int:
        """Returns the sector at this position of the ring: 0 is the tail, the oldest sector in use."""
        return self._order[(self._start + position) % len(self._order)]

    def first_dirty(self) -> int:
        """Returns a sector that must be erased before use."""
        return self.used(self.used_count + self._free_count)

    def arrange(self) -> None:
        """Puts the sectors in order, after the mount has read all headers into `seqs`."""
        count = len(self.seqs)
        heads = [index for index in range(count) if self.seqs[index] == self.sector_seq]
        self.head = heads[-1] if heads else 0
        self._start = self.used_count = self._free_count = self._dirty_count = 0
        for index in self._round():  # in this order almost all sectors are sorted already
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
        """Notes where the records of a sector end, as the mount has found it."""
        granules = (end - self.first()) // self.granule
        self.filled += granules - self._filled[index]
        self._filled[index] = granules
        if index == self.head:
            self.head_offset = end

    def void(self, index: int) -> None:
        """Marks a sector as dirty: nothing in it counts, and it is erased before its next use."""
        if self.is_used(index):
            self.filled -= self._filled[index]
        self._take_out(self._position(index))
        self._set(self.used_count + self._free_count + self._dirty_count, index)
        self._dirty_count += 1
        self.seqs[index] = DIRTY

    def distrust_free(self) -> None:
        """Marks free sectors that were not erased since the mount as dirty.

        An erase may have begun without an ERASE record: then a sector that reads as free may be one whose erase was cut
        [R8].
        """
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
        """Returns the erase_count of a free sector."""
        return self.seqs[index] & _COUNT

    def tail(self) -> int:
        """Returns the oldest sector in use."""
        return self.used(0)

    def place(self, index: int, offset: int) -> int:
        """Encodes a sector and an offset as one u32."""
        return index << 16 | offset // self.granule

    def sector_of(self, place: int) -> int:
        return place >> 16

    def offset_of(self, place: int) -> int:
        return (place & 0xFFFF) * self.granule

    def size_at(self, place: int) -> int:
        """Returns the bytes on flash of the message or setting at this place; 0 if its header is corrupt."""
        return record.size_at(self.flash, self.sector_of(place), self.offset_of(place), self.granule)

    def seed(self, index: int) -> int:
        return record.seed(self.epoch, self.seqs[index])

    def scan(self, index: int):
        """Yields the records of a sector in use, see `record.scan`."""
        return record.scan(self.flash, index, self.first(), self.seed(index), self.granule, self.end(index))

    def room(self) -> int:
        """Returns the bytes that are left in the head."""
        return self.flash.sector_size - self.head_offset

    def program(self, encoded: bytearray) -> int | None:
        """Programs a record at the end of the head; returns its place.

        Returns None if that failed; then the head takes no more records. Raises MemoryError; then flash may have the
        record or not.
        """
        place = self.place(self.head, self.head_offset)
        done = None
        try:
            done = self.flash.program(self.head, self.head_offset, encoded)
        finally:  # also after an error, so that no granule is programmed twice
            size = self.room() if done is False else len(encoded)
            self.head_offset += size
            self.filled += size // self.granule
            self._filled[self.head] += size // self.granule
        if not done and self._free_count <= RELOCATION:
            self.distrust_free()  # the last boot may have failed here too, and erased without an ERASE record
        return place if done else None

    def open_next(self, next_id: int, boot_id: int) -> bool:
        """Makes the free sector that was erased least often the head [A1]; returns False if it cannot be used."""
        index = self.used(self.used_count)
        if self._filled[index] != _ERASED and not self._is_blank(index):
            self.void(index)
            return False
        self.sector_seq = seq = self.sector_seq + 1
        oldest = self.dead_count if self.until is None else 0
        tail_seq = self.seqs[self.used(oldest)] if oldest < self.used_count else seq
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
        """Returns the erase_count for this sector's FREE header after its next erase."""
        free = sector.read_free(self.flash, index)
        return (free.erase_count if free else self.erase_count_max) + 1

    def erase(self, index: int, erase_count: int) -> None:
        """Erases the tail or a dirty sector and writes its FREE header; if that fails, the sector becomes BAD."""
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
            self._set(end + self._dirty_count, self.used(end))  # dirty sectors have no order
            self._sort_in(index, self.used_count, end)
            self._free_count += 1

    def erase_counts(self):
        """Yields how often each sector was ever erased, from its FREE header; 0 if that is not valid."""
        for index in range(len(self.seqs)):
            free = sector.read_free(self.flash, index)
            yield free.erase_count if free else 0

    def _round(self):
        """Yields all sectors, beginning with the one after the head."""
        count = len(self.seqs)
        for number in range(count):
            yield (self.head + 1 + number) % count

    def _position(self, index: int) -> int:
        """Returns the position of a sector in the ring; fast for the tail and for dirty sectors."""
        count = self.used_count + self._free_count + self._dirty_count
        position = 0 if self.is_used(index) else self.used_count + self._free_count * (self.seqs[index] == DIRTY)
        while self.used(position % count) != index:
            position += 1
        return position % count

    def _set(self, position: int, index: int) -> None:
        self._order[(self._start + position) % len(self._order)] = index

    def _sort_in(self, index: int, start: int, end: int) -> None:
        """Inserts a sector into the positions from `start` to `end`, sorted by `seqs`, after equal ones."""
        while end > start and self.seqs[self.used(end - 1)] > self.seqs[index]:
            self._set(end, self.used(end - 1))
            end -= 1
        self._set(end, index)

    def _take_out(self, position: int) -> None:
        """Removes the sector at this position from the ring."""
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
        """Returns whether a sector is blank after its FREE header.

        An erase that was cut may leave the FREE header and clear the OPEN header, so the headers do not prove that
        the sector is free.
        """
        start = sector.open_offset(self.granule)
        return self.flash.is_blank(index, start, self.flash.sector_size - start)
