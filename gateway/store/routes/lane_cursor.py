"""A route's cursor: one lane of it, which hands out runs of messages, and leaves out what rules of the route say.

::

    log ─► which lane? ─► subscriptions ─► limits, rules ─► a run of one batch, or one message after the other
           (`Lane`)       (`Cursor`)       (`LeftByRule`)   (`RunsInFlight`)
"""

from collections.abc import Callable, Iterable, Sequence

from gateway.message import Message
from gateway.store.consumer_names import BACKFILL
from gateway.store.consumers.cursor import PACKET_IDENTIFIERS, Cursor, HoldsBack
from gateway.store.consumers.delivery import Backlog, Delivery, Grant, ReasonToDrop
from gateway.store.consumers.log_reader import LogReader
from gateway.store.routes.lanes import BackfillRanges, LaneRanges
from gateway.store.routes.left_by_rule import LeavesOut, LeftByRule, TellLeftOut, either
from gateway.store.routes.runs import DeliveryRun, RowsAhead, RunsInFlight, columns_of, run_of
from gateway.store.tables.drops import SELECTED, UNROUTED
from gateway.store.tables.log_rows import Gap, Part, PublishBatch
from gateway.subscriptions import Subscription
from wire.bulk.publishes import qos_of

RUN_LEAST = 8  # messages in a batch of PUBLISHes; fewer of them are faster one by one

Piece = Delivery | DeliveryRun
"""What a route's cursor hands out: one message, or many at once."""


def keeps_all(_: Message) -> bool:
    """Keeps each message."""
    return True


class LaneCursor(Cursor):
    """The cursor of one lane, with ``fetch_pieces`` besides ``fetch_now``. Runs are acknowledged as pieces, or by
    packet identifiers.

    A run has messages of one `PublishBatch`, with nothing that sets one of them apart: all of them are taken alike,
    none may expire or may be dropped, no route has handed one on before, no QoS 2 flow has one, and no limit below a
    topic filter counts one. All others are handed out one by one, in their order; while there is a backfill, so are
    all messages of both lanes.

    Args:
        log, consumer, filters, window: as for a ``Cursor``; both lanes have the consumer's name in ranges and flows.
        backfill: the positions of the backfill, which both lanes share.
        is_backfill: whether this is the cursor of the backfill.

    ``tell_left_out`` is called with messages that rules leave out. ``saves_passing``: the place is saved even if the
    cursor only passes messages, as something is known of these.
    """

    flight: RunsInFlight

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
        self.saves_passing = False
        self._left = LeftByRule()
        self._selects = False
        self._rows = RowsAhead()
        self._unrouted_up_to = 0
        self._keeps: Callable[[Message], bool] = keeps_all
        ranges, flight = LaneRanges(backfill, is_backfill=is_backfill), RunsInFlight()
        super().__init__(log, consumer, filters, window=window, always_counts=True, ranges=ranges, flight=flight)
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

    async def fetch_pieces(self, limit: int, single_limit: int, run_qos_max: int = 2) -> Sequence[Piece]:
        """Returns the next messages without waiting, in order; none if none waits. Raises sqlite3.Error.

        Args:
            limit: the most messages in runs.
            single_limit: the most messages one by one.
            run_qos_max: the highest QoS of runs; messages of a higher one come one by one.
        """
        async with self.fetching:
            runs, singles = await self._take_runs(limit, single_limit, run_qos_max)
        return runs or await self.fetch_now(singles)

    def acknowledge_pieces(self, pieces: Iterable[Piece]) -> None:
        """What was handed out has arrived."""
        arrived = size = 0
        singles: list[int] = []
        for piece in pieces:
            if isinstance(piece, Delivery):
                singles.append(piece.packet_identifier)
            elif self.flight.take_run(piece):
                arrived += len(piece)
                size += piece.size
            else:
                self.flight.spread()
                singles += piece.packet_identifiers
        self._note_runs_arrived(arrived, size)
        if singles:
            self.acknowledge_all(singles)

    def redeliver_pieces(self, pieces: Iterable[Piece]) -> None:
        """Hands out again, one by one, what was handed out."""
        numbers: list[int] = []
        for piece in pieces:
            numbers += [piece.packet_identifier] if isinstance(piece, Delivery) else piece.packet_identifiers
        self.redeliver(numbers)

    def acknowledge_all(self, packet_identifiers: Sequence[int]) -> int:
        arrived, size, others = self.flight.take_from_runs(packet_identifiers)
        self._note_runs_arrived(arrived, size)
        arrived += super().acknowledge_all(others)
        self._note_left()
        return arrived

    def _note_runs_arrived(self, arrived: int, size: int) -> None:
        if arrived:
            self.tally.note_acknowledged(arrived, size)
            self._note_left()
            self._tell()
            self._log.changed()

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
        if reason == SELECTED:
            self._left.add(position, message)
        else:
            super()._pass_over(reason, position, message)

    def _note_left(self, up_to: int | None = None) -> None:
        """Notes the messages that were left out up to a position, None: up to the place."""
        if self._left and (found := self._left.take(self.position if up_to is None else up_to)):
            self._log.leave_out(self.consumer, found)

    async def _take_runs(self, limit: int, single_limit: int, run_qos_max: int) -> tuple[list[DeliveryRun], int]:
        """Returns the next runs. If there are none, returns as well how many messages come one by one before a run."""
        if self._looks_at_each or self.unread_from < self._unrouted_up_to:
            return [], single_limit
        limit = min(limit, self.window - self.flight.used(self._taken))
        if limit <= 0 or self.unread_from == self._log.head:
            return [], single_limit
        after = self.unread_from
        await self._rows.read(self._log, after)
        runs: list[DeliveryRun] = []
        grants: dict[tuple[str, int], Grant | None] = {}
        singles = 0
        after = self.unread_from
        for first, part in self._rows.parts_behind(after):
            begin = max(0, after + 1 - first)
            alike = self._taken_alike(first + begin, first + part.count, part, run_qos_max, grants)
            if alike is None:
                singles += part.count - begin
                if runs or singles >= single_limit:
                    break
            elif singles:
                break
            else:
                end = min(part.count, begin + limit)
                runs.append(self._hand_out_run(*alike, begin, end, first + begin))
                limit -= len(runs[-1])
                if not limit or len(runs[-1]) < end - begin:
                    break
        self._rows.forget(self.unread_from)
        return runs, min(max(1, singles), single_limit)

    @property
    def _looks_at_each(self) -> bool:
        """Whether no message may be in a run now."""
        counts_each = self.tally.is_walking or self.tally.origins is not None
        return counts_each or self.reason_to_drop is not None or self._has_lanes or bool(self.flight.waiting)

    def _taken_alike(
        self, position: int, end: int, part: Part | Gap, qos_max: int, grants: dict[tuple[str, int], Grant | None]
    ) -> tuple[PublishBatch, Grant] | None:
        """Returns a part, with how the consumer takes its messages from a position on; None if each goes by itself."""
        if not isinstance(part, PublishBatch) or part.count < RUN_LEAST or (qos := qos_of(part.packets)) > qos_max:
            return None
        if position <= max(self._usual_from, self._log.gone) or part.publisher in self.not_from:
            return None
        if (topics := self.tally.topics) is not None and any(map(topics.has, part.topics)):
            return None
        if self.passed and not self.passed.keys().isdisjoint(range(position, end)):
            return None
        found: set[Grant | None] = set()
        for topic in part.topics:
            kind = topic, qos
            if kind not in grants:
                grants[kind] = self.grant(position, Message(topic, b"", qos))
            found.add(grants[kind])
        grant = found.pop()
        if grant is None or found or part.may_bring_trails or columns_of(part).may_expire:
            return None
        return part, grant

    def _hand_out_run(self, batch: PublishBatch, grant: Grant, begin: int, end: int, position: int) -> DeliveryRun:
        head, dup_up_to = self._dup_up_to
        if dup := position <= head and self._taken < dup_up_to:
            end = min(end, begin + min(head + 1 - position, dup_up_to - self._taken))
        run = run_of(batch, begin, end, position, self._taken, self._identifiers, grant, dup=dup)
        self.flight.add_run(run)
        self._taken += len(run)
        self._read = run.last
        return run
