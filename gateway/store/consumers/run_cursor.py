"""A cursor that hands out whole runs of messages, for routes."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from gateway.message import Message
from gateway.store.consumers.delivery import Delivery, Grant
from gateway.store.consumers.runs import DeliveryRun, RunsInFlight, columns_of, run_of
from gateway.store.consumers.selecting_cursor import SelectingCursor
from gateway.store.consumers.tally import Walk, identifiers_used
from gateway.store.tables.cursors import Place
from gateway.store.tables.evicted import EvictedMessage
from gateway.store.tables.log_rows import Gap, LogRow, Part, PublishBatch
from wire.bulk.publishes import qos_of

RUN_LEAST = 8  # messages in a batch of PUBLISHes; fewer of them are faster one by one
ROWS_KEPT = 8  # rows of the log that were read from the disk, and are not handed out yet

Piece = Delivery | DeliveryRun
"""What a route's cursor hands out: one message, or many at once."""


class RunCursor(SelectingCursor):
    """A route's cursor with ``fetch_pieces`` besides ``fetch_now``. Runs are acknowledged as pieces, or by packet
    identifiers.

    A run has messages of one `PublishBatch`, with nothing that sets one of them apart: all of them are taken alike,
    none may expire or may be dropped, no route has handed one on before, no QoS 2 flow has one, and no limit below a
    topic filter counts one. All others are handed out one by one, in their order.
    """

    def __init__(self, *args: Any, **keys: Any) -> None:
        super().__init__(*args, **keys)
        self._runs = RunsInFlight(self._unacknowledged)
        self._rows: list[LogRow] = []  # of the log, from the next message on

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
            elif self._runs.take(piece):
                arrived += len(piece)
                size += piece.size
            else:
                self._runs.spread()
                singles += piece.packet_identifiers
        if arrived:
            self.tally.note_acknowledged(arrived, size)
            self._note_left(self.position)
            self._tell()
            self._log.changed()
        if singles:
            self.acknowledge_all(singles)

    def redeliver_pieces(self, pieces: Iterable[Piece]) -> None:
        """Hands out again, one by one, what was handed out."""
        numbers: list[int] = []
        for piece in pieces:
            numbers += [piece.packet_identifier] if isinstance(piece, Delivery) else piece.packet_identifiers
        self.redeliver(numbers)

    def acknowledge_all(self, packet_identifiers: Sequence[int]) -> int:
        arrived, size, others = self._runs.acknowledge(packet_identifiers)
        if any(map(self._runs.has, others)):
            self._runs.spread()
        if arrived:
            self.tally.note_acknowledged(arrived, size)
            self._tell()
            self._log.changed()
        return arrived + super().acknowledge_all(others)

    @property
    def handed_out(self) -> list[int]:
        return self._runs.positions()

    def place_of(self, packet_identifier: int) -> Place:
        self._runs.spread()
        return super().place_of(packet_identifier)

    def redeliver(self, packet_identifiers: Iterable[int]) -> None:
        self._runs.spread()
        super().redeliver(packet_identifiers)

    def lose(
        self, messages: dict[int, Message], last: int, note_evicted: Callable[[str, Message], EvictedMessage]
    ) -> None:
        if self._runs.first_position <= last:
            self._runs.spread()
        super().lose(messages, last, note_evicted)

    def begin_to_count(self, walk: Walk) -> None:
        self._runs.spread()
        super().begin_to_count(walk)

    def wake_with(self, wake: Callable[[], None] | None) -> None:
        if wake is None:
            self._rows = []
        super().wake_with(wake)

    async def _take_runs(self, limit: int, single_limit: int, run_qos_max: int) -> tuple[list[DeliveryRun], int]:
        """Returns the next runs. If there are none, returns as well how many messages come one by one before a run."""
        looks_at_each = self.tally.is_walking or self.tally.origins is not None or self.reason_to_drop is not None
        if self._to_redeliver.waiting or looks_at_each:
            return [], single_limit
        limit = min(limit, self.window - identifiers_used(self._unacknowledged, self._taken))
        if limit <= 0 or self.unread_from == self._log.head:
            return [], single_limit
        await self._read_on()
        runs: list[DeliveryRun] = []
        grants: dict[tuple[str, int], Grant | None] = {}
        singles = 0
        after = self.unread_from
        for first, part in self._parts_behind(after):
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
        self._forget_rows()
        return runs, min(max(1, singles), single_limit)

    async def _read_on(self) -> None:
        """Reads rows with the next message, unless they are here."""
        self._forget_rows()
        after = self.unread_from
        if not self._rows or self._rows[0].first > after + 1:
            self._rows = (await self._log.read_rows(after))[:ROWS_KEPT]

    def _forget_rows(self) -> None:
        """Forgets rows without a further message for this consumer."""
        after = self.unread_from
        while self._rows and self._rows[0].last <= after:
            self._rows.pop(0)

    def _parts_behind(self, after: int) -> Iterator[tuple[int, Part | Gap]]:
        """Yields the parts with messages behind a position, each with that of its first message."""
        for row in self._rows:
            first = row.first
            for part in row.parts:
                if first + part.count - 1 > after:
                    yield first, part
                first += part.count

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
        self._runs.add(run)
        self._taken += len(run)
        self._read = run.last
        return run
