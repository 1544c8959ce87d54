"""Writes records, and makes room for them: it opens sectors, relocates live records and erases dead sectors (SPEC.md,
"Allocation"). Clauses in brackets are SPEC.md's."""

from flash_store import record
from flash_store.errors import DeviceFailed, StoreFull
from flash_store.record import ACK, ACK_SPAN, ERASE, MOVE, MSG, SET, STATE
from flash_store.ring import RELOCATION


class Writer:
    """Writes records at the log's end.

    `setting_places` maps the keys of settings to their places; `index` knows the messages. `note_lost(ids, keys)` is
    called with the messages and settings that a relocation cannot read, before their sector is erased.
    """

    def __init__(self, flash, ring, index, setting_places: dict, last_id: int, boot_id: int, note_lost) -> None:
        self._flash = flash
        self.ring = ring
        self.index = index
        self.setting_places = setting_places
        self.last_id = last_id
        self.begun = 0  # the highest id of which flash may hold a record, complete or not
        self.boot_id = boot_id
        self._note_lost = note_lost

    def extent(self, length: int) -> int:
        """Returns the bytes on flash of a record with a body of `length` bytes."""
        return record.extent(length, self.ring.granule)

    def read(self, place: int):
        """Returns (header, name, content) of the setting at this place; None if its record is corrupt."""
        index = self.ring.sector_of(place)
        return record.read_body(self._flash, index, self.ring.offset_of(place), self.ring.seed(index))

    def write(self, kind: int, flags: int, number: int, aux: int, body: tuple = (), is_move: bool = False) -> int:
        """Writes a record, with its body in parts; returns its place.

        If a program fails, the sector takes no more records, and the record goes into the next one [W3]. With `is_move`
        the record may use the last free sector. Raises StoreFull, DeviceFailed.
        """
        size = self.extent(sum([len(part) for part in body]))
        for _ in range(self._flash.sector_count):
            self.make_room(MOVE if is_move else kind, size)
            place = self._program(kind, flags, number, aux, body)
            if place is not None:
                return place
        raise DeviceFailed("no sector takes the record")

    def write_off(self, first: int, last: int, is_move: bool = False) -> None:
        """Writes ACKs for lost ids, so that they can neither reappear nor be found missing again. Raises StoreFull."""
        while first <= last:
            count = min(ACK_SPAN, last - first + 1)
            gone = [bit for bit in range(count) if first + bit not in self.index.live]
            if gone:
                self.write(ACK, 0, first, sum([1 << bit for bit in gone]), (), is_move)
            first += count

    def write_boot(self) -> None:
        """Makes this mount's boot_id durable: by a STATE record in the head, or by the OPEN of a new head [R5]."""
        before = self.ring.seqs[self.ring.head]
        try:
            self.make_room(STATE, self.extent(0))
        except StoreFull:
            pass  # the boot_id may use the very last room
        ring = self.ring
        while ring.seqs[ring.head] == before:  # a new head has the boot_id in its OPEN
            if ring.room() >= self.extent(0) and self._program(STATE, 0, self.boot_id, 0, ()) is not None:
                return
            if ring.free():
                self._open_next()
            elif not self._erase_dirty():
                return

    def is_reclaimable(self) -> bool:
        """Returns whether `reclaim` has a sector to erase or records to relocate."""
        ring = self.ring
        if ring.dirty():
            return True
        if ring.used_count < 2:
            return False
        return not self._is_tail_live() or self._is_relocation_worthwhile()

    def reclaim(self) -> bool:
        """Frees one sector; returns False if that is not possible [A3]."""
        if self._erase_dirty():
            return True
        if not self.is_reclaimable():
            return False
        tail = self.ring.tail()
        try:
            is_needed = self._settings_in(tail) or self.index.may_hold_live(0)
            if is_needed and not (self._relocate(tail) or self._relocate(tail)):  # twice: a read may fail once
                self._note_lost_with(tail)
        except StoreFull:
            return False
        self._erase(tail)
        return True

    def _is_tail_live(self) -> bool:
        self._find_dead()
        return not self.ring.dead_count

    def _find_dead(self) -> None:
        """Updates `dead_count`: the number of sectors, from the tail on, that hold no live record."""
        ring = self.ring
        while ring.dead_count < ring.used_count - 1 and not self._holds_live(ring.dead_count):
            ring.dead_count += 1

    def _holds_live(self, position: int) -> bool:
        return bool(self._settings_in(self.ring.used(position))) or self.index.holds_live(position)

    def _settings_in(self, index: int) -> list:
        """Returns the keys of the settings whose records are in this sector."""
        return [key for key, place in self.setting_places.items() if self.ring.sector_of(place) == index]

    def _is_relocation_worthwhile(self) -> bool:
        """Returns whether to relocate the tail [A4].

        It is worthwhile if the tail's live bytes have room elsewhere and enough bytes are dead: an eighth of all used
        bytes, or half a sector, in addition to the notes that a relocation of everything would write.
        """
        ring, note = self.ring, self.extent(0)
        live = self.index.bytes_in_tail() + self._size_of(self._settings_in(ring.tail())) + note
        if ring.free() and live <= ring.capacity // 2:
            return True
        dead = self.index.dead_bytes() - self._size_of(self.setting_places) - ring.used_count * note
        if not ring.free():  # the last chance to relocate, worthwhile for any gain
            return live <= ring.room() and dead > 0
        return dead > min(ring.capacity // 2, ring.used_count * ring.capacity // 8)

    def _size_of(self, keys) -> int:
        """Returns the bytes on flash of the settings with these keys."""
        return sum([self.ring.size_at(self.setting_places[key]) for key in keys])

    def _erase_dirty(self) -> bool:
        if not self.ring.dirty():
            return False
        self._erase(self.ring.first_dirty())
        return True

    def _erase(self, index: int) -> None:
        """Erases a sector, after an ERASE record that nothing in it counts any more [A3]."""
        ring = self.ring
        erase_count = ring.next_erase_count(index)
        while ring.room() < self.extent(0) or self._program(ERASE, 0, index, erase_count - 1, ()) is None:
            if not ring.free():
                break  # erase without the record: a cut may then repeat messages, but the store does not get stuck
            self._open_next()
        if ring.is_used(index):
            self.index.forget_tail()
        ring.erase(index, erase_count)

    def _program(self, kind: int, flags: int, number: int, aux: int, body: tuple) -> int | None:
        ring = self.ring
        encoded = record.encode(kind, flags, number, aux, body, ring.seed(ring.head), ring.granule)
        if kind == MSG:
            self.begun = number
        place = ring.program(encoded)
        if place is None:
            self.index.recount()  # the failed program may have left a second copy
            return None
        if kind in (MSG, MOVE):
            self.index.put(number, place, len(encoded))
            self.last_id = max(self.last_id, number)
        elif kind == SET:
            key = bytes(body[0])
            self.setting_places.pop(key, None)
            if not flags & record.REMOVED:
                self.setting_places[key] = place
        return place

    def make_room(self, kind: int, size: int) -> None:
        """Makes room for a record of `size` bytes; opens a new head if the present one is too full.

        Only a MOVE may use the last free sector. Raises StoreFull [A2].
        """
        # There is always room left for one ERASE, so the live records of a sector and its ERASE fit into one sector.
        needed = size + self.extent(0)
        while kind != MOVE and self.ring.free() < RELOCATION and self.reclaim():
            pass  # reclaim early, while the live records of the tail still have room elsewhere
        if kind in (MSG, ACK, SET) and not self.ring.free():
            raise StoreFull("what room is left is for what must be moved")
        while kind == MSG and self._is_short():
            if not self.reclaim():
                raise StoreFull("what room is left is for notes")  # even if the head itself has room
        while self.ring.room() < needed:
            if self._may_open(kind):
                self._open_next()
            elif not (self._erase_dirty() if kind == MOVE else self.reclaim()):
                raise StoreFull(f"{len(self.index.live)} unacknowledged messages fill the store")

    def _is_short(self) -> bool:
        """Returns whether fewer sectors are free, even after erasing dead ones, than new messages must leave free."""
        return self.ring.free() < self.ring.reserve and self.ring.free() + self._erasable() < self.ring.reserve

    def _may_open(self, kind: int) -> bool:
        free = self.ring.free()
        if kind == MSG:
            return free > RELOCATION and (free > self.ring.reserve or free + self._erasable() > self.ring.reserve)
        return free > (0 if kind == MOVE else RELOCATION)

    def _erasable(self) -> int:
        """Returns how many sectors can be freed by erasing alone, without relocation."""
        self._find_dead()
        return self.ring.dead_count + self.ring.dirty()

    def _open_next(self) -> bool:
        return self.ring.open_next(self.last_id + 1, self.boot_id)

    def _relocate(self, index: int) -> bool:
        """Copies the live records of a sector to the head [A4]; returns False if it could not read all of them.

        Raises StoreFull; the copies that were made by then are valid.
        """
        is_whole = True
        for offset, header, valid in self.ring.scan(index):
            if not valid or (header.has_body() and not self._move(index, offset, header)):
                is_whole = False
        return is_whole

    def _note_lost_with(self, index: int) -> None:
        """Notes live records of the tail that could not be relocated; their gap is durable before its erase [G1]."""
        lost_keys = self._settings_in(index)
        for key in lost_keys:
            self.setting_places.pop(key)
        lost = self.index.lost_with_tail()
        for message_id in lost:
            self.index.remove(message_id)
        self._note_lost(lost, lost_keys)

    def _move(self, index: int, offset: int, header) -> bool:
        """Copies the message or setting at this offset, if it is live; returns False if it cannot be read."""
        place = self.ring.place(index, offset)
        if header.is_message():
            is_live = self.index.is_in(index, header.number)
        else:
            is_live = place in self.setting_places.values()
        if not is_live:
            return True
        found = self.read(place)  # checked once more, because the copy gets a CRC of its own [C1]
        if found is None:
            return False
        header, name, content = found
        if header.kind == SET:
            self.write(SET, header.flags, header.number, header.aux, (name, content), True)
        else:
            received = record.RECEIVED if header.number in self.index.received else 0
            self.write(MOVE, header.flags | received, header.number, header.aux, (name, content), True)
        return True
