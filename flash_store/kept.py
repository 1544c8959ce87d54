"""A log that keeps acknowledged messages until their room is needed, for a device that may have to send them again."""

import struct

from flash_store import record
from flash_store.errors import DeviceFailed, StoreCorrupt, StoreFull
from flash_store.log import Log
from flash_store.settings import RESERVED

LEFT = RESERVED + "left"  # of a setting: the ids of messages that were refused, and of which flash may have a record
LEFT_MAX = 32  # ids in it; the oldest goes first


class KeepingLog(Log):
    """A log of which acknowledged messages can be read until their sector is erased: the oldest sector goes first.

    No message that is not acknowledged goes for them, and no new one is refused: they take only room that is free.
    `landed` is up to which id all messages are known to be in the tables, and `again` is the sector_seq from which on
    acknowledged messages are being sent again, 0 if none are; the device sets both.
    """

    until = "receipt"
    landed = 0
    again = 0

    def sector_from(self, seq: int) -> int:
        """Returns the sector_seq of the oldest sector in use from `seq` on; 0 if there is none."""
        ring = self._ring
        for position in range(ring.used_count):
            if ring.seqs[ring.used(position)] >= seq:
                return ring.seqs[ring.used(position)]
        return 0

    def kept(self, seq: int, first: int, last: int, ids=()):
        """Yields acknowledged messages with ids from `first` to `last` in the sector `seq`.

        They are as those of `messages`, but at QoS 1 and not retained. `ids`: only these of them; if it is empty, all.
        The log may change meanwhile, and the sector may be erased. One message at a time is in RAM.
        """
        ring = self._ring
        left = self._left()
        for index in range(len(ring.seqs)):
            if ring.seqs[index] != seq:
                continue
            for offset, header, valid in ring.scan(index):
                number = header.number
                if not valid or not header.is_message() or not first <= number <= last:
                    continue
                if number in self._index.live or number in left or (ids and number not in ids):
                    continue
                found = record.read_body(self._flash, index, offset, record.seed(self.epoch, seq))
                if found is not None:
                    yield number, 1, False, str(found[1], "utf-8"), found[2]
            return

    def _leave_out(self, reason: int) -> None:
        """Remembers the id: its message was refused, and must not go out beside its repetition [G3]."""
        try:
            ids = self._left()[1 - LEFT_MAX :] + [self.last_id + 1]
            self.settings.put(LEFT, struct.pack(f"<{len(ids)}I", *ids))
        except (StoreFull, DeviceFailed, MemoryError):
            pass
        Log._leave_out(self, reason)

    def _left(self) -> list:
        try:
            value = self.settings.get(LEFT) or b""
        except StoreCorrupt:
            value = b""
        return list(struct.unpack(f"<{len(value) // 4}I", value))
