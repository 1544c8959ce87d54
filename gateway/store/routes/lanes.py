"""The two lanes of a route: fresh messages go in the live lane, and the backfill has what waited too long for that.

Each lane is a cursor of its own on the same log, with a place of its own. A set of position ranges says which lane a
message belongs to: positions in the set are the backfill's, all others are live. ``hand_over`` moves what waits in the
live lane to the backfill. The set is durable before the live lane's place can be behind these messages, so that a crash
loses none. A route that sends everything in one order has an empty set, and only a live lane.

::

    position   1 ................ 500 501 ........ 800 801 ............ 1200 (head)
    set                           └─── backfill ────┘
    live           acknowledged │                     │ in flight │ waits
    backfill                      in flight │ waits
"""

import sys
from bisect import bisect_left
from collections.abc import Iterable, Iterator

from gateway.store.consumers.delivery import RangeSet

BACKFILL_RANGES_MOST = 1000  # beyond it nothing more is handed over: all of them are written each time


class BackfillRanges:
    """The positions of a route's backfill, as ranges in order that do not touch."""

    def __init__(self, ranges: Iterable[tuple[int, int]] = ()) -> None:
        self._firsts: list[int] = []
        self._lasts: list[int] = []
        for first, last in ranges:
            self.add(first, last)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return iter(list(zip(self._firsts, self._lasts, strict=True)))

    def __len__(self) -> int:
        return len(self._firsts)

    @property
    def last(self) -> int:
        """The last position, 0 if there is none."""
        return self._lasts[-1] if self._lasts else 0

    def is_full_for(self, first: int) -> bool:
        """Whether there is no room for a range from a position on, which is behind all others."""
        return len(self._firsts) >= BACKFILL_RANGES_MOST and first > self.last + 1

    def add(self, first: int, last: int) -> None:
        """Adds a range behind all others."""
        if self._lasts and self._lasts[-1] == first - 1:
            self._lasts[-1] = last
        else:
            self._firsts.append(first)
            self._lasts.append(last)

    def cut(self, position: int) -> None:
        """Takes out what is behind a position."""
        while self._firsts and self._firsts[-1] > position:
            self._firsts.pop()
            self._lasts.pop()
        if self._lasts:
            self._lasts[-1] = min(self._lasts[-1], position)

    def trim(self, position: int) -> None:
        """Takes out the ranges that end at a position or before it."""
        count = bisect_left(self._lasts, position + 1)
        del self._firsts[:count], self._lasts[:count]

    def stretch(self, position: int) -> tuple[bool, int]:
        """Returns whether a position is in the set, and up to which one that holds."""
        index = bisect_left(self._lasts, position)
        if index == len(self._lasts):
            return False, sys.maxsize
        if self._firsts[index] <= position:
            return True, self._lasts[index]
        return False, self._firsts[index] - 1


class LaneRanges(RangeSet):
    """Ranges of positions that may be for a consumer, without the positions of the other lane."""

    __slots__ = ("_backfill", "_is_backfill")

    def __init__(self, backfill: BackfillRanges, *, is_backfill: bool) -> None:
        self._backfill = backfill
        self._is_backfill = is_backfill
        super().__init__()

    def __iter__(self) -> Iterator[tuple[int, int]]:
        for first, last in super().__iter__():
            while first <= last:
                is_in, end = self._backfill.stretch(first)
                if is_in == self._is_backfill:
                    yield first, min(end, last)
                first = end + 1

    def behind(self, position: int) -> int | None:
        while (wanted := super().behind(position)) is not None:
            is_in, end = self._backfill.stretch(wanted)
            if is_in == self._is_backfill:
                return wanted
            position = end
        return None
