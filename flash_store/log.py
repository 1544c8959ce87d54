"""The log of unacknowledged messages. Clauses in brackets are SPEC.md's."""

import gc

from flash_store import gaps, record
from flash_store.errors import MIN_SECTORS, POLICIES, DeviceFailed, HeapFull, MessageTooLarge, StoreFull
from flash_store.flash import Flash
from flash_store.gaps import Gaps
from flash_store.index import Index
from flash_store.record import ACK, ACK_SPAN, MSG, REC
from flash_store.ring import Ring
from flash_store.settings import Settings
from flash_store.writer import Writer

ACK_BATCH = 8  # acknowledgements that wait in RAM for one record; a power cut costs their repetition, no message
TOPIC_LENGTH_MAX = 65535
GRANULE = 16  # bytes, for a device without the attribute `granule`


def packet_identifier(message_id: int) -> int:
    """Returns the MQTT packet identifier of a message; it stays the same after a restart."""
    return message_id % 65535 + 1


def _nothing(last_id: int) -> None:
    pass


def is_blank(device) -> bool:
    """Returns whether nothing was ever stored here: all sectors are erased.

    The first sector may have content: a power cut may have interrupted a format [R6].
    """
    flash = Flash(device)
    return all(flash.is_blank(index, 0, flash.sector_size) for index in range(1, flash.sector_count))


class Log:
    """Keeps messages on flash until they are acknowledged, and has `settings`. Not for use from several threads.

    `device` has MicroPython's block-device protocol in its extended form. `on_full` says what `append` does when no
    room is left: "reject_new" raises StoreFull; "drop_oldest" drops the oldest messages and notes them as a gap. Before
    it drops messages it calls `before_drop` with the highest of their ids; if that raises StoreFull, none is dropped.
    `until` is for `flash_store.kept`. Mounting raises StoreCorrupt, with the reason, if the device holds no store.
    """

    until: str | None = None

    def __init__(self, device, on_full: str = "reject_new") -> None:
        if on_full not in POLICIES:
            raise ValueError(f"on_full is {on_full!r}, expected one of {', '.join(POLICIES)}")
        self.on_full = on_full
        self.before_drop = _nothing
        self._flash = Flash(device)
        self._index = Index(self._flash)  # its long arrays are allocated before a module that leaves the heap again
        self._index.ring.until = self.until
        from flash_store.mount import Mount  # a board drops this module from the heap once the store is mounted

        self._pending: list[int] = []  # acknowledged, not yet on flash
        self._appended = 0  # bytes that messages have taken on flash since the mount
        places: dict = {}
        found = Mount(self._flash, self._index, places)
        self._ring = found.ring
        self._bad_records = found.bad_records
        self.epoch = self._ring.epoch
        self._writer = Writer(
            self._flash, found.ring, self._index, places, found.last_id, found.boot_id + 1, self._note_lost
        )
        self.settings = Settings(self._writer)
        self._gaps = Gaps(self.settings, self._ring.capacity // 4)
        found.make_durable(self._writer, self._gaps)
        self._forget(1, self._gaps.dropped_up_to())
        for first, last in self._gaps.told(gaps.TORN) + self._gaps.told(gaps.MEMORY):
            self._forget(first, last)

    @property
    def last_id(self) -> int:
        """The highest message id that was ever given out or skipped; 0 before the first."""
        return max(self._writer.last_id, self._gaps.torn)

    @property
    def bad_records(self) -> int:
        """How many corrupt records were skipped, during the mount and since."""
        return self._bad_records

    @property
    def boot_id(self) -> int:
        """The number of this mount of the store, from 1."""
        return self._writer.boot_id

    @staticmethod
    def format(device, epoch: int, granule: int | None = None) -> None:
        """Makes an empty store, with the random u32 `epoch` as its name. Everything on the device is erased.

        `granule` is the device's program unit in bytes: 8, 16, 32 … 256; by default the device's attribute `granule`.
        Raises DeviceFailed.
        """
        flash = Flash(device)
        unit = granule if granule is not None else getattr(device, "granule", GRANULE)
        if flash.sector_count < MIN_SECTORS:
            raise DeviceFailed(f"{flash.sector_count} sectors are too few, expected at least {MIN_SECTORS}")
        ring = Ring(flash, unit, epoch)
        while ring.dirty():
            ring.erase(ring.first_dirty(), 1)
        if ring.free() < MIN_SECTORS:
            raise DeviceFailed(f"only {ring.free()} of {flash.sector_count} sectors could be erased")

    def append(self, topic: str, payload: bytes, qos: int = 1, retain: bool = False) -> int:
        """Stores a message and returns its id; the message is durable then.

        Raises StoreFull, MessageTooLarge, DeviceFailed; HeapFull if RAM does not suffice even after a garbage
        collection: then a gap reports the message. After any of these errors the message does not appear later.
        """
        for _ in range(2):
            try:
                return self._append(topic, payload, qos, retain)
            except MemoryError:
                gc.collect()
                self._index.recount()
            except (StoreFull, DeviceFailed):
                if self._writer.begun > self.last_id:
                    self._leave_out(gaps.TORN)
                raise
        self._leave_out(gaps.MEMORY)
        raise HeapFull(f"no RAM to store message {self.last_id}")

    def _leave_out(self, reason: int) -> None:
        """Skips the next id: flash may hold a record of it, of a message that was refused."""
        lost = self.last_id + 1
        if lost in self._index.live:
            self._index.remove(lost)
        self._gaps.add(lost, lost, 1, reason)
        self._pending.append(lost)
        self.flush()

    def _append(self, topic: str, payload: bytes, qos: int, retain: bool) -> int:
        name = topic.encode()
        length = len(name) + len(payload)
        size = self._writer.extent(length)
        room = self._ring.capacity - self._writer.extent(0) - record.HEADER_SIZE
        if length > room or len(name) > TOPIC_LENGTH_MAX:
            raise MessageTooLarge(f"{length} bytes of topic and payload, {room} fit")
        flags = qos | (record.RETAIN if retain else 0)
        while True:
            try:
                self._check_packet_identifier()
                self._gaps.save()
                self._writer.write(MSG, flags, self.last_id + 1, len(name), (name, payload))
            except StoreFull:
                if self.on_full == "reject_new" or not self._drop_oldest():
                    raise
                continue
            self._appended += size
            return self.last_id

    def acknowledge(self, message_id: int) -> bool:
        """Removes a message; returns False if it is not stored. `flush`, or a full batch, makes the removal durable."""
        if message_id not in self._index.live:
            return False
        self._index.remove(message_id)
        self._pending.append(message_id)
        if len(self._pending) >= ACK_BATCH:
            self.flush()
        return True

    def forsake(self, message_ids: list, reason: int = gaps.FORSAKEN) -> None:
        """Removes messages that may never have arrived, and notes a gap; both are durable on return.

        Raises StoreFull; then no message is removed.
        """
        self._gaps.note([(one, one, 1, reason) for one in message_ids if not self._gaps.has(one, reason)])
        for message_id in message_ids:
            self.acknowledge(message_id)
        self.flush()

    def flush(self) -> None:
        """Writes the gaps and acknowledgements that wait in RAM. If the store has no room, they go on waiting."""
        self._pending.sort()
        try:
            self._gaps.save()
            while self._pending:
                base = self._pending[0]
                batch = [m for m in self._pending if m - base < ACK_SPAN]
                self._writer.write(ACK, 0, base, sum([1 << m - base for m in batch]))
                self._pending = [m for m in self._pending if m not in batch]  # a relocation may have added some
                self._pending.sort()
        except StoreFull:
            pass

    def note_pubrec(self, message_id: int) -> bool:
        """Notes the PUBREC of a QoS 2 message; durable on return, before PUBREL is sent [Q1].

        Returns False if the message is not stored. Raises StoreFull, DeviceFailed.
        """
        if message_id not in self._index.live:
            return False
        if message_id not in self._index.received:
            self._writer.write(REC, 0, message_id, 1)
            self._index.received.add(message_id)
        return True

    def has_pubrec(self, message_id: int) -> bool:
        """Returns whether the message is stored and had its PUBREC: then only PUBREL is left to send."""
        return message_id in self._index.received

    def holds(self, message_id: int) -> bool:
        """Returns whether the message is stored: neither acknowledged nor lost."""
        return message_id in self._index.live

    def pubrecs(self) -> list[int]:
        """Returns the ids of the messages that had their PUBREC, oldest first."""
        return self._index.received.oldest(len(self._index.received))

    def messages(self, after: int = 0):
        """Yields the unacknowledged messages with an id above `after`, oldest first: (id, qos, retain, topic, payload).

        The log may change meanwhile. Only one message at a time is in RAM.
        """
        while True:
            message_id = self._index.live.next(after)
            if message_id is None:
                return
            after = message_id
            found = self._message(after)
            if found is None:
                self._index.remove(after)
                self._note_unreadable([after])
                continue
            yield (after,) + found

    def __len__(self) -> int:
        return len(self._index.live)

    def ids(self, count: int) -> list[int]:
        """Returns the ids of the oldest messages, at most `count`."""
        return self._index.live.oldest(count)

    def gaps(self) -> list[tuple]:
        """Returns (first id, last id, count, reason) of messages that were lost without an acknowledgement.

        The reasons are listed in `flash_store.gaps.REASONS`. A gap stays until `forget_gaps`.
        """
        return [(first, last, n, gaps.REASONS.get(reason, "?")) for first, last, n, reason in self._gaps.ranges]

    def forget_gaps(self, told: list) -> None:
        """Removes gaps that were reported upstream; durable on return. A gap that has changed since stays.

        Raises StoreFull.
        """
        for first, last, count, reason in list(self._gaps.ranges):  # a copy: the loop may add gaps
            if reason in gaps.WITHOUT_ACK and (first, last, count, gaps.REASONS[reason]) in told:
                self._writer.write_off(first, last)
        self.flush()
        if self._pending:  # without its gap, a dropped message must not reappear after a restart
            raise StoreFull("no room to make sure that what was dropped does not come back")
        before = self._gaps.forget([gap in told for gap in self.gaps()])
        try:
            self._gaps.save()
        except StoreFull:
            self._gaps.ranges = before
            raise

    @property
    def erase_due(self) -> bool:
        """Whether `idle` would erase a sector, or search for one to erase."""
        return self._ring.free() <= self._ring.reserve and self._writer.is_reclaimable()

    def idle(self) -> None:
        """Erases sectors ahead, and moves messages out of the oldest sectors. To be called when there is time."""
        for _ in range(self._flash.sector_count):
            if self._ring.free() > self._ring.reserve or not self._writer.reclaim():
                return

    def stats(self, elapsed_ms: int | None = None) -> dict:
        """Returns these counts.

        live: messages. waiting: acknowledgements in RAM. sectors, free, bad: sectors in all, free ones and bad ones.
        bad_records: corrupt records that were skipped. lost: messages in `gaps`. used: bytes. erases: since the mount.
        wear_spread: the difference between the highest and the lowest erase count of a sector. appended: bytes since
        the mount. ms_to_full: time until the store is full if nothing is acknowledged, at the rate since the mount;
        None without `elapsed_ms` (the time since the mount), and if nothing was appended.
        """
        ring = self._ring
        least, most = 0, 0
        for count in ring.erase_counts():
            least, most = min(least or count, count or least), max(most, count)
        room = (max(0, ring.free() - ring.reserve)) * ring.capacity + ring.room()
        return {
            "live": len(self),
            "waiting": len(self._pending),
            "sectors": self._flash.sector_count,
            "free": ring.free(),
            "bad": ring.bad(),
            "bad_records": self._bad_records,
            "lost": sum(one[2] for one in self._gaps.ranges),
            "used": ring.used_count * ring.capacity - ring.room(),
            "erases": ring.erases,
            "wear_spread": most - least,
            "appended": self._appended,
            "ms_to_full": room * elapsed_ms // self._appended if elapsed_ms and self._appended else None,
        }

    def _check_packet_identifier(self) -> None:
        oldest = self._index.live.first()
        if oldest and self.last_id + 1 - oldest >= 65535:
            raise StoreFull(f"message {oldest} still has the next packet identifier")

    def _message(self, message_id: int):
        """Returns (QoS, retain, topic, payload) of a live message; None if its record is corrupt."""
        found = self._index.read(message_id)
        if found is None:
            return None
        header, name, payload = found  # the payload stays a bytearray: it may be long, and is not copied
        try:
            topic = str(name, "utf-8")
        except UnicodeError:
            return None
        return header.flags & 3, bool(header.flags & record.RETAIN), topic, payload

    def _note_unreadable(self, ids: list[int]) -> None:
        self._bad_records += len(ids)
        for message_id in ids:
            self._gaps.add(message_id, message_id, 1, gaps.UNREADABLE)
        self._pending += ids

    def _note_lost(self, ids: list[int], keys: list[bytes]) -> None:
        """Notes lost messages and settings, before the sector that held them is erased. Raises StoreFull."""
        self._bad_records += len(keys)
        self._note_unreadable(ids)
        self._gaps.save(True)

    def _drop_oldest(self) -> bool:
        """Drops the messages of the oldest sector with live messages, and all older messages [G1].

        Returns False if there is no live message, or no room to note the gap.
        """
        ring, index = self._ring, self._index
        last, count, size, position = 0, 0, 0, ring.dead_count
        while not last and position < ring.used_count:
            last, count, size = index.look_at(ring.used(position))
            position += 1
        if not last:
            return False
        dropped = index.live.count_up_to(last)
        left = None if index.live_bytes is None or dropped != count else index.live_bytes - size
        try:
            self.before_drop(last)
            self._gaps.note([(index.live.first(), last, dropped, gaps.DROPPED)])
        except StoreFull:
            return False
        self._forget(1, last)
        index.live_bytes = left
        return True

    def _forget(self, first: int, last: int) -> None:
        message_id = self._index.live.next(first - 1)
        while message_id is not None and message_id <= last:
            self.acknowledge(message_id)
            message_id = self._index.live.next(message_id)
