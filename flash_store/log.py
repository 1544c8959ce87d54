"""The log of unacknowledged messages. Clauses in brackets are SPEC.md's."""

from flash_store import record
from flash_store.errors import DeviceFailed, MessageTooLarge, StoreFull
from flash_store.flash import Flash
from flash_store.index import Index
from flash_store.mount import ACK_SPAN, Mount
from flash_store.record import ACK, MOVE, MSG, STATE
from flash_store.ring import BAD, DIRTY, FREE, Ring

ACK_BATCH = 8  # acknowledgements that wait in RAM for one record; a power cut costs their repetition, no message
MIN_SECTORS = 6
TOPIC_LENGTH_MAX = 65535


def packet_identifier(message_id: int) -> int:
    """MQTT's packet identifier of a message: the same after a restart."""
    return message_id % 65535 + 1


def is_blank(device) -> bool:
    """True when nothing was ever stored here: all is erased, but for a first sector where a format was cut [R6]."""
    flash = Flash(device)
    return all(flash.is_blank(index, 0, flash.sector_size) for index in range(1, flash.sector_count))


class Log:
    """Messages on flash until they are acknowledged. Not for use from several threads.

    `device` speaks MicroPython's block-device protocol in its extended form. Mounting raises StoreCorrupt, saying why,
    when no store is there.
    """

    def __init__(self, device) -> None:
        self._flash = Flash(device)
        self._index = Index()
        self._pending: list[int] = []  # acknowledged, not yet on flash
        found = Mount(self._flash, self._index)
        self._ring = found.ring
        self._bad_records = found.bad_records
        self.epoch = self._ring.epoch
        self.last_id = found.last_id
        self.boot_id = found.boot_id + 1
        self._write_boot()

    @staticmethod
    def format(device, epoch: int, granule: int = 16) -> None:
        """Make an empty store, of which `epoch` (u32, random) is the name; all that was on the device is gone.

        `granule` is the device's program unit in bytes: 8, 16, 32 … 256. Raises DeviceFailed.
        """
        flash = Flash(device)
        if flash.sector_count < MIN_SECTORS:
            raise DeviceFailed(f"{flash.sector_count} sectors are too few, expected at least {MIN_SECTORS}")
        ring = Ring(flash, granule, epoch)
        for index in range(flash.sector_count):
            ring.erase(index)
        if ring.count(FREE) < MIN_SECTORS:
            raise DeviceFailed(f"only {ring.count(FREE)} of {flash.sector_count} sectors could be erased")

    def append(self, topic: str, payload: bytes, qos: int = 1, retain: bool = False) -> int:
        """Store a message and return its id: it is durable then. Raises StoreFull, MessageTooLarge, DeviceFailed."""
        encoded_topic = topic.encode()
        body = encoded_topic + payload
        if self._extent(len(body)) > self._ring.capacity or len(encoded_topic) > TOPIC_LENGTH_MAX:
            raise MessageTooLarge(f"{len(body)} bytes of topic and payload, {self._ring.capacity - 16} fit")
        message_id = self.last_id + 1
        flags = qos | (record.RETAIN if retain else 0)
        self._write(MSG, flags, message_id, len(encoded_topic), body)
        self.last_id = message_id
        return message_id

    def acknowledge(self, message_id: int) -> bool:
        """Forget a message; False when it is not here (any more). On flash with `flush` or a full batch."""
        place = self._index.remove(message_id)
        if place is None:
            return False
        self._ring.kill(place)
        self._pending.append(message_id)
        if len(self._pending) >= ACK_BATCH:
            self.flush()
        return True

    def flush(self) -> None:
        """Write the acknowledgements that wait. When not even these fit, they go on waiting."""
        self._pending.sort()
        try:
            while self._pending:
                base = self._pending[0]
                bitmap = 0
                for message_id in self._pending:
                    if message_id - base < ACK_SPAN:
                        bitmap |= 1 << message_id - base
                self._write(ACK, 0, base, bitmap)
                self._pending = [m for m in self._pending if m - base >= ACK_SPAN]
        except StoreFull:
            pass

    def messages(self, after: int = 0):
        """Unacknowledged messages with an id above `after`, oldest first: (id, qos, retain, topic, payload).
        The log may change meanwhile; one message at a time is in RAM."""
        while True:
            position = self._index.find(after + 1)
            if position == len(self._index):
                return
            after, place = self._index.entry(position)
            found = record.read_message(self._flash, *self._where(place))
            if found is None:
                # Its sector goes on counting it as live: with a header gone bad nothing else is sure about its size.
                self._bad_records += 1
                self._index.remove(after)
                continue
            header, body = found
            topic = str(bytes(body[: header.aux]), "utf-8")
            yield after, header.flags & 3, bool(header.flags & record.RETAIN), topic, bytes(body[header.aux :])

    def __len__(self) -> int:
        return len(self._index)

    def idle(self) -> None:
        """Erase ahead, and move stragglers out of the way: call it when time does not press."""
        while self._ring.count(FREE) <= self._ring.reserve and self._reclaim():
            pass

    def stats(self) -> dict[str, int]:
        """Counts: messages `live`, acknowledgements `waiting` in RAM, sectors `free` and `bad`, `bad_records` skipped,
        `erases` since the mount."""
        return {
            "live": len(self._index),
            "waiting": len(self._pending),
            "free": self._ring.count(FREE),
            "bad": self._ring.count(BAD),
            "bad_records": self._bad_records,
            "erases": self._ring.erases,
        }

    def _extent(self, length: int) -> int:
        return record.extent(length, self._ring.granule)

    def _where(self, place: int):
        index = self._ring.sector_of(place)
        return index, self._ring.offset_of(place), self._ring.seed(index)

    def _write(self, kind: int, flags: int, number: int, aux: int, body: bytes | bytearray = b"") -> int:
        """Add a record; returns its place. A sector where that fails takes no more, the next one gets it [W3]."""
        for _ in range(self._flash.sector_count):
            self._make_room(kind, self._extent(len(body)))
            place = self._program(kind, flags, number, aux, body)
            if place is not None:
                return place
        raise DeviceFailed("no sector takes the record")

    def _program(self, kind: int, flags: int, number: int, aux: int, body: bytes | bytearray) -> int | None:
        ring = self._ring
        encoded = record.encode(kind, flags, number, aux, body, ring.seed(ring.head), ring.granule)
        place = ring.program(encoded)
        if place is None:
            return None
        if kind in (MSG, MOVE):
            ring.add_live(place)
            self._index.put(number, place)
        else:
            ring.add_dead(ring.head, len(encoded))
        return place

    def _make_room(self, kind: int, size: int) -> None:
        """Open a new head where the present one is too full. Raises StoreFull [A2]."""
        # A sector filled by relocation keeps room to say so: else what it relocated could not be freed.
        needed = size if kind == MSG else size + self._extent(0)
        while self._ring.room() < needed or (kind == MSG and not self._ring.count(FREE)):
            if self._may_open(kind):
                self._open_next()
            elif kind == MOVE or not self._reclaim():
                raise StoreFull(f"{len(self._index)} unacknowledged messages fill the store")

    def _may_open(self, kind: int) -> bool:
        free = self._ring.count(FREE)
        if kind == MSG:
            return free > 1 and free + self._ring.erasable() > self._ring.reserve
        return free > (0 if kind == MOVE else 1)

    def _open_next(self) -> bool:
        return self._ring.open_next(self.last_id + 1, self.boot_id)

    def _write_boot(self) -> None:
        """Make this mount's boot_id durable: in the head, or by opening the first one [R5]."""
        try:
            self._make_room(STATE, self._extent(0))
        except StoreFull:
            pass  # the very last room is good enough
        self._write_state()

    def _write_state(self) -> None:
        """Make durable the boot and from where on the log counts, by a record or by a new head."""
        ring = self._ring
        tail_seq = ring.live_seq(ring.seqs[ring.head])
        if ring.room() >= self._extent(0) and self._program(STATE, 0, self.boot_id, tail_seq, b"") is not None:
            ring.durable_tail = tail_seq
            return
        while ring.count(FREE) and not self._open_next():
            pass

    def _reclaim(self) -> bool:
        """Free one sector; False when none can be [A3]."""
        ring = self._ring
        if ring.count(DIRTY):
            ring.erase(ring.first_dirty())
            return True
        tail = ring.tail()
        if tail == ring.head:
            return False
        if ring.is_live(tail) and not (ring.is_relocation_worthwhile(tail) and self._relocate(tail)):
            return False
        if ring.durable_tail <= ring.seqs[tail]:
            self._write_state()  # where that finds no room, a cut in the erase repeats messages: better than a wedge
        ring.erase(tail)
        return True

    def _relocate(self, index: int) -> bool:
        """Copy what is live in a sector to the head [A4]; False when there is no room for all of it.
        A message that cannot be read any more is dropped and counted."""
        ring = self._ring
        for offset, header, valid in record.scan(self._flash, index, ring.first, ring.seed(index), ring.granule):
            place = ring.place(index, offset)
            if not valid or not header.is_message() or self._index.place(header.number) != place:
                continue
            body = self._flash.read(index, offset + record.HEADER_SIZE, header.length)
            try:
                self._write(MOVE, header.flags, header.number, header.aux, body)
            except StoreFull:
                return False
            ring.kill(place)
        self._bad_records += self._index.remove_if(lambda place: ring.sector_of(place) == index)
        return True
