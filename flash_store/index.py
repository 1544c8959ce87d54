"""The index: which messages are live (unacknowledged), which of them have their PUBREC, and where they are on flash."""

import struct

from flash_store import record, sector
from flash_store.ids import Ids
from flash_store.ring import Ring

SLOTS = 12  # messages whose place is kept in RAM: those in flight, and the newest
_SLOT = "<IIH"  # id, place, granules
_SLOT_SIZE = 10
_ALL = 0xFFFFFFFF  # an id above all others
_NONE = Ids()  # shared empty set: most stores have moved no message


class Index:
    """The unacknowledged messages of a log.

    `live` holds their ids, `received` the ids of messages that had their PUBREC. Both are ranges, so that a
    long backlog takes no more RAM. The place of message n is kept in slot n modulo `SLOTS`, unless another live message
    has that slot, and again once the message was read; otherwise its record is searched for on flash when it is needed.
    `moved` holds ids of which the tail has an outdated copy, because a later sector has a newer one.
    """

    def __init__(self, flash) -> None:
        self._flash = flash
        self.ring = Ring(flash)  # the mount fills it
        self.clear()

    def clear(self) -> None:
        """Makes the index empty: no message is live."""
        self._slots = bytearray(SLOTS * _SLOT_SIZE)
        self.live = Ids()
        self.received = Ids()
        self.moved = _NONE
        self.live_bytes: int | None = 0  # bytes of live messages on flash; None: unknown, to be counted
        self._next = 0  # the place after the message that was searched for last
        self._tail_bytes: tuple | None = None  # (sector_seq, bytes), see `bytes_in_tail`
        self._witness = (0, 0, 0)  # (sector_seq, offset, id) of a live message, see `_has_live`
        self._limit = (0, 0)  # (sector_seq, an id above all ids in that sector)

    def put(self, message_id: int, place: int, size: int) -> None:
        """Notes the place of a message's record; if there are several records, the last one counts.

        Raises MemoryError; then nothing is changed.
        """
        if message_id in self.live:
            if self.ring.sector_of(place) != self.ring.tail():  # otherwise the copy that counts is in the tail
                if self.moved is _NONE:
                    self.moved = Ids()
                self.moved.add(message_id)
            self._tail_bytes = None
        else:
            self.live.add(message_id)
            if self.live_bytes is not None:
                self.live_bytes += size
        known = self._slot(message_id)[0]
        if known == message_id or known not in self.live:  # a message in flight keeps its slot
            self._remember(message_id, place, size)

    def recount(self) -> None:
        """Makes `dead_bytes` count again: flash may hold copies of messages that the index does not know of."""
        self.live_bytes = None

    def remove(self, message_id: int) -> None:
        """The message is no longer live."""
        known, _, granules = self._slot(message_id)
        self.live.remove(message_id)
        self.received.remove(message_id)
        if known != message_id:
            self.live_bytes = None
        elif self.live_bytes is not None:
            self.live_bytes -= granules * self.ring.granule
        if self._tail_bytes is not None and not (
            self._limit[0] == self._tail_bytes[0] and self._limit[1] <= message_id
        ):
            self._tail_bytes = None

    def read(self, message_id: int):
        """Returns (header, topic, payload) of a live message; None if its record is corrupt."""
        known, place, _ = self._slot(message_id)
        if known == message_id:
            found = self._read(message_id, place)
            if found is not None:
                return found
        for place in self._places_of(message_id):
            found = self._read(message_id, place)
            if found is not None:
                self._remember(message_id, place, record.extent(found[0].length, self.ring.granule))
                return found
        return None

    def is_in(self, index: int, message_id: int) -> bool:
        """Returns whether the record of this message in sector `index` is the one that counts."""
        return message_id in self.live and not (index == self.ring.tail() and message_id in self.moved)

    def look_at(self, index: int) -> tuple[int, int, int]:
        """Returns (highest id, number, bytes on flash) of the live messages in sector `index`; zeros if it has none.

        It checks the CRC of each record: a wrong length in a corrupt header would hide messages, and a wrong id would
        name others.
        """
        ring = self.ring
        highest = count = size = 0
        for _, header, valid in ring.scan(index):
            if valid and header.is_message() and self.is_in(index, header.number):
                highest = max(highest, header.number)
                count += 1
                size += record.extent(header.length, ring.granule)
        return highest, count, size

    def bytes_in_tail(self) -> int:
        """Returns the bytes on flash of the live messages in the tail."""
        ring = self.ring
        tail = ring.tail()
        if self._tail_bytes is None or self._tail_bytes[0] != ring.seqs[tail]:
            found = 0
            if self.may_hold_live(0):
                found = self.look_at(tail)[2]
            self._tail_bytes = (ring.seqs[tail], found)
        return self._tail_bytes[1]

    def dead_bytes(self) -> int:
        """Returns the bytes in all sectors in use that belong to no live message (the settings are among them)."""
        ring = self.ring
        if self.live_bytes is None:
            found = 0
            for position in range(ring.used_count):
                if self.may_hold_live(position):
                    found += self.look_at(ring.used(position))[2]
            self.live_bytes = found
        return ring.filled * ring.granule - self.live_bytes

    def holds_live(self, position: int) -> bool:
        """Returns whether the sector at this position of the ring holds a live message."""
        ring = self.ring
        index = ring.used(position)
        if not self.may_hold_live(position):
            return False
        seq, offset, message_id = self._witness
        if seq != ring.seqs[index]:
            seq, offset, message_id = ring.seqs[index], ring.first(), 0
        if self.is_in(index, message_id):
            return True
        for at, header in record.headers(self._flash, index, offset, ring.end(index), ring.granule):
            if self.is_in(index, header.number):
                self._witness = (seq, at, header.number)
                return True
        for _, header, valid in ring.scan(index):  # a corrupt record may have hidden a live message
            if valid and header.is_message() and self.is_in(index, header.number):
                return True
        return False

    def lost_with_tail(self) -> list[int]:
        """Returns the ids of live messages without a valid record outside the tail.

        To be called when every readable message of the tail was moved: these messages are lost when it is erased.
        """
        ring = self.ring
        found = Ids()
        for position in range(1, ring.used_count):
            for _, header, valid in ring.scan(ring.used(position)):
                if valid and header.is_message() and header.number in self.live:
                    found.add(header.number)
        lost = []
        for first, last in self.live.ranges():
            lost += [one for one in range(first, last + 1) if one not in found]
        return lost

    def forget_tail(self) -> None:
        """Forgets what was known about the tail, which is no longer in use."""
        self.moved = _NONE
        self._tail_bytes = None

    def may_hold_live(self, position: int) -> bool:
        """Returns False if all ids in the sector at this position are below the oldest live one.

        The OPEN header of the next sector gives an id above all of them.
        """
        ring = self.ring
        if not len(self.live):
            return False
        if position + 1 >= ring.used_count:
            return True
        seq = ring.seqs[ring.used(position)]
        if self._limit[0] != seq:
            opened, _ = sector.read_open(self._flash, ring.used(position + 1), ring.granule, ring.epoch)
            self._limit = (seq, opened.next_id if opened else _ALL)
        return self.live.first() < self._limit[1]

    def _slot(self, message_id: int):
        """Returns (id, place, granules) from the slot of this message; another message may have the slot."""
        return struct.unpack_from(_SLOT, self._slots, message_id % SLOTS * _SLOT_SIZE)

    def _remember(self, message_id: int, place: int, size: int) -> None:
        granules = size // self.ring.granule
        struct.pack_into(_SLOT, self._slots, message_id % SLOTS * _SLOT_SIZE, message_id, place, granules)

    def _read(self, message_id: int, place: int):
        ring = self.ring
        index = ring.sector_of(place)
        if not ring.is_used(index):
            return None
        found = record.read_body(self._flash, index, ring.offset_of(place), ring.seed(index))
        is_it = found is not None and found[0].is_message() and found[0].number == message_id
        return found if is_it else None

    def _places_of(self, message_id: int):
        """Yields places that may hold a record of this message, likely places first.

        The order is: after the message that was searched for last, in the sector where this message was appended, then
        anywhere. If the message was moved, its newest record comes before all.
        """
        ring = self.ring
        if message_id in self.moved:
            for position in range(ring.used_count - 1, -1, -1):
                places = list(self._look(ring.used(position), ring.first(), message_id))
                while places:
                    yield places.pop()
        here = ring.sector_of(self._next)
        if ring.is_used(here):
            yield from self._look(here, ring.offset_of(self._next), message_id)
        home = self._home(message_id)
        if home is not None:
            yield from self._look(ring.used(home), ring.first(), message_id)
        first = 0
        while first < ring.used_count and ring.used(first) != here:
            first += 1
        for number in range(ring.used_count):
            position = (first + 1 + number) % ring.used_count
            yield from self._look(ring.used(position), ring.first(), message_id)
        for position in range(ring.used_count):  # a corrupt record may have hidden it
            index = ring.used(position)
            for offset, header, valid in ring.scan(index):
                if valid and header.is_message() and header.number == message_id:
                    yield ring.place(index, offset)

    def _look(self, index: int, offset: int, message_id: int):
        ring = self.ring
        for at, header in record.headers(self._flash, index, offset, ring.end(index), ring.granule):
            if header.number == message_id:
                self._next = ring.place(index, at + record.extent(header.length, ring.granule))
                yield ring.place(index, at)

    def _home(self, message_id: int) -> int | None:
        """Returns the position of the sector in which the message was appended; None if it is no longer in use."""
        ring = self.ring
        low, high = 0, ring.used_count
        while low < high:
            middle = (low + high) // 2
            opened, _ = sector.read_open(self._flash, ring.used(middle), ring.granule, ring.epoch)
            if opened is None or opened.next_id > message_id:
                high = middle
            else:
                low = middle + 1
        return low - 1 if low else None
