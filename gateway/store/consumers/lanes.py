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

import asyncio
import sys
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol

from gateway.message import Message
from gateway.store.consumers.cursor import PACKET_IDENTIFIERS, Cursor
from gateway.store.consumers.delivery import Backlog, Delivery, RangeSet
from gateway.store.consumers.log_reader import LogReader
from gateway.store.consumers.run_cursor import RunCursor
from gateway.store.consumers.runs import DeliveryRun
from gateway.store.tables.cursors import BACKFILL_PREFIX
from gateway.store.tables.drops import UNROUTED
from gateway.store.tables.log_rows import Part
from gateway.subscriptions import Subscription

BACKFILL_RANGES_MOST = 1000  # beyond it nothing more is handed over: all of them are written each time


def keeps_all(_: Message) -> bool:
    """Keeps each message."""
    return True


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


class LaneCursor(RunCursor):
    """The cursor of one lane. While there is a backfill, both lanes hand out their messages one by one.

    Args:
        log, consumer, filters, window: as for a ``Cursor``; both lanes have the consumer's name in ranges and flows.
        backfill: the positions of the backfill, which both lanes share.
        is_backfill: whether this is the cursor of the backfill.
    """

    def __init__(
        self,
        log: "LogReader[Cursor]",
        consumer: str,
        filters: Iterable[str | Subscription] = (),
        *,
        backfill: BackfillRanges,
        is_backfill: bool = False,
        window: int = PACKET_IDENTIFIERS,
    ) -> None:
        self.backfill = backfill
        self.is_backfill = is_backfill
        self._unrouted_up_to = 0
        self._keeps: Callable[[Message], bool] = keeps_all
        super().__init__(log, consumer, filters, window=window, always_counts=True)
        self.takes_new = not is_backfill
        self.passed = {position: None for position in self.passed if self._is_own(position)}

    def drop_up_to(self, position: int, keeps: Callable[[Message], bool]) -> None:
        """Drops the messages that wait up to a position, from now on, as the cursor comes to them: ``unrouted``.

        ``keeps`` says which ones are handed out all the same. So are messages that a former process may have handed
        out: they may have arrived.
        """
        self._unrouted_up_to, self._keeps = position, keeps

    def _hand_out(
        self, upcoming: list[tuple[int, Message]], limit: int, may_have: Callable[[str], bool]
    ) -> list[Delivery]:
        if upcoming[0][0] > self._unrouted_up_to:
            return super()._hand_out(upcoming, limit, may_have)
        for count, (position, message) in enumerate(upcoming):
            if self._is_unrouted(position, message):
                if count:
                    return super()._hand_out(upcoming[:count], limit, may_have)
                self._drop(UNROUTED, position, message)
                self._read = position
                return []
        return super()._hand_out(upcoming, limit, may_have)

    def _is_unrouted(self, position: int, message: Message) -> bool:
        if position > self._unrouted_up_to or self.may_have_sent(position) or self._keeps(message):
            return False
        return self.takes(position, message)

    @property
    def place(self) -> str:
        return f"{BACKFILL_PREFIX}{self.consumer}" if self.is_backfill else self.consumer

    @property
    def saves_each_move(self) -> bool:  # type: ignore[override]
        # What is done with the set and with QoS 2 flows waits for the saved places of both lanes.
        return self._has_lanes or self.saves_passing

    @property
    def _has_lanes(self) -> bool:
        return self.is_backfill or bool(self.backfill)

    @property
    def has_waiting(self) -> bool:
        """Whether messages may wait that were not handed out, or were handed back."""
        return self.unread_from < self._log.head or bool(self._to_redeliver.waiting)

    def all_wait_behind(self, position: int) -> int | None:
        return None if self._has_lanes else super().all_wait_behind(position)

    def all_wait_in(self, first: int, part: Part) -> bool:
        is_in, end = self.backfill.stretch(first)
        return is_in == self.is_backfill and first + part.count - 1 <= end and super().all_wait_in(first, part)

    def end_of_stretch(self, position: int) -> int:
        return self.backfill.stretch(position)[1]

    @property
    def is_done(self) -> bool:
        """Whether all of the backfill is acknowledged, or not for this consumer."""
        return self.position >= self.backfill.last

    @property
    def may_join_backfill(self) -> tuple[int, int] | None:
        """The first and the last position of what waits and can be handed over to the backfill, None if nothing can."""
        ranges = self.backfill
        first, last = max([self.unread_from, ranges.last, *self.passed]) + 1, self._log.head
        is_full = len(ranges) >= BACKFILL_RANGES_MOST and first > ranges.last + 1
        return None if first > last or is_full else (first, last)

    def may_have_sent(self, position: int) -> bool:
        """Whether a former process may have handed out the message at a position."""
        return position <= self._dup_up_to[0]

    def give_to(self, other: "LaneCursor", first: int) -> None:
        """Counts all messages that wait here from a position on for another lane; what is in flight stays."""
        self._runs.spread()
        mine, theirs = self.backlog, other.backlog
        if mine is None or theirs is None or first != self.unread_from + 1:
            self.tally.stop()
            other.tally.stop()  # until both are counted again
            other.tally.noticed = Backlog(self._log.count_behind(other.position))
        else:
            sizes = [size for _, _, size, _ in self._unacknowledged.values()]
            self.tally.give(Backlog(mine.messages - len(sizes), mine.bytes - sum(sizes)), other.tally)

    async def _take_runs(self, limit: int, single_limit: int, run_qos_max: int) -> tuple[list[DeliveryRun], int]:
        if self.is_backfill or self.backfill or self.unread_from < self._unrouted_up_to:
            return [], single_limit
        return await super()._take_runs(limit, single_limit, run_qos_max)

    def _range_set(self) -> RangeSet:
        return LaneRanges(self.backfill, is_backfill=self.is_backfill)

    def granting(self, position: int, message: Message) -> list[Subscription]:
        return super().granting(position, message) if self._is_own(position) else []

    def _is_own(self, position: int) -> bool:
        return self.backfill.stretch(position)[0] == self.is_backfill


class BackfillRows(Protocol):
    """Notes the positions of a route's backfill. ``StoredRoutes`` is one."""

    def save_backfill(self, consumer: str, /) -> asyncio.Future[list[Any]]: ...


class HandOverLog(Protocol):
    """What ``hand_over`` asks of the log."""

    @property
    def routes(self) -> BackfillRows: ...

    def note_earlier_place(self, cursor: Cursor, /) -> None: ...


async def hand_over(log: HandOverLog, live: LaneCursor, backfill: LaneCursor) -> bool:
    """Makes all that waits in the live lane part of the backfill, which then goes on behind what it has.

    What was handed out stays live, also what a former process has put into QoS 2 flows.

    Returns:
        Whether anything was handed over, once that is durable.

    Raises:
        sqlite3.Error: it could not be written, and all stays in the live lane.
    """
    async with live.fetching, backfill.fetching:
        if (found := live.may_join_backfill) is None:
            return False
        ranges, (first, last) = live.backfill, found
        live.give_to(backfill, first)
        ranges.add(first, last)
        backfill.read_again(first - 1)
        log.note_earlier_place(backfill)

        def take_back_if_failed(done: asyncio.Future[list[Any]]) -> None:
            if done.exception() is not None:
                ranges.cut(first - 1)
                live.read_again(first - 1)
                backfill.give_to(live, 0)

        saved = log.routes.save_backfill(live.consumer)
        saved.add_done_callback(take_back_if_failed)
        await asyncio.shield(saved)
        return True
