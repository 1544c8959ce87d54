"""Adding records: opens sectors, relocates what is live and erases what is dead, so that there is room (SPEC.md,
"Allocation"). Clauses in brackets are SPEC.md's."""

from flash_store import record
from flash_store.errors import DeviceFailed, StoreFull
from flash_store.record import ACK, ERASE, MOVE, MSG, SET, STATE
from flash_store.ring import RELOCATION


class Writer:
    """The log's end. `setting_places` maps the keys of settings to their places, `index` the messages.

    `note_lost(ids, keys)` is called with the messages and settings that a relocation finds unreadable, before their
    sector is erased.
    """

    def __init__(self, flash, ring, index, setting_places: dict, last_id: int, boot_id: int, note_lost) -> None:
        self._flash = flash
        self.ring = ring
        self.index = index
        self.setting_places = setting_places
        self.last_id = last_id
        self.begun = 0  # the highest id of which a record may be on flash, whole or not
        self.boot_id = boot_id
        self._note_lost = note_lost

    def extent(self, length: int) -> int:
        """Bytes on flash of a record with a body of `length` bytes."""
        return record.extent(length, self.ring.granule)

    def read(self, place: int):
        """(header, name, content) of the setting at this place, None when it cannot be read any more."""
        index = self.ring.sector_of(place)
        return record.read_body(self._flash, index, self.ring.offset_of(place), self.ring.seed(index))

    def write(self, kind: int, flags: int, number: int, aux: int, body: tuple = (), is_move: bool = False) -> int:
        """Add a record, its body in parts; returns its place. A sector where that fails takes no more, the next one
        gets it [W3]. With `is_move` the last free sector may be used. Raises StoreFull, DeviceFailed."""
        size = self.extent(sum([len(part) for part in body]))
        for _ in range(self._flash.sector_count):
            self.make_room(MOVE if is_move else kind, size)
            place = self._program(kind, flags, number, aux, body)
            if place is not None:
                return place
        raise DeviceFailed("no sector takes the record")

    def write_boot(self) -> None:
        """Make this mount's boot_id durable: in the head, or by opening the first one [R5]."""
        before = self.ring.seqs[self.ring.head]
        try:
            self.make_room(STATE, self.extent(0))
        except StoreFull:
            pass  # the very last room is good enough
        ring = self.ring
        while ring.seqs[ring.head] == before:  # else OPEN says it
            if ring.room() >= self.extent(0) and self._program(STATE, 0, self.boot_id, 0, ()) is not None:
                return
            if ring.free():
                self._open_next()
            elif not self._erase_dirty():
                return

    def is_reclaimable(self) -> bool:
        """Whether `reclaim` has something to erase or to move."""
        ring = self.ring
        if ring.dirty():
            return True
        if ring.used_count < 2:
            return False
        return not self._is_tail_live() or self._is_relocation_worthwhile()

    def reclaim(self) -> bool:
        """Free one sector; False when none can be [A3]."""
        if self._erase_dirty():
            return True
        if not self.is_reclaimable():
            return False
        tail = self.ring.tail()
        try:
            is_needed = self._settings_in(tail) or self.index.may_hold_live(0)
            if is_needed and not (self._relocate(tail) or self._relocate(tail)):  # a read may fail once
                self._note_lost_with(tail)
        except StoreFull:
            return False
        self._erase(tail)
        return True

    def _is_tail_live(self) -> bool:
        self._find_dead()
        return not self.ring.dead_count

    def _find_dead(self) -> None:
        """Go on with the count of those sectors, from the tail on, in which nothing is live any more."""
        ring = self.ring
        while ring.dead_count < ring.used_count - 1 and not self._holds_live(ring.dead_count):
            ring.dead_count += 1

    def _holds_live(self, position: int) -> bool:
        return bool(self._settings_in(self.ring.used(position))) or self.index.holds_live(position)

    def _settings_in(self, index: int) -> list:
        """The keys of the settings whose values are in this sector."""
        return [key for key, place in self.setting_places.items() if self.ring.sector_of(place) == index]

    def _is_relocation_worthwhile(self) -> bool:
        """True when the live bytes of the tail have room elsewhere, and all dead bytes between live ones make up an
        eighth of what is used, or half a sector, over and above what relocating all of it would write itself [A4]."""
        ring, note = self.ring, self.extent(0)
        live = self.index.bytes_in_tail() + self._size_of(self._settings_in(ring.tail())) + note
        if ring.free() and live <= ring.capacity // 2:
            return True
        dead = self.index.dead_bytes() - self._size_of(self.setting_places) - ring.used_count * note
        if not ring.free():  # the last chance to move it, if it gains anything
            return live <= ring.room() and dead > 0
        return dead > min(ring.capacity // 2, ring.used_count * ring.capacity // 8)

    def _size_of(self, keys) -> int:
        """Bytes on flash of the settings with these keys."""
        return sum([self.ring.size_at(self.setting_places[key]) for key in keys])

    def _erase_dirty(self) -> bool:
        if not self.ring.dirty():
            return False
        self._erase(self.ring.first_dirty())
        return True

    def _erase(self, index: int) -> None:
        """Erase a sector, with a note on flash before that nothing in it counts any more [A3]."""
        ring = self.ring
        erase_count = ring.next_erase_count(index)
        while ring.room() < self.extent(0) or self._program(ERASE, 0, index, erase_count - 1, ()) is None:
            if not ring.free():
                break  # a cut in the erase repeats messages then: better than a wedge
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
            self.index.recount()  # there may be a second copy
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
        """Open a new head where the present one is too full for a record of `size` bytes; MOVE may use the last free
        sector. Raises StoreFull [A2]."""
        # One ERASE always fits behind: so what is live in a sector, and the note that it is erased, fits in one.
        needed = size + self.extent(0)
        while kind != MOVE and self.ring.free() < RELOCATION and self.reclaim():
            pass  # while there is still room for what is live in the tail
        if kind in (MSG, ACK, SET) and not self.ring.free():
            raise StoreFull("what room is left is for what must be moved")
        while kind == MSG and self._is_short():
            if not self.reclaim():
                raise StoreFull("what room is left is for notes")  # also that of a head which a note has opened
        while self.ring.room() < needed:
            if self._may_open(kind):
                self._open_next()
            elif not (self._erase_dirty() if kind == MOVE else self.reclaim()):
                raise StoreFull(f"{len(self.index.live)} unacknowledged messages fill the store")

    def _is_short(self) -> bool:
        """Whether fewer sectors are free, or would be after an erase, than new messages leave."""
        return self.ring.free() < self.ring.reserve and self.ring.free() + self._erasable() < self.ring.reserve

    def _may_open(self, kind: int) -> bool:
        free = self.ring.free()
        if kind == MSG:
            return free > RELOCATION and (free > self.ring.reserve or free + self._erasable() > self.ring.reserve)
        return free > (0 if kind == MOVE else RELOCATION)

    def _erasable(self) -> int:
        """How many sectors an erase alone would free."""
        self._find_dead()
        return self.ring.dead_count + self.ring.dirty()

    def _open_next(self) -> bool:
        return self.ring.open_next(self.last_id + 1, self.boot_id)

    def _relocate(self, index: int) -> bool:
        """Copy what is live in a sector to the head [A4]; False where not all of it could be read. Raises StoreFull:
        what was copied by then counts there."""
        is_whole = True
        for offset, header, valid in self.ring.scan(index):
            if not valid or (header.has_body() and not self._move(index, offset, header)):
                is_whole = False
        return is_whole

    def _note_lost_with(self, index: int) -> None:
        """What was live in the tail, and could not be moved: on flash as a gap before its sector is erased [G1]."""
        lost_keys = self._settings_in(index)
        for key in lost_keys:
            self.setting_places.pop(key)
        lost = self.index.lost_with_tail()
        for message_id in lost:
            self.index.remove(message_id)
        self._note_lost(lost, lost_keys)

    def _move(self, index: int, offset: int, header) -> bool:
        """Copy the message or setting here, if it is live; False where it cannot be read."""
        if header.is_message() and not self.index.is_in(index, header.number):
            return True
        start = offset + record.HEADER_SIZE
        name = self._flash.read_if_whole(index, start, header.aux)
        if name is None:
            return False
        if header.kind == SET and self.setting_places.get(bytes(name)) != self.ring.place(index, offset):
            return True
        content = self._flash.read_if_whole(index, start + header.aux, header.length - header.aux)
        if content is None:
            return False
        if header.kind == SET:
            self.write(SET, header.flags, header.number, header.aux, (name, content), True)
        else:
            received = record.RECEIVED if header.number in self.index.received else 0
            self.write(MOVE, header.flags | received, header.number, header.aux, (name, content), True)
        return True
