"""Sets of message ids, kept as ranges: a backlog of any length is one range with few holes."""

import struct

_RANGE = "<II"
_SIZE = 8


class Ids:
    """A set of ids. It takes 8 bytes of RAM for each range of consecutive ids."""

    def __init__(self) -> None:
        self._ranges = bytearray()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __contains__(self, message_id: int) -> bool:
        return self.next(message_id - 1) == message_id

    def next(self, after: int) -> int | None:
        """Returns the smallest id above `after`, or None."""
        at = self._find(after + 1)
        if at == len(self._ranges):
            return None
        return max(after + 1, struct.unpack_from("<I", self._ranges, at)[0])

    def first(self) -> int:
        """Returns the smallest id; 0 if the set is empty."""
        return struct.unpack_from("<I", self._ranges, 0)[0] if self._count else 0

    def oldest(self, count: int) -> list:
        """Returns the smallest ids, at most `count`, in order."""
        found: list = []
        while len(found) < count and (one := self.next(found[-1] if found else 0)) is not None:
            found.append(one)
        return found

    def ranges(self):
        """Yields (first, last) of each range, in order. The set must not change meanwhile."""
        for at in range(0, len(self._ranges), _SIZE):
            yield struct.unpack_from(_RANGE, self._ranges, at)

    def count_up_to(self, last_id: int) -> int:
        """Returns how many ids are `last_id` or less."""
        return sum([min(last, last_id) - first + 1 for first, last in self.ranges() if first <= last_id])

    def add(self, first: int, last: int | None = None) -> None:
        """Adds the ids from `first` to `last`, or `first` alone."""
        last = first if last is None else last
        ranges = self._ranges
        start = self._find(first - 1) if first else 0  # includes a range that ends just before `first`: it grows
        end = start
        while end < len(ranges):
            there = struct.unpack_from(_RANGE, ranges, end)
            if there[0] > last + 1:
                break
            first, last = min(first, there[0]), max(last, there[1])
            end += _SIZE
        self._splice(start, end, struct.pack(_RANGE, first, last))

    def remove(self, first: int, last: int | None = None) -> None:
        """Removes the ids from `first` to `last`, or `first` alone; ids that are not in the set are ignored."""
        last = first if last is None else last
        start = end = self._find(first)
        left = b""
        while end < len(self._ranges):
            there = struct.unpack_from(_RANGE, self._ranges, end)
            if there[0] > last:
                break
            if there[0] < first:
                left += struct.pack(_RANGE, there[0], first - 1)
            if there[1] > last:
                left += struct.pack(_RANGE, last + 1, there[1])
            end += _SIZE
        if end > start:
            self._splice(start, end, left)

    def clear(self) -> None:
        self._ranges = bytearray()
        self._count = 0

    def _find(self, message_id: int) -> int:
        """Returns the offset of the first range that ends at this id or above."""
        low, high = 0, len(self._ranges) // _SIZE
        while low < high:
            middle = (low + high) // 2
            if struct.unpack_from("<I", self._ranges, middle * _SIZE + 4)[0] < message_id:
                low = middle + 1
            else:
                high = middle
        return low * _SIZE

    def _splice(self, start: int, end: int, ranges: bytes) -> None:
        grown = _count(ranges, 0, len(ranges)) - _count(self._ranges, start, end)
        self._ranges[start:end] = ranges
        self._count += grown


def _count(ranges, start: int, end: int) -> int:
    count = 0
    for at in range(start, end, _SIZE):
        first, last = struct.unpack_from(_RANGE, ranges, at)
        count += last - first + 1
    return count
