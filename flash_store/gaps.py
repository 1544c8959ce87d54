"""Ranges of ids whose messages are gone without an acknowledgement, and why: never silent [G1]."""

import struct

from flash_store.errors import StoreCorrupt, StoreFull
from flash_store.settings import RESERVED

DROPPED = 1  # to make room, by the policy `drop_oldest`
UNREADABLE = 2  # its record went bad on flash
TORN = 3  # left out: a record that was cut or went bad at the log's end may have had this id
FORSAKEN = 4  # given up on purpose, see `Log.forsake`
REJECTED = 5  # the same, as the receiver refuses it and takes others
MEMORY = 6  # dropped as it came, for want of RAM
DAMAGED = 7  # the mount found nothing of it, though its id was given out
REASONS = {
    DROPPED: "dropped",
    UNREADABLE: "unreadable",
    TORN: "torn",
    FORSAKEN: "forsaken",
    REJECTED: "rejected",
    MEMORY: "memory",
    DAMAGED: "damaged",
}
WITHOUT_ACK = (UNREADABLE, TORN, MEMORY, DAMAGED)  # there may be no ACK on flash yet, for want of room

_KEY = RESERVED + "gaps"
KEY = _KEY.encode()
_RANGE = "<IIIB"
_RANGE_SIZE = 13


class Gaps:
    """The ranges [first id, last id, count, reason] in order of id, kept in a setting of the store's own.

    `room` is what they may take in bytes: beyond it the nearest two of one reason become one; `count` stays exact.
    `torn` is the highest id that was left out after a torn record or for want of RAM, ever.
    """

    def __init__(self, settings, room: int) -> None:
        self._settings = settings
        self._room = room
        self._changes = self._saved = 0  # how often something changed, and up to where that is on flash
        try:
            value = settings.get(_KEY) or bytes(4)
        except StoreCorrupt:
            value = bytes(4)
        self.torn = int.from_bytes(value[:4], "little")
        starts = range(4, len(value) - _RANGE_SIZE + 1, _RANGE_SIZE)
        self.ranges = [list(struct.unpack_from(_RANGE, value, at)) for at in starts]

    def told(self, reason: int = 0) -> list:
        """(first, last) of the ranges, all or of one reason, that tell of each id in them: of one that was merged
        nothing says of which."""
        ranges = [one for one in self.ranges if one[3] == reason or not reason]
        return [(first, last) for first, last, count, _ in ranges if count == last - first + 1]

    def add(self, first: int, last: int, count: int, reason: int) -> None:
        """Note a range; on flash with `save`."""
        self._changes += 1
        if reason in (TORN, MEMORY):
            self.torn = last
        for one in self.ranges:
            if one[3] == reason and one[1] + 1 == first:
                one[1] = last
                one[2] += count
                return
        self.ranges.append([first, last, count, reason])
        self.ranges.sort()
        while len(self.ranges) * _RANGE_SIZE > self._room:
            self._merge_nearest()

    def touch(self) -> None:
        """`save` is to write them once more, as they are."""
        self._changes += 1

    def note(self, ranges: list) -> None:
        """Add ranges; durable on return. Raises StoreFull: then none is noted."""
        before = [list(one) for one in self.ranges]
        for one in ranges:
            self.add(*one)
        try:
            self.save(True)
        except StoreFull:
            self.ranges = before
            raise

    def has(self, message_id: int, reason: int) -> bool:
        """Whether that is noted: a cut may have come before the message itself was gone."""
        return any(first <= message_id <= last for first, last in self.told(reason))

    def forget(self, told: list) -> list:
        """Leave out the ranges for which `told` has True, on flash with `save`; returns all that there were."""
        before = self.ranges
        self.ranges = [one for one, is_told in zip(before, told) if not is_told]
        self._changes += 1
        return before

    def save(self, is_move: bool = False) -> None:
        """Make durable what changed. Raises StoreFull."""
        while self._saved != self._changes:
            changes = self._changes
            value = struct.pack("<I", self.torn) + b"".join([struct.pack(_RANGE, *one) for one in self.ranges])
            try:
                self._settings.make_room(_KEY, value, is_move)
                if self._changes == changes:  # a relocation on the way may have found something unreadable
                    self._settings.put(_KEY, value, is_move)
                    self._saved = changes
            except StoreFull:
                if self._saved != self._changes:  # else that relocation has saved it all
                    raise

    def dropped_up_to(self) -> int:
        """The highest id that was dropped to make room; 0 where none was."""
        return max((one[1] for one in self.ranges if one[3] == DROPPED), default=0)

    def _merge_nearest(self) -> None:
        ranges = self.ranges
        pairs = [(ranges[j][0] - ranges[i][1], i, j) for i in range(len(ranges)) for j in self._next_of_reason(i)]
        _, i, j = min(pairs)
        later = ranges.pop(j)
        ranges[i][1] = max(ranges[i][1], later[1])
        ranges[i][2] += later[2]

    def _next_of_reason(self, i: int) -> list[int]:
        """The range after this one that has the same reason, if any."""
        return [j for j in range(i + 1, len(self.ranges)) if self.ranges[j][3] == self.ranges[i][3]][:1]
