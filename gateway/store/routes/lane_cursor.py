"""A route's cursor: one lane of it, which hands out runs of messages, and leaves out what rules of the route say.

::

    log ─► which lane? ─► subscriptions ─► limits, rules ─► a run of one batch, or one message after the other
           (`Lane`)       (`Cursor`)       (`LeftByRule`)   (`RunCursor`)
"""

import sys
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from gateway.message import Message
from gateway.store.consumer_names import BACKFILL
from gateway.store.consumers.cursor import PACKET_IDENTIFIERS, Cursor, HoldsBack
from gateway.store.consumers.delivery import Backlog, Delivery, ReasonToDrop, keep
from gateway.store.consumers.log_reader import LogReader
from gateway.store.consumers.run_cursor import RunCursor
from gateway.store.consumers.runs import Columns, DeliveryRun, columns_of
from gateway.store.routes.lanes import BackfillRanges, LaneRanges
from gateway.store.routes.left_by_rule import LeavesOut, LeftByRule, TellLeftOut, either
from gateway.store.tables.drops import SELECTED, UNROUTED
from gateway.store.tables.log_rows import LogRow, Part, PublishBatch
from gateway.subscriptions import Subscription

ROWS_KEPT = 8  # rows of the log that were read from the disk, and are not handed out yet


def keeps_all(_: Message) -> bool:
    """Keeps each message."""
    return True


class RowsAhead:
    """Rows of the log from the next message on that were read and are not handed out yet."""

    __slots__ = ("_rows",)

    def __init__(self) -> None:
        self._rows: list[LogRow] = []

    async def read(self, log: LogReader[Any], after: int) -> Sequence[LogRow]:
        """Returns rows with the next message behind a position; it reads some if none is here. Raises
        sqlite3.Error."""
        self.forget(after)
        if not self._rows or self._rows[0].first > after + 1:
            self._rows = (await log.read_rows(after))[:ROWS_KEPT]
        return list(self._rows)

    def forget(self, after: int) -> None:
        """Forgets rows without a message behind a position."""
        while self._rows and self._rows[0].last <= after:
            self._rows.pop(0)

    def clear(self) -> None:
        """Forgets all rows."""
        self._rows = []


class LaneCursor(RunCursor):
    """The cursor of one lane. While there is a backfill, all messages of both lanes are handed out one by one.

    Args:
        log, consumer, filters, window: as for a ``Cursor``; both lanes have the consumer's name in ranges and flows.
        backfill: the positions of the backfill, which both lanes share.
        is_backfill: whether this is the cursor of the backfill.

    ``tell_left_out`` is called with messages that rules leave out, and ``tell_unsent`` with the positions of all that
    the cursor has come past for good without handing it on. ``saves_passing``: the place is saved even if the cursor
    only passes messages, as something is known of these.
    """

    _run_bytes_max = sys.maxsize  # a column batch may have more

    def __init__(
        self,
        log: "LogReader[Cursor]",
        consumer: str,
        filters: Iterable[str | Subscription] = (),
        *,
        backfill: BackfillRanges | None = None,
        is_backfill: bool = False,
        window: int = PACKET_IDENTIFIERS,
    ) -> None:
        self.backfill = backfill = BackfillRanges() if backfill is None else backfill
        self.is_backfill = is_backfill
        self.tell_left_out: TellLeftOut | None = None
        self.tell_unsent: Callable[[list[int]], None] | None = None
        self.saves_passing = False
        self._left = LeftByRule()
        self._unsent: deque[int] = deque()
        self._selects = False
        self._rows = RowsAhead()
        self._unrouted_up_to = 0
        self._keeps: Callable[[Message], bool] = keeps_all
        ranges = LaneRanges(backfill, is_backfill=is_backfill)
        super().__init__(log, consumer, filters, window=window, always_counts=True, ranges=ranges)
        self._taken_before = self._taken
        self.takes_new = not is_backfill
        self.passed = {position: None for position in self.passed if self._is_own(position)}

    @property
    def place(self) -> str:
        return f"{BACKFILL}{self.consumer}" if self.is_backfill else self.consumer

    @property
    def saved_position(self) -> int:
        """Where the cursor goes on after a crash: all of its messages up to here were acknowledged."""
        return self._log.saved_position(self.place)

    @property
    def saves_each_move(self) -> bool:  # type: ignore[override]
        # What is done with the set and with QoS 2 flows waits for the saved places of both lanes.
        return self._has_lanes or self.saves_passing

    @property
    def is_done(self) -> bool:
        """Whether all of the backfill is acknowledged, or not for this consumer."""
        return self.position >= self.backfill.last

    @property
    def may_join_backfill(self) -> tuple[int, int] | None:
        """The first and the last position of what waits and can be handed over to the backfill, None if nothing can."""
        first, last = max([self.unread_from, self.backfill.last, *self.passed]) + 1, self._log.head
        return None if first > last or self.backfill.is_full_for(first) else (first, last)

    def may_have_sent(self, position: int) -> bool:
        """Whether a former process may have handed out the message at a position."""
        return position <= self._dup_up_to[0]

    def give_to(self, other: "LaneCursor", first: int) -> None:
        """Counts all messages that wait here from a position on for another lane; what is in flight stays."""
        sizes = self.flight.sizes()
        mine, theirs = self.backlog, other.backlog
        if mine is None or theirs is None or first != self.unread_from + 1:
            self.tally.stop()
            other.tally.stop()  # until both are counted again
            other.tally.noticed = Backlog(self._log.count_behind(other.position))
        else:
            self.tally.give(Backlog(mine.messages - len(sizes), mine.bytes - sum(sizes)), other.tally)

    def takes_topic(self, topic: str) -> bool:
        """Whether messages of a topic that are stored now are for it, apart from those of some publishers."""
        return self in self._log.audience.takers(topic)

    def drop_by(self, limits: ReasonToDrop | None, leaves_out: LeavesOut | None) -> None:
        """Drops messages by limits, and leaves others out, from now on. Messages that are left out take up none of
        ``window``, however many there are between two that are not.

        Args:
            limits: why a message is not handed out, None: all are.
            leaves_out: whether one that no limit drops is left out, None: none is.
        """
        self._selects = leaves_out is not None
        self.reason_to_drop = limits
        if leaves_out is not None:
            head, _ = self._dup_up_to
            self._dup_up_to = head, self._taken_before + PACKET_IDENTIFIERS  # what was in flight may be far apart
            self.reason_to_drop = either(limits, leaves_out)

    def drop_up_to(self, position: int, keeps: Callable[[Message], bool]) -> None:
        """Drops the messages that wait up to a position, from now on, as the cursor comes to them: ``unrouted``.

        ``keeps`` says which ones are handed out all the same. So are messages that a former process may have handed
        out: they may have arrived.
        """
        self._unrouted_up_to, self._keeps = position, keeps

    def acknowledge_all(self, packet_identifiers: Sequence[int]) -> int:
        arrived = super().acknowledge_all(packet_identifiers)
        self._note_left()
        return arrived

    def _note_runs_arrived(self, arrived: int, size: int) -> None:
        super()._note_runs_arrived(arrived, size)
        if arrived:
            self._note_left()

    @property
    def may_pass_over(self) -> bool:
        return False  # both lanes lose together

    async def discard_oldest(self, is_enough: Callable[[Backlog], bool], drops: ReasonToDrop = keep) -> None:
        await super().discard_oldest(is_enough, drops)
        self._note_left()

    async def evict(self, messages: list[tuple[int, Message]]) -> None:
        await super().evict(messages)
        self._note_left()

    def drop(self) -> None:
        """Leaves the log for good; what was left out has its range."""
        self._note_left(self.unread_from)
        super().drop()

    def wake_with(self, wake: Callable[[], None] | None) -> None:
        if wake is None:
            self._rows.clear()
        super().wake_with(wake)

    def all_wait_behind(self, position: int) -> int | None:
        return None if self._has_lanes else super().all_wait_behind(position)

    def all_wait_in(self, first: int, part: Part) -> bool:
        is_in, end = self.backfill.stretch(first)
        return is_in == self.is_backfill and first + part.count - 1 <= end and super().all_wait_in(first, part)

    def end_of_stretch(self, position: int) -> int:
        return self.backfill.stretch(position)[1]

    def granting(self, position: int, message: Message) -> list[Subscription]:
        return super().granting(position, message) if self._is_own(position) else []

    @property
    def _has_lanes(self) -> bool:
        return self.is_backfill or bool(self.backfill)

    def _is_own(self, position: int) -> bool:
        return self.backfill.stretch(position)[0] == self.is_backfill

    def _room(self, limit: int, used: int) -> int:
        if not self._selects:
            return super()._room(limit, used)
        return min(limit, self.window - len(self.flight.entries), self._identifiers - used)

    def _hand_out(
        self, upcoming: list[tuple[int, Message]], limit: int, holds_back: HoldsBack | None = None
    ) -> list[Delivery]:
        if upcoming[0][0] <= self._unrouted_up_to:
            for count, (position, message) in enumerate(upcoming):
                if self._is_unrouted(position, message):
                    if count:
                        upcoming = upcoming[:count]
                        break
                    self._drop(UNROUTED, position, message)
                    self._read = position
                    return []
        deliveries = super()._hand_out(upcoming, limit, holds_back)
        if left := self._left.settle():
            self.tally.note_left_out(left)
            if self.tell_left_out is not None:
                self.tell_left_out(left)
        self._note_left()
        return deliveries

    def _is_unrouted(self, position: int, message: Message) -> bool:
        if position > self._unrouted_up_to or self.may_have_sent(position) or self._keeps(message):
            return False
        return self.takes(position, message)

    def _pass_over(self, reason: str, position: int, message: Message) -> None:
        self._unsent.append(position)
        if reason == SELECTED:
            self._left.add(position, message)
        else:
            super()._pass_over(reason, position, message)

    def _note_left(self, up_to: int | None = None) -> None:
        """Notes the messages that were left out up to a position, None: up to the place."""
        if not self._unsent:
            return
        up_to = self.position if up_to is None else up_to
        if self._left and (found := self._left.take(up_to)):
            self._log.leave_out(self.consumer, found)
        passed: list[int] = []
        while self._unsent and self._unsent[0] <= up_to:
            passed.append(self._unsent.popleft())
        if passed and self.tell_unsent is not None:
            self.tell_unsent(passed)

    def _content(self, batch: PublishBatch) -> Columns:
        return columns_of(batch)

    async def _next_rows(self, after: int) -> Sequence[LogRow]:
        return await self._rows.read(self._log, after)

    @property
    def _looks_at_each(self) -> bool:
        return super()._looks_at_each or self._has_lanes or self.unread_from < self._unrouted_up_to

    def _hand_out_run(self, run: DeliveryRun) -> None:
        super()._hand_out_run(run)
        self._rows.forget(self.unread_from)
