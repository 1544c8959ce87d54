"""A cursor that hands out runs: messages that came in one piece leave and are acknowledged in one piece.

::

    rows of the log ─► parts ─► a batch, all of it taken alike? ─► a run, one entry in flight (`RunsInFlight`)
                                └─ no ──────────────────────────► one message after the other (`Cursor`)
"""

from collections.abc import Callable, Iterable, Iterator, Sequence

from gateway.message import Message
from gateway.store.consumers.cursor import Cursor
from gateway.store.consumers.delivery import HAND_OUT_BYTES_MAX, Delivery, Grant, InFlight
from gateway.store.consumers.runs import Columns, DeliveryRun, FlownRun, columns_of, halves_of
from gateway.store.tables.evicted import EvictedMessage
from gateway.store.tables.log_rows import Gap, LogRow, Part, PublishBatch
from wire.bulk.publishes import Halves, qos_of

RUN_LEAST = 8  # messages in a batch of PUBLISHes; fewer of them are faster one by one

Piece = Delivery | DeliveryRun
"""What the cursor hands out: one message, or many at once."""

_NO_RUNS: dict[int, FlownRun] = {}  # of all consumers that have taken none yet: most devices only publish
_NO_NUMBERS: dict[int, int] = {}


class RunsInFlight(InFlight):
    """Deliveries in flight, and runs. A run is one entry under the packet identifier of its first delivery, until
    ``spread``: the place of the first delivery without an acknowledgement, and the bytes of all of these.
    """

    __slots__ = ("_next", "_runs")

    def __init__(self) -> None:
        super().__init__()
        self._runs = _NO_RUNS
        self._next = _NO_NUMBERS  # the first packet identifier of a run, by the one to be acknowledged next

    def add_run(self, run: DeliveryRun) -> None:
        """Adds a run behind all other deliveries."""
        if self._runs is _NO_RUNS:
            self._runs, self._next = {}, {}
        first = run.packet_identifier
        self.entries[first] = (run.position, run.grant, run.size, run.taken)
        self._runs[first] = run.flown
        self._next[first] = first

    def take_run(self, run: DeliveryRun) -> bool:
        """Removes a run; returns False if it is not here in one piece."""
        first = run.packet_identifier
        if self._runs.get(first) != run.flown or first not in self._next:
            return False
        del self._runs[first], self.entries[first], self._next[first]
        return True

    def take_from_runs(self, packet_identifiers: Sequence[int]) -> tuple[int, int, Sequence[int]]:
        """Removes deliveries from the beginnings of runs.

        Returns how many these are and how many bytes they have, and the packet identifiers of other deliveries, which
        are single ones from now on.
        """
        if not self._runs:
            return 0, 0, packet_identifiers
        found = size = at = 0
        others: list[int] = []
        while at < len(packet_identifiers):
            first = self._next.pop(packet_identifiers[at], None)
            if first is None:
                others.append(packet_identifiers[at])
                at += 1
                continue
            run = self._runs[first]
            position, grant, total, taken = self.entries[first]
            begin = taken - run.taken
            end = min(len(run), begin + len(packet_identifiers) - at)
            count = _count_equal(run.packet_identifiers_of(begin, end), packet_identifiers[at : at + end - begin])
            acknowledged = total if begin + count == len(run) else sum(run.sizes[begin : begin + count])
            size += acknowledged
            if begin + count == len(run):
                del self._runs[first], self.entries[first]
            else:
                self.entries[first] = (position + count, grant, total - acknowledged, taken + count)
                self._next[run.packet_identifiers_of(begin + count, begin + count + 1)[0]] = first
            found += count
            at += count
        if any(one in self._runs or one not in self.entries for one in others):
            self.spread()
        return found, size, others

    def spread(self) -> None:
        """Makes single deliveries of all runs."""
        if not self._runs:
            return
        before, runs = list(self.entries.items()), self._runs
        self._runs, self._next = _NO_RUNS, _NO_NUMBERS
        self.entries.clear()
        for packet_identifier, entry in before:
            if run := runs.get(packet_identifier):
                for index in range(entry[3] - run.taken, len(run)):
                    (number,) = run.packet_identifiers_of(index, index + 1)
                    self.entries[number] = (run.position + index, run.grant, run.sizes[index], run.taken + index)
            else:
                self.entries[packet_identifier] = entry

    def positions(self) -> list[int]:
        found: list[int] = []
        for packet_identifier, (position, *_) in self.entries.items():
            run = self._runs.get(packet_identifier)
            found += range(position, run.last + 1) if run else (position,)
        return found

    def sizes(self) -> list[int]:
        self.spread()
        return super().sizes()

    def place_of(self, packet_identifier: int) -> tuple[int, int]:
        self.spread()
        return super().place_of(packet_identifier)

    def redeliver(self, packet_identifiers: set[int]) -> None:
        self.spread()
        super().redeliver(packet_identifiers)

    def lose(self, messages: dict[int, Message], last: int, note: Callable[[Message], EvictedMessage]) -> None:
        if self._runs and self.oldest <= last:
            self.spread()
        super().lose(messages, last, note)


class RunCursor(Cursor):
    """A cursor with ``fetch_pieces`` besides ``fetch_now``. Runs are acknowledged as pieces, or by packet identifiers.

    A run has messages of one `PublishBatch`, with nothing that sets one of them apart: all of them are taken alike,
    none may expire or may be dropped, no route has handed one on before, no QoS 2 flow has one, and no limit below a
    topic filter counts one. All others are handed out one by one, in their order. Runs of one fetch have
    HAND_OUT_BYTES_MAX bytes at most, and are made of rows in memory alone: so nothing of them is held in between.
    """

    in_flight = RunsInFlight
    flight: RunsInFlight
    _run_bytes_max = HAND_OUT_BYTES_MAX  # of one fetch

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
        return arrived + super().acknowledge_all(others)

    def _note_runs_arrived(self, arrived: int, size: int) -> None:
        if arrived:
            self.tally.note_acknowledged(arrived, size)
            self._tell()
            self._log.changed()

    async def _take_runs(self, limit: int, single_limit: int, run_qos_max: int) -> tuple[list[DeliveryRun], int]:
        """Returns the next runs. If there are none, returns as well how many messages come one by one before a run."""
        if self._looks_at_each:
            return [], single_limit
        limit = min(limit, self.window - self.flight.used(self._taken))
        if limit <= 0 or self.unread_from == self._log.head:
            return [], single_limit
        if not (rows := await self._next_rows(self.unread_from)):
            return [], single_limit
        runs: list[DeliveryRun] = []
        grants: dict[tuple[str, int], Grant | None] = {}
        singles, size_left = 0, self._run_bytes_max
        after = self.unread_from
        for first, part in _parts_behind(rows, after):
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
                run = self._next_run(*alike, begin, end, first + begin)
                if part.size > size_left:
                    run = run.first(max(run.fitting(size_left), not runs))
                if not run:
                    break
                self._hand_out_run(run)
                runs.append(run)
                limit -= len(run)
                size_left -= part.size
                if not limit or len(run) < part.count - begin:
                    break
        return runs, min(max(1, singles), single_limit)

    async def _next_rows(self, after: int) -> Sequence[LogRow]:
        """Returns rows with the next message behind a position, none where each message has to be read by itself."""
        return self._log.rows_in_memory(after)

    def _content(self, batch: PublishBatch) -> Halves | Columns:
        """Returns a batch as it is likely to leave."""
        return columns_of(batch) if batch.bring_identities else halves_of(batch)

    @property
    def _looks_at_each(self) -> bool:
        """Whether no message may be in a run now."""
        counts_each = self.tally.is_walking or self.tally.origins is not None
        return counts_each or self.reason_to_drop is not None or bool(self.flight.waiting)

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
        if grant is None or found or part.may_bring_trails or self._content(part).may_expire:
            return None
        return part, grant

    def _next_run(self, batch: PublishBatch, grant: Grant, begin: int, end: int, position: int) -> DeliveryRun:
        head, dup_up_to = self._dup_up_to
        if dup := position <= head and self._taken < dup_up_to:
            end = min(end, begin + min(head + 1 - position, dup_up_to - self._taken))
        sizes = self._content(batch).sizes[begin:end]
        return DeliveryRun(position, self._taken, self._identifiers, grant, sizes, batch, begin, dup)

    def _hand_out_run(self, run: DeliveryRun) -> None:
        self.flight.add_run(run)
        self._taken += len(run)
        self._read = run.last


def _parts_behind(rows: Iterable[LogRow], after: int) -> Iterator[tuple[int, Part | Gap]]:
    """Yields the parts with messages behind a position, each with that of its first message."""
    for row in rows:
        first = row.first
        for part in row.parts:
            if first + part.count - 1 > after:
                yield first, part
            first += part.count


def _count_equal(expected: list[int], numbers: Sequence[int]) -> int:
    """Returns how many numbers are as expected, from the first one on."""
    if numbers == expected:
        return len(expected)
    return next(index for index, pair in enumerate(zip(expected, numbers, strict=True)) if pair[0] != pair[1])
