"""Gaps: ranges of ids whose messages were lost without an acknowledgement, and the reason for each [G1]."""

import struct

from flash_store.errors import StoreCorrupt, StoreFull
from flash_store.settings import RESERVED

DROPPED = 1  # dropped to make room, by the policy `drop_oldest`
UNREADABLE = 2  # its record became corrupt on flash
TORN = 3  # the id was skipped: a torn or corrupt record at the log's end may have had it
FORSAKEN = 4  # given up on purpose, see `Log.forsake`
REJECTED = 5  # given up on purpose, because the receiver refuses this message and accepts others
MEMORY = 6  # never stored, because RAM did not suffice
DAMAGED = 7  # the mount found no record of it, although its id was given out
REASONS = {
    DROPPED: "dropped",
    UNREADABLE: "unreadable",
    TORN: "torn",
    FORSAKEN: "forsaken",
    REJECTED: "rejected",
    MEMORY: "memory",
    DAMAGED: "damaged",
}
WITHOUT_ACK = (UNREADABLE, TORN, MEMORY, DAMAGED)  # flash may hold no ACK of these yet, if there was no room for it

_KEY = RESERVED + "gaps"
KEY = _KEY.encode()
_RANGE = "<IIIB"
_RANGE_SIZE = 13


class Gaps:
    """The ranges [first id, last id, count, reason] in order of id, kept in a setting of the store's own.

    `room` is the most bytes that they may take. When they need more, the two nearest ranges with the same reason are
    merged; `count` stays exact. `torn` is the highest id that was ever skipped after a torn record, or because RAM did
    not suffice.
    """

    def __init__(self, settings, room: int) -> None:
        self._settings = settings
        self._room = room
        self._changes = self._saved = 0  # the number of changes so far, and how many of them are on flash
        try:
            value = settings.get(_KEY) or bytes(4)
        except StoreCorrupt:
            value = bytes(4)
        self.torn = int.from_bytes(value[:4], "little")
        starts = range(4, len(value) - _RANGE_SIZE + 1, _RANGE_SIZE)
        self.ranges = [list(struct.unpack_from(_RANGE, value, at)) for at in starts]

    def told(self, reason: int) -> list:
        """Returns (first, last) of the ranges in which every id was lost, for this reason.

        A merged range is left out: it does not say which of its ids were lost.
        """
        return [(first, last) for first, last, count, why in self.ranges if why == reason and count == last - first + 1]

    def add(self, first: int, last: int, count: int, reason: int) -> None:
        """Adds a range; `save` makes it durable."""
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
        """Makes the next `save` write the ranges again, although they did not change."""
        self._changes += 1

    def note(self, ranges: list) -> None:
        """Adds ranges; they are durable on return. Raises StoreFull; then none is added."""
        before = [list(one) for one in self.ranges]
        for one in ranges:
            self.add(*one)
        try:
            self.save(True)
        except StoreFull:
            self.ranges = before
            raise

    def has(self, message_id: int, reason: int) -> bool:
        """Returns whether a range has this id and reason: a power cut may leave both the gap and the message."""
        return any(first <= message_id <= last for first, last in self.told(reason))

    def forget(self, told: list) -> list:
        """Removes the ranges for which `told` has True (`save` makes that durable); returns the ranges from before."""
        before = self.ranges
        self.ranges = [one for one, is_told in zip(before, told) if not is_told]
        self._changes += 1
        return before

    def save(self, is_move: bool = False) -> None:
        """Makes all changes durable. Raises StoreFull."""
        while self._saved != self._changes:
            changes = self._changes
            value = struct.pack("<I", self.torn) + b"".join([struct.pack(_RANGE, *one) for one in self.ranges])
            try:
                self._settings.make_room(_KEY, value, is_move)
                if self._changes == changes:  # otherwise `make_room` found a corrupt record, which adds a range
                    self._settings.put(_KEY, value, is_move)
                    self._saved = changes
            except StoreFull:
                if self._saved != self._changes:  # otherwise `make_room` has saved everything
                    raise

    def dropped_up_to(self) -> int:
        """Returns the highest id that was dropped to make room; 0 if none was."""
        return max((one[1] for one in self.ranges if one[3] == DROPPED), default=0)

    def _merge_nearest(self) -> None:
        ranges = self.ranges
        pairs = [(ranges[j][0] - ranges[i][1], i, j) for i in range(len(ranges)) for j in self._next_of_reason(i)]
        _, i, j = min(pairs)
        later = ranges.pop(j)
        ranges[i][1] = max(ranges[i][1], later[1])
        ranges[i][2] += later[2]

    def _next_of_reason(self, i: int) -> list[int]:
        """Returns the index of the next range with the same reason, in a list; an empty list if there is none."""
        return [j for j in range(i + 1, len(self.ranges)) if self.ranges[j][3] == self.ranges[i][3]][:1]
