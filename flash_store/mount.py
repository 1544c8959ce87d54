"""What the flash says after any cut: read the headers, then replay the records, oldest sector first."""

from flash_store import record, sector
from flash_store.errors import DeviceFailed, StoreCorrupt
from flash_store.record import ACK, MSG, STATE
from flash_store.ring import DIRTY, FREE, Ring

ACK_SPAN = 32  # ids that one ACK record covers


class Mount:
    """Replays what `flash` holds into `index`; the attributes are what the log goes on from. Raises StoreCorrupt."""

    def __init__(self, flash, index) -> None:
        self._flash = flash
        self._index = index
        self.last_id = 0
        self.boot_id = 0
        self.bad_records = 0
        self.ring = self._read_headers()
        self._suspect = Suspect(self.ring.granule)
        bad_by_sector = [0] * flash.sector_count
        for index_of_sector in self.ring.used():
            bad_by_sector[index_of_sector] = self._replay(index_of_sector)
        if self._suspect.may_have_been_sent():
            self.last_id += 1
        for index_of_sector in self.ring.used():
            if self.ring.seqs[index_of_sector] < self.ring.durable_tail:
                self.ring.discard(index_of_sector)
                self._index.remove_if(lambda place, dead=index_of_sector: self.ring.sector_of(place) == dead)
            else:
                self.bad_records += bad_by_sector[index_of_sector]

    def _read_headers(self) -> Ring:
        """Sort the sectors by what their headers say [R1]: one without a valid header is erased before its next use."""
        frees = [self._read_free(number) for number in range(self._flash.sector_count)]
        granule, epoch = _most_common([(free.granule, free.epoch) for free in frees if free])
        ring = Ring(self._flash, granule, epoch)
        for number, free in enumerate(frees):
            if free is None or (free.granule, free.epoch) != (granule, epoch):
                continue
            opened, is_blank = sector.read_open(self._flash, number, free)
            if opened is None:
                ring.seqs[number] = FREE if is_blank else DIRTY
                continue
            ring.seqs[number] = opened.sector_seq
            self.boot_id = max(self.boot_id, opened.boot_id)
            if opened.sector_seq == max(ring.seqs[i] for i in ring.used()):
                ring.head, ring.durable_tail = number, opened.tail_seq
                self.last_id = opened.next_id - 1
        return ring

    def _read_free(self, number: int):
        try:
            free = sector.read_free(self._flash, number)
        except DeviceFailed:
            return None
        if free and free.version != sector.VERSION:
            raise StoreCorrupt(f"sector {number} has format version {free.version}, expected {sector.VERSION}")
        return free

    def _replay(self, number: int) -> int:
        """Replay one sector [R2]; returns how many bad records it has, neighbours taken for one."""
        ring, bad, in_bad = self.ring, 0, False
        end = ring.first
        for offset, header, valid in record.scan(self._flash, number, ring.first, ring.seed(number), ring.granule):
            if valid:
                in_bad = False
                end = offset + record.extent(header.length, ring.granule)
                self._apply(number, offset, header)
                continue
            if not in_bad:
                in_bad = True
                bad += 1
                end = self._suspect.begin(offset, header, self._flash.sector_size)
            self._suspect.grow(offset)
            end = max(end, offset + ring.granule)
            ring.add_dead(number, ring.granule)
        if number == ring.head:
            ring.head_offset = end
        return bad

    def _apply(self, number: int, offset: int, header) -> None:
        ring = self.ring
        size = record.extent(header.length, ring.granule)
        if header.is_message():
            place = ring.place(number, offset)
            before = self._index.put(header.number, place)
            if before is not None:
                ring.kill(before)
            ring.add_live(place)
            self.last_id = max(self.last_id, header.number)
            if header.kind == MSG:
                self._suspect.clear()
            return
        ring.add_dead(number, size)
        if header.kind == ACK:
            for bit in range(ACK_SPAN):
                if header.aux >> bit & 1:
                    self._acknowledge(header.number + bit)
        elif header.kind == STATE:
            self.boot_id = max(self.boot_id, header.number)
            ring.durable_tail = max(ring.durable_tail, header.aux)

    def _acknowledge(self, message_id: int) -> None:
        self.last_id = max(self.last_id, message_id)
        place = self._index.remove(message_id)
        if place is not None:
            self.ring.kill(place)


class Suspect:
    """The last bad record that no later message follows: was it complete once, so that its id may have been sent?

    An id that may have been sent is not used again [R4]: two messages of one identity would be taken for one.
    """

    def __init__(self, granule: int) -> None:
        self._granule = granule
        self.clear()

    def clear(self) -> None:
        self._start = self._last = -1
        self._end: int | None = None
        self._is_message = True

    def begin(self, offset: int, header, sector_size: int) -> int:
        """A bad record begins here; returns where it ends, as far as its header can be believed."""
        self._start = self._last = offset
        self._end = None
        self._is_message = True
        if not header.is_plausible(sector_size - offset):
            return offset + self._granule
        self._end = offset + record.extent(header.length, self._granule)
        self._is_message = header.kind == MSG
        return self._end

    def grow(self, offset: int) -> None:
        """The granule here belongs to it."""
        self._last = offset

    def may_have_been_sent(self) -> bool:
        if self._start < 0 or not self._is_message:
            return False
        if self._end is not None:  # a cut leaves the last granule blank
            return self._last >= self._end - self._granule
        return self._last + self._granule - self._start > record.HEADER_SIZE


def _most_common(stores: list[tuple[int, int]]) -> tuple[int, int]:
    """(granule, epoch) that most sectors agree on. Raises StoreCorrupt when there is none."""
    if not stores:
        raise StoreCorrupt("no sector has a valid header: the device is not formatted")
    return max(set(stores), key=lambda store: stores.count(store))
