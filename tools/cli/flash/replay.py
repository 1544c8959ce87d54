"""Applies the records of a store in their order. Brackets name clauses of SPEC."""

from collections.abc import Iterator

from tools.cli.flash.layout import ACK, ERASE, MOVE, MSG, REC, SET, STATE, BadRecord, Record, RecordReader
from tools.cli.flash.store import Message, Sector, Setting, Store

ACK_SPAN = 32
GAPS = "\0gaps"  # the key of a setting that the store uses itself
QOS, RETAIN, PUBREC, REMOVED = 0x03, 0x04, 0x08, 0x01  # flags


class Replay:
    """Fills `store` sector by sector [R2]."""

    def __init__(self, store: Store, dropped: set[int]) -> None:
        self._store = store
        self.dropped = set(dropped)  # sectors whose records are all invalid
        store.messages, store.settings, store.acknowledged, store.bad_records = {}, {}, set(), []
        self._highest_id = self._first_id = 0
        self._seen: set[int] = set()
        self._named: set[int] = set()
        self._tail_seq = 0
        self._bad_since_boot = 0
        self.lost_message: BadRecord | None = None  # a bad record at the log's end that may have had an id [R4]
        self.voided: set[int] = set()  # free sectors whose last erase may have been cut [R7]
        last = max(
            (sector.open for sector in store.sectors if sector.open), key=lambda one: one.sector_seq, default=None
        )
        self._tail_seq = last.tail_seq if last else 0
        for sector in store.sectors:
            if sector.open:
                store.boot_id = max(store.boot_id, sector.open.boot_id)
        self._drop_below_tail()

    @property
    def next_boot_id(self) -> int:
        """The boot id of the next mount. Each bad record may have been the STATE of a mount [R5]."""
        return self._store.boot_id + self._bad_since_boot + 1

    def sector(self, sector: Sector, reader: RecordReader) -> None:
        """Replays the next sector in use."""
        sector.records = 0
        if sector.open is None:
            self._bad_since_boot += 1
        else:
            self._bad_since_boot = 0
            self._first_id = self._first_id or sector.open.next_id
            self._decide(sector.open.next_id - 1)
        for found in reader.scan():
            if isinstance(found, Record):
                sector.records += 1
                self._apply(sector, found)
            else:
                self._note_bad(sector, found)

    def end(self) -> None:
        """Ends the replay after the last sector."""
        self._store.messages = dict(sorted(self._store.messages.items()))

    @property
    def missing(self) -> list[int]:
        """The ids that the store has given to messages and that no record has [G2]."""
        last = self._store.last_id
        given = set(range(self._first_id, last + 1)) if self._first_id else set()
        return sorted((given | {one for one in self._named if one <= last}) - self._seen)

    def _drop_below_tail(self) -> None:
        """Drops sectors with a smaller sector_seq than the highest tail_seq: their records are invalid [R2]."""
        for sector in self._store.sectors:
            if sector.sector_seq and sector.sector_seq < self._tail_seq:
                self._drop(sector)

    def _decide(self, highest_id: int) -> None:
        """Handles a record's highest id. If the id is new, the store had dealt with all earlier bad records [R4]."""
        if highest_id > self._highest_id:
            self._note_id(highest_id)
            self.lost_message = None

    def _note_id(self, message_id: int) -> None:
        self._highest_id = max(self._highest_id, message_id)
        self._store.last_id = max(self._store.last_id, message_id)

    def _note_bad(self, sector: Sector, bad: BadRecord) -> None:
        bad.offset += sector.number * self._store.sector_size
        self._store.bad_records.append(bad)
        self._bad_since_boot += 1
        if bad.was_message:
            self.lost_message = bad
        if bad.message_id is not None:
            self._named.add(bad.message_id)

    def _apply(self, sector: Sector, record: Record) -> None:
        store, header = self._store, record.header
        if header.kind in (MSG, MOVE):
            store.messages[header.number] = self._message(sector, record)
            self._note_id(header.number)
            self._seen.add(header.number)
            if header.kind == MSG:
                self._first_id = self._first_id or header.number
                self.lost_message = None
        elif header.kind == ACK:
            for message_id in _ids(record):
                self._note_id(message_id)
                store.acknowledged.add(message_id)
                self._seen.add(message_id)
                store.messages.pop(message_id, None)
        elif header.kind == REC:
            for message_id in _ids(record):
                self._note_id(message_id)
                if message_id in store.messages:
                    store.messages[message_id].pubrec = True
        elif header.kind == SET:
            self._apply_setting(sector, record)
        elif header.kind == STATE:
            self._apply_state(record)
        elif header.kind == ERASE:
            self._apply_erase(sector, record)

    def _message(self, sector: Sector, record: Record) -> Message:
        header, topic_size = record.header, record.header.aux
        before = self._store.messages.get(header.number)
        return Message(
            id=header.number,
            qos=header.flags & QOS,
            retain=bool(header.flags & RETAIN),
            pubrec=bool(header.flags & PUBREC) or (before is not None and before.pubrec),
            topic=record.body[:topic_size].decode(errors="backslashreplace"),
            payload=record.body[topic_size:],
            moved=header.kind == MOVE,
            sector=sector.number,
            offset=sector.number * self._store.sector_size + record.offset,
        )

    def _apply_setting(self, sector: Sector, record: Record) -> None:
        key = record.body[: record.header.aux].decode(errors="backslashreplace")
        self._store.settings.pop(key, None)
        if not record.header.flags & REMOVED:
            offset = sector.number * self._store.sector_size + record.offset
            value = record.body[record.header.aux :]
            self._store.settings[key] = Setting(value, sector.number, offset)
            if key == GAPS:
                self._decide(int.from_bytes(value[:4], "little"))

    def _apply_state(self, record: Record) -> None:
        self._store.boot_id = max(self._store.boot_id, record.header.number)
        self._bad_since_boot = 0
        self._tail_seq = max(self._tail_seq, record.header.aux)
        self._drop_below_tail()

    def _apply_erase(self, sector: Sector, record: Record) -> None:
        """Handles the record of a coming erase: unless the erase was completed, the sector is invalid [R7]."""
        if record.header.number >= len(self._store.sectors):
            return
        erased = self._store.sectors[record.header.number]
        assert sector.sector_seq is not None
        if erased.sector_seq and erased.sector_seq < sector.sector_seq:
            self._drop(erased)
        elif erased.state == "free" and erased.free and erased.free.erase_count <= record.header.aux:
            self.voided.add(erased.number)

    def _drop(self, sector: Sector) -> None:
        sector.state = "dropped"
        self.dropped.add(sector.number)


def _ids(record: Record) -> Iterator[int]:
    return (record.header.number + bit for bit in range(ACK_SPAN) if record.header.aux >> bit & 1)
