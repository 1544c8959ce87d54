"""What the flash says after any cut: read the headers, then replay the records, oldest sector first."""

from flash_store import record, sector
from flash_store.errors import StoreCorrupt
from flash_store.record import ACK, ACK_SPAN, ERASE, MSG, REC, SET, STATE
from flash_store.ring import FREE, RELOCATION, Ring

GAPS = b"\x00gaps"


class Mount:
    """Replays what `flash` holds into `index` and `settings` ({key: place}); the attributes are what the log goes on
    from. Raises StoreCorrupt."""

    def __init__(self, flash, index, settings: dict) -> None:
        self._flash = flash
        self._index = index
        self._settings = settings
        self.last_id = 0
        self.boot_id = 0
        self.bad_records = 0
        self._bad_since_boot = 0
        self._ends_bad = False  # the head does
        self._tail_seq = 0  # sectors with a smaller sector_seq hold nothing that counts
        self.ring = self._read_headers()
        self._suspect = Suspect(self.ring.granule)
        used = self.ring.used()
        bad_by_sector = {number: self._replay(number) for number in used}
        self.is_torn = self._suspect.was_sent  # one id is to be left out
        self.boot_id += self._bad_since_boot  # each may have been the STATE of a later boot [R5]
        if used and self._is_head_spent():
            self.ring.distrust_free()
        for number in used:
            if self.ring.seqs[number] < self._tail_seq:
                self._bury(number)
            else:
                self.bad_records += bad_by_sector[number]

    def _read_headers(self) -> Ring:
        """Sort the sectors by what their headers say [R1]: one without a valid header is erased before its next use."""
        frees = [self._read_free(number) for number in range(self._flash.sector_count)]
        granule, epoch = _most_common([(free.granule, free.epoch) for free in frees if free])
        ring = Ring(self._flash, granule, epoch)
        for number, free in enumerate(frees):
            if free and (free.granule, free.epoch) == (granule, epoch):
                ring.erase_count_max = max(ring.erase_count_max, free.erase_count)
            elif free:
                continue
            self._read_open(ring, number, free)
        return ring

    def _read_free(self, number: int):
        free = sector.read_free(self._flash, number)
        if free and free.version > sector.VERSION:
            raise StoreCorrupt(f"sector {number} has format version {free.version}, expected at most {sector.VERSION}")
        return free

    def _read_open(self, ring: Ring, number: int, free) -> None:
        opened, is_blank = sector.read_open(self._flash, number, ring.granule, ring.epoch)
        if opened is None:
            if free and is_blank:
                ring.set_free(number, free.erase_count)
            return
        if not 0 < opened.sector_seq < FREE:
            return
        ring.use(number, opened.sector_seq)
        self.boot_id = max(self.boot_id, opened.boot_id)
        if opened.sector_seq == ring.sector_seq:
            ring.head, self._tail_seq = number, opened.tail_seq

    def _replay(self, number: int) -> int:
        """Replay one sector [R2]; returns how many bad records it has, neighbours taken for one."""
        ring, bad, in_bad = self.ring, 0, False
        self._go_by_open(number)
        end = first = ring.first()
        live = 0
        seed = ring.seed(number)
        for offset, header, valid in record.scan(self._flash, number, first, seed, ring.granule):
            if valid:
                if in_bad:
                    self._suspect.judge(self._flash)
                in_bad = False
                end = offset + record.extent(header.length, ring.granule)
                live += end - offset if self._apply(number, offset, header) else 0
                continue
            if not in_bad:
                in_bad = True
                bad += 1
                self._bad_since_boot += 1
                end = self._suspect.begin(number, offset, header, seed, self._flash.sector_size)
            self._suspect.grow(offset)
            end = max(end, offset + ring.granule)
        if in_bad:
            self._suspect.judge(self._flash)
        ring.add_dead(number, end - first - live)
        if number == ring.head:
            ring.head_offset = end
            self._ends_bad = in_bad
        return bad

    def _go_by_open(self, number: int) -> None:
        opened, _ = sector.read_open(self._flash, number, self.ring.granule, self.ring.epoch)
        self._bad_since_boot = 0  # OPEN has said which boot it was
        if opened:
            self._decide(opened.next_id - 1)

    def _decide(self, highest_id: int) -> None:
        """Whoever wrote this had decided about the bad records before it, if it tells of an id not seen yet [R4]."""
        if highest_id > self.last_id:
            self.last_id = highest_id
            self._suspect.clear()

    def _apply(self, number: int, offset: int, header) -> bool:
        """Apply one record; True when it is live now."""
        ring = self.ring
        if header.is_message():
            self._place_message(header, ring.place(number, offset))
            return True
        if header.kind == SET:
            return self._place_setting(header, number, offset)
        if header.kind in (ACK, REC):
            for bit in range(ACK_SPAN):
                if header.aux >> bit & 1:
                    self._note(header.kind, header.number + bit)
        elif header.kind == STATE:
            self.boot_id = max(self.boot_id, header.number)
            self._bad_since_boot = 0
            self._tail_seq = max(self._tail_seq, header.aux)
        elif header.kind == ERASE and header.number < self._flash.sector_count:
            self._void(number, header.number, header.aux)
        return False

    def _place_message(self, header, place: int) -> None:
        before = self._index.put(header.number, place, header.flags & record.RECEIVED > 0)
        if before is not None:
            self.ring.kill(before)
        self.ring.add_live(place)
        self.last_id = max(self.last_id, header.number)
        if header.kind == MSG:
            self._suspect.clear()

    def _place_setting(self, header, number: int, offset: int) -> bool:
        found = self._flash.read_if_whole(number, offset + record.HEADER_SIZE, header.aux)
        if found is None:
            return False
        key = bytes(found)
        before = self._settings.pop(key, None)
        if before is not None:
            self.ring.kill(before)
        if header.flags & record.REMOVED:
            return False
        self._settings[key] = self.ring.place(number, offset)
        self.ring.add_live(self._settings[key])
        if key == GAPS:
            highest = self._flash.read_if_whole(number, offset + record.HEADER_SIZE + header.aux, 4)
            self._decide(int.from_bytes(highest or b"", "little"))
        return True

    def _note(self, kind: int, message_id: int) -> None:
        self.last_id = max(self.last_id, message_id)
        if kind == REC:
            self._index.set_received(message_id)
            return
        place = self._index.remove(message_id)
        if place is not None:
            self.ring.kill(place)

    def _void(self, number: int, erased: int, erase_count: int) -> None:
        """A sector was to be erased, says a record in sector `number`: unless the erase ended, nothing in it counts,
        whatever it reads as [R7]."""
        ring = self.ring
        if ring.is_used(erased) and ring.seqs[erased] < ring.seqs[number]:
            self._bury(erased)
            ring.void(erased)
        elif ring.is_free(erased) and ring.erase_count(erased) <= erase_count:
            ring.void(erased)

    def _is_head_spent(self) -> bool:
        """Whether the head may have taken no ERASE when the power went [R8]: it is full, or its last record failed when
        no other sector was left to take over."""
        ring = self.ring
        return ring.room() < record.extent(0, ring.granule) or (self._ends_bad and ring.free() <= RELOCATION)

    def _bury(self, number: int) -> None:
        def lies_here(place: int) -> bool:
            return self.ring.sector_of(place) == number

        self._index.remove_if(lies_here)
        for key in [key for key, place in self._settings.items() if lies_here(place)]:
            self._settings.pop(key)
        self.ring.bury(number)


class Suspect:
    """The bad records that no later message follows: was one complete once, so that its id may have been sent
    (`was_sent`)?

    An id that may have been sent is not used again [R4]: two messages of one identity would be taken for one.
    """

    def __init__(self, granule: int) -> None:
        self._granule = granule
        self._end: int | None = None
        self.clear()

    def clear(self) -> None:
        self.was_sent = False

    def begin(self, number: int, offset: int, header, crc_seed: int, sector_size: int) -> int:
        """A bad record begins here; returns where it ends, as far as its header can be believed."""
        self._where = (number, offset, crc_seed)
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

    def judge(self, flash) -> None:
        """The bad record ends here."""
        self.was_sent = self.was_sent or self._may_have_been_sent(flash)

    def _may_have_been_sent(self, flash) -> bool:
        if self._end is None:
            if self._last + self._granule - self._start > record.HEADER_SIZE:
                return True
        elif not self._is_message:
            return False
        elif self._last >= self._end - self._granule:  # a cut leaves the last granule blank
            return True
        return record.mended(flash, *self._where) is not None


def _most_common(stores: list[tuple[int, int]]) -> tuple[int, int]:
    """(granule, epoch) that most sectors agree on. Raises StoreCorrupt when there is none."""
    if not stores:
        raise StoreCorrupt("no sector has a valid header: the device is not formatted")
    return max(stores, key=lambda store: stores.count(store))
