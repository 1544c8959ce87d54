"""Mounts a store after any power cut: reads the sector headers, then replays the records, oldest sector first."""

from flash_store import gaps, record, sector
from flash_store.errors import StoreCorrupt, StoreFull
from flash_store.ids import Ids
from flash_store.record import ACK, ACK_SPAN, ERASE, MOVE, MSG, REC, SET, STATE
from flash_store.ring import BAD, COUNT_MAX, DIRTY, FREE, RELOCATION

LOST_MAX = 4  # sectors newer than the last readable OPEN that may be recognized by their records
LOOKS_MAX = 16  # records of a sector that are tried for that


class Mount:
    """Replays the records on `flash` into `index` and `settings` ({key: place}).

    The log begins its work with the public attributes. Raises StoreCorrupt.
    """

    def __init__(self, flash, index, settings: dict) -> None:
        self._flash = flash
        self._index = index
        self._settings = settings
        self.last_id = 0
        self.boot_id = 0
        self.bad_records = 0
        self._tail_seq = 0  # sectors with a smaller sector_seq hold nothing that counts
        self.ring = index.ring
        self._read_headers()
        while not self._replay_all():
            pass  # replay again, without the sectors that a record has declared void
        self._is_torn = self._suspect.was_sent  # whether the next id must be skipped
        self._missing = self._find_missing()
        self.boot_id += self._bad_since_boot  # each corrupt record may have been the STATE of a later boot [R5]
        if self.ring.used_count and self._is_head_spent():
            self.ring.distrust_free()
        if self._is_headless and self.ring.free() + self.ring.dirty():
            self.ring.fill(self.ring.head, self._flash.sector_size)

    def make_durable(self, writer, lost) -> None:
        """Makes durable what the mount has found, with the log's writer and its gaps, `lost`.

        That is the last record, whose program may have been cut [R9]; missing ids [G2] and skipped ids [R4]; and this
        boot [R5].
        """
        missing = self._missing
        for first, last, count, reason in lost.ranges:
            # Drops take the oldest: what is missing between two that were dropped was dropped too, or acknowledged.
            if count == last - first + 1 or reason == gaps.DROPPED:
                missing.remove(first, last)
            else:  # it was merged, and tells of its ends for certain
                missing.remove(first, first)
                missing.remove(last, last)
        for first, last in missing.ranges():
            lost.add(first, last, last - first + 1, gaps.DAMAGED)
        if self._is_torn:
            torn = max(writer.last_id, lost.torn) + 1
            lost.add(torn, torn, 1, gaps.TORN)
            missing.add(torn)
        try:
            if self._last_record is not None:
                self._repeat(writer, lost, *self._last_record)
        except StoreFull:
            pass
        try:
            lost.save(True)
            for first, last in missing.ranges():
                writer.write_off(first, last, True)
        except StoreFull:
            pass  # the next append saves them; no OPEN can be written before that and hide them from the next mount
        writer.write_boot()

    def _repeat(self, writer, lost, place: int, header) -> None:
        """Writes the last record again: a power cut may have left its bits weak, although it is valid now [R9].

        Raises StoreFull.
        """
        if header.kind in (ACK, REC):
            writer.write(header.kind, 0, header.number, header.aux, (), True)
        elif header.kind == SET or (header.kind == MOVE and header.number in self._index.live):
            found = writer.read(place)
            if found is not None and found[1] == gaps.KEY:
                lost.touch()
            elif found is not None:
                writer.write(header.kind, header.flags, header.number, header.aux, found[1:], True)

    def _find_missing(self) -> Ids:
        """Returns the ids that were given out, but of which flash has neither a message nor an acknowledgement [G2]."""
        missing = Ids()
        for first, last in self._named.ranges():
            for message_id in range(first, min(last, self.last_id) + 1):
                if message_id not in self._seen:
                    missing.add(message_id)
        if self._first_id:
            at = self._first_id
            for first, last in self._seen.ranges():
                if first > at:
                    missing.add(at, first - 1)
                at = max(at, last + 1)
            if at <= self.last_id:
                missing.add(at, self.last_id)
        return missing

    def _replay_all(self) -> bool:
        """Replays all sectors in use; returns False if one of them turned out to be void."""
        ring = self.ring
        self._index.clear()
        self._settings.clear()
        self._highest_id = self.bad_records = self._bad_since_boot = 0
        self._ends_bad = False  # whether the head ends with a corrupt record
        # Whether the head takes no more records: its OPEN is corrupt [R1], or its erase may have been cut [R7].
        self._is_headless = False
        self._first_id = 0  # from this id on, flash must have a record of each id
        self._seen = Ids()  # ids of messages and acknowledgements
        self._named = Ids()  # ids in corrupt records of messages
        self._last_record: tuple | None = None  # (place, header) of the last valid one
        self._suspect = Suspect(ring.granule)
        self._voided: list[int] = []
        while ring.used_count and ring.seqs[ring.tail()] < self._tail_seq:
            ring.void(ring.tail())
        for position in range(ring.used_count):
            self._replay(ring.used(position))
        self.last_id = max(self.last_id, self._highest_id)
        for number in self._voided:
            ring.void(number)
        return not self._voided and not (ring.used_count and ring.seqs[ring.tail()] < self._tail_seq)

    def _read_headers(self) -> None:
        """Sorts the sectors by their headers [R1]. A sector without a valid header is erased before its next use."""
        ring = self.ring
        stores = self._read_frees(None)
        if not stores:
            raise StoreCorrupt("no sector has a valid header: the device is not formatted")
        most = stores[0]
        for store in stores:
            if store[2] > most[2]:
                most = store
        ring.granule, ring.epoch = most[0], most[1]
        if len(stores) > 1:
            self._read_frees(most)
        for number in range(self._flash.sector_count):
            if ring.seqs[number] != DIRTY:
                self._read_open(number)
        self._recover()
        ring.arrange()

    def _read_frees(self, store) -> list:
        """Notes the state of each sector in the ring, by its FREE header.

        A sector is free if it belongs to `store` ([granule, epoch, …]; None: to any store), DIRTY if it belongs to
        another store, BAD if the header is not valid. Returns the stores that were found, as [granule, epoch, number of
        sectors].
        """
        ring = self.ring
        stores: list[list[int]] = []
        ring.erase_count_max = 0
        for number in range(self._flash.sector_count):
            free = sector.read_free(self._flash, number)
            if free is None:
                ring.seqs[number] = BAD
                continue
            if free.version > sector.VERSION:
                raise StoreCorrupt(
                    f"sector {number} has format version {free.version}, expected at most {sector.VERSION}"
                )
            if store is not None and store[:2] != [free.granule, free.epoch]:
                ring.seqs[number] = DIRTY
                continue
            ring.seqs[number] = FREE | min(free.erase_count, COUNT_MAX)
            ring.erase_count_max = max(ring.erase_count_max, free.erase_count)
            for one in stores:
                if one[:2] == [free.granule, free.epoch]:
                    one[2] += 1
                    break
            else:
                stores.append([free.granule, free.epoch, 1])
        return stores

    def _read_open(self, number: int) -> None:
        ring = self.ring
        opened, is_blank = sector.read_open(self._flash, number, ring.granule, ring.epoch)
        if opened is not None and 0 < opened.sector_seq < FREE:
            ring.seqs[number] = opened.sector_seq
            self.boot_id = max(self.boot_id, opened.boot_id)
            if opened.sector_seq >= ring.sector_seq:
                ring.sector_seq, self._tail_seq = opened.sector_seq, opened.tail_seq
        elif opened is None and not is_blank:
            ring.seqs[number] = BAD  # until `_recover` has looked at its records
        elif opened is not None or ring.seqs[number] == BAD:
            ring.seqs[number] = DIRTY

    def _recover(self) -> None:
        """Finds the sector_seq of sectors whose OPEN is corrupt.

        Such a sector is in use if one of its records is valid with a sector_seq that no other sector has [R1].
        """
        ring = self.ring
        lost = [number for number in range(self._flash.sector_count) if ring.seqs[number] == BAD]
        if not lost:
            return
        lowest = max(1, self._tail_seq, ring.sector_seq - 2 * self._flash.sector_count)
        free = bytearray(b"\x01" * max(0, ring.sector_seq + LOST_MAX + 1 - lowest))  # for each sector_seq
        for number in range(self._flash.sector_count):
            if lowest <= ring.seqs[number] < FREE:
                free[ring.seqs[number] - lowest] = 0
        for number in lost:
            seq = self._seq_of(number, lowest, free)
            ring.seqs[number] = seq or DIRTY
            if seq:
                free[seq - lowest] = 0
                ring.sector_seq = max(ring.sector_seq, seq)

    def _seq_of(self, number: int, lowest: int, free: bytearray) -> int:
        """Returns the unused sector_seq, from `lowest` on, with which a record of this sector is valid, or 0."""
        ring, flash, looks = self.ring, self._flash, 0
        for offset, header, _ in record.scan(flash, number, ring.first(), 0, ring.granule):
            if not header.is_plausible(flash.sector_size - offset):
                continue
            found = flash.read_if_whole(number, offset, record.HEADER_SIZE)
            for at in range(len(free)):
                crc_seed = record.seed(ring.epoch, lowest + at)
                if free[at] and found and record.is_valid(flash, number, offset, found, crc_seed):
                    return lowest + at
            looks += 1
            if looks == LOOKS_MAX:
                break
        return 0

    def _replay(self, number: int) -> None:
        """Replays one sector [R2]."""
        ring, in_bad = self.ring, False
        self._go_by_open(number)
        end = first = ring.first()
        seed = ring.seed(number)
        for offset, header, valid in record.scan(self._flash, number, first, seed, ring.granule):
            if valid:
                if in_bad:
                    self._suspect.judge(self._flash)
                in_bad = False
                self._last_record = (ring.place(number, offset), header)
                end = offset + record.extent(header.length, ring.granule)
                self._apply(number, offset, header)
                continue
            if not in_bad:
                in_bad = True
                self.bad_records += 1
                self._bad_since_boot += 1
                end = self._suspect.begin(number, offset, header, seed, self._flash.sector_size)
                self._name(record.mended(self._flash, number, offset, seed) or header, offset)
            self._suspect.grow(offset)
            end = max(end, offset + ring.granule)
        if in_bad:
            self._suspect.judge(self._flash)
        ring.fill(number, end)
        if number == ring.head:
            self._ends_bad = in_bad

    def _go_by_open(self, number: int) -> None:
        opened, _ = sector.read_open(self._flash, number, self.ring.granule, self.ring.epoch)
        if opened is None:
            if number == self.ring.head:
                self._is_headless = True
            self._bad_since_boot += 1  # the corrupt OPEN may have named a later boot
            return
        self._bad_since_boot = 0
        self._first_id = self._first_id or opened.next_id
        self._decide(opened.next_id - 1)

    def _name(self, header, offset: int) -> None:
        """Notes the id in the header of a corrupt record, if that was a message: its header may still be right."""
        if header.is_message() and header.is_plausible(self._flash.sector_size - offset):
            self._named.add(header.number)

    def _decide(self, highest_id: int) -> None:
        """Clears the suspicion if this id is new: then an earlier mount has decided about the corrupt records [R4]."""
        if highest_id > self._highest_id:
            self._highest_id = highest_id
            self._suspect.clear()

    def _apply(self, number: int, offset: int, header) -> None:
        """Applies one record."""
        if header.is_message():
            self._place_message(header, self.ring.place(number, offset))
        elif header.kind == SET:
            self._place_setting(header, number, offset)
        elif header.kind in (ACK, REC):
            for bit in range(ACK_SPAN):
                if header.aux >> bit & 1:
                    self._note(header.kind, header.number + bit)
        elif header.kind == STATE:
            self.boot_id = max(self.boot_id, header.number)
            self._bad_since_boot = 0
            self._tail_seq = max(self._tail_seq, header.aux)
        elif header.kind == ERASE and header.number < self._flash.sector_count:
            self._void(number, header.number, header.aux)

    def _place_message(self, header, place: int) -> None:
        index = self._index
        if header.number in index.live:
            index.recount()
        index.put(header.number, place, record.extent(header.length, self.ring.granule))
        if header.flags & record.RECEIVED:
            index.received.add(header.number)
        self._highest_id = max(self._highest_id, header.number)
        self._seen.add(header.number)
        if header.kind == MSG:
            self._first_id = self._first_id or header.number
            self._suspect.clear()

    def _place_setting(self, header, number: int, offset: int) -> None:
        found = record.read_body(self._flash, number, offset, self.ring.seed(number))
        if found is None:
            return
        header, key, value = found
        self._settings.pop(key, None)
        if header.flags & record.REMOVED:
            return
        self._settings[key] = self.ring.place(number, offset)
        if key == gaps.KEY:
            self._decide(int.from_bytes(value[:4], "little"))

    def _note(self, kind: int, message_id: int) -> None:
        self._highest_id = max(self._highest_id, message_id)
        if kind == ACK:
            self._seen.add(message_id)
        if message_id in self._index.live:
            if kind == ACK:
                self._index.remove(message_id)
            else:
                self._index.received.add(message_id)

    def _void(self, number: int, erased: int, erase_count: int) -> None:
        """Applies an ERASE record in sector `number`: sector `erased` was about to be erased [R7].

        Unless the erase was completed, nothing in that sector counts any more, whatever it reads as. If it is now the
        head, its records count, but it takes no more.
        """
        ring = self.ring
        if ring.is_used(erased) and ring.seqs[erased] < ring.seqs[number]:
            if erased not in self._voided:
                self._voided.append(erased)
        elif erased == ring.head:
            free = sector.read_free(self._flash, erased)
            if free is None or free.erase_count <= erase_count:
                self._is_headless = True
        elif ring.is_free(erased) and ring.erase_count(erased) <= erase_count:
            ring.void(erased)

    def _is_head_spent(self) -> bool:
        """Returns whether the head may have had no room for an ERASE record before the power cut [R8].

        That is so if it is full, or if it takes no more records and no other free sector could replace it.
        """
        ring = self.ring
        takes_none = self._ends_bad or self._is_headless
        return ring.room() < record.extent(0, ring.granule) or (takes_none and ring.free() <= RELOCATION)


class Suspect:
    """Judges corrupt records at the log's end: `was_sent` tells whether one may have been a complete message.

    Then its id may have been sent, and must not be used again [R4]: receivers would take two messages with the same
    identity for one.
    """

    def __init__(self, granule: int) -> None:
        self._granule = granule
        self._end: int | None = None
        self.clear()

    def clear(self) -> None:
        self.was_sent = False

    def begin(self, number: int, offset: int, header, crc_seed: int, sector_size: int) -> int:
        """A corrupt record begins here; returns its end according to its header, if that is plausible."""
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
        """The granule at `offset` belongs to the corrupt record."""
        self._last = offset

    def judge(self, flash) -> None:
        """The corrupt record ends before this point; decides about it."""
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
