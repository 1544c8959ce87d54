"""Route numbers: a route numbers the messages that it hands on, and states what it has numbered.

A message's number is its place among all messages that one cursor has taken. So it has the same number whenever it is
sent again. Each lane of a route has a cursor, and numbers of its own under an epoch of its own. The messages since the
last statement are counted by origin. The store has this count no later than the cursor's place, so that after a crash
no message is counted twice, and none is left out.

A statement covers what is acknowledged: such messages do not go again, perhaps over the other lane. It is a message of
the gateway, which the route hands on like any other. It is stored in one transaction with the note that it was made.
docs/reference/route-numbers.md has the format.
"""

import asyncio
import contextlib
import logging
import sqlite3
import time
from collections.abc import Awaitable, Callable, Container, Iterable, Iterator, Sequence

from gateway.routes import Message, Signal
from gateway.store import DeliveryRun, Handed, LaneCursor, LeftOut, MessageLog, Numbering, Piece, Work, drops
from wire.bulk.property_block import encode_via_property, encode_vias
from wire.bulk.publish_run import FirstVia
from wire.identity import SEQ_MAX
from wire.properties import CONTENT_TYPE
from wire.route_numbers import (
    STATEMENT_TOPICS,
    STATEMENT_TYPE,
    DroppedRange,
    HandedOn,
    LeftOutRuns,
    Statement,
    decode_via,
    encode_statement,
    encode_via,
    statement_topic,
)
from wire.runs import join_runs, runs_of

ORIGINS_MOST = 200  # in a statement, roughly: with this number the next one is due
ORIGINS_KEPT_MOST = 1000  # while no statement can be made; with more of them the numbers so far stay without one
RANGES_MOST = 200  # in a statement
RUNS_MOST = 1000  # of messages that were left out, in a statement; with this number the next one is due
LOOK_AGAIN_S = 5.0  # at what is acknowledged: some deliveries end without an acknowledgement

logger = logging.getLogger(__name__)


class RouteNumbers:
    """The numbers of the messages that the cursor of one lane hands out, and the statements of them.

    Args:
        gateway_name, route_name: the gateway, and the route as its receivers are to name it.
        log: the gateway's store.
        cursor: hands out the messages of the lane.
        has_backfill: whether the route has a backfill with messages that no statement covers yet.
        left_out: what the route leaves out, which the statements of the live lane name.

    ``is_open`` says whether messages get numbers over the connection that the route has now. ``interval_s`` is the time
    between two statements in seconds; with 0 none are made. ``topic`` is their topic name.
    """

    def __init__(
        self,
        gateway_name: str,
        route_name: str,
        log: MessageLog,
        cursor: LaneCursor,
        has_backfill: Callable[[], bool],
        left_out: LeftOut,
    ) -> None:
        self.is_open = False
        self.interval_s = 0
        self.topic = statement_topic(gateway_name, route_name)
        self._names = (gateway_name, route_name)
        self._log = log
        self._cursor = cursor
        self._consumer, self._place = cursor.consumer, cursor.place
        self._has_backfill = has_backfill
        self._before = self._behind = ""  # a number in hf-via
        # Whether there are other messages than statements: among the due ones, and behind them.
        self._has_due_news = self._has_news = True  # not known at the start
        self._is_due, self._is_acknowledged = Signal(), Signal()
        self._is_asked = False
        self._left_out = None if cursor.is_backfill else left_out
        self._left_out_due = RUNS_MOST
        self._unseen: tuple[int, int] | None = None  # positions between which messages may have been left out
        if self._left_out is not None and (had := log.routes.numbering_of(cursor.place)) is not None:
            self._left_out.give_back(had.left_out)
            self._left_out.give_back(had.left_out_ahead, log.head)

    def change_settings(self, interval_s: int, destination: str) -> None:
        """Makes statements at another interval from now on, 0: none. The route sends to a destination."""
        self.interval_s = interval_s
        if self._left_out is not None:
            self._left_out.destination = destination
            if interval_s and not self._left_out.is_on:
                self._unseen = self._cursor.position, self._log.head
            self._left_out.is_on = interval_s > 0
            if interval_s and self._consumer in self._log.routes.names():
                if self._log.routes.numbering_of(self._place) is None:  # what is left out before the first connection
                    self._log.defer(self._log.routes.begin_numbering(self._place, "", self._cursor.count))
                self._log.consumers.save_with(self._place, "numbers", self.save)

    def forget_ahead(self) -> None:
        """The route takes other messages than before, also among the waiting ones: what it leaves out is found anew."""
        if self._left_out is not None:
            self._left_out.forget_ahead()
            self._unseen = self._cursor.position, self._log.head

    @property
    def _now(self) -> Numbering:
        now = self._log.routes.numbering_of(self._place)
        assert now is not None
        return now

    async def begin(self, basis: str | None) -> None:
        """A connection begins. Returns once it is durable how its messages are numbered. Raises sqlite3.Error.

        Args:
            basis: says which messages the cursor takes; with another one than before an epoch begins. None: messages
                get no numbers over this connection, and the epoch ends.
        """
        self.is_open = False
        if basis is None:
            self.end()
            await self._log.submit([])
            return
        if not self._log.routes.numbers_on(self._place, basis):
            await self._log.submit([self._log.routes.begin_numbering(self._place, basis, self._cursor.count)])
        now = self._now
        if bool(self.interval_s) != now.states:
            now.states, now.due, now.handed = bool(self.interval_s), {}, {}
            now.said = now.due_to = now.counted = self._cursor.count
            await self._log.submit(self.save())
        self._has_due_news, self._has_news = self._has_due_news and bool(now.due), self._has_news and bool(now.handed)
        self._before, self._behind = encode_via(now.epoch, [(SEQ_MAX, SEQ_MAX)], *self._names).split(str(SEQ_MAX), 1)
        self._log.consumers.save_with(self._place, "numbers", self.save if now.states else None)
        self.is_open = True

    def end(self) -> None:
        """Ends the epoch, with the next commit: other messages would get numbers that were given before."""
        self.is_open = False
        self._log.consumers.save_with(self._place, "numbers", None)
        if (work := self._log.routes.end_numbering(self._place)) is not None:
            self._log.defer(work)

    async def finish(self, basis: str) -> None:
        """Ends the epoch, as messages that may have its numbers are to go over the other lane. A statement covers what
        was sent so far, or before the last one became due, if all of that is acknowledged. Raises sqlite3.Error.
        """
        if self.interval_s and self._log.routes.numbers_on(self._place, basis):
            now, count = self._now, self._cursor.count
            if now.states and count >= now.counted:
                self._make_due()
            if now.due and count >= now.due_to:
                await self._state_due()
        self.end()

    def via(self, number: int) -> str:
        """Returns `hf-via` of the message with a number, empty if messages get none now, or for the number 0."""
        return f"{self._before}{number}{self._behind}" if self.is_open and number else ""

    def vias(self, numbers: Sequence[int]) -> list[bytes]:
        """Returns the property `hf-via` of messages with these numbers, as bytes."""
        return encode_vias(self._now.epoch, numbers, *self._names)

    def via_from(self, number: int) -> FirstVia | None:
        """Returns the route number that a run of messages begins with, None if messages get none now."""
        return FirstVia(self._now.epoch, number, *self._names) if self.is_open else None

    def via_of_batch(self, pieces: Sequence[Piece]) -> str:
        """Returns `hf-via` of a batch with these messages, which are in order; empty if messages get no numbers now."""
        if not self.is_open:
            return ""
        runs = join_runs((piece.number, piece.last_number) for piece in pieces)
        return encode_via(self._now.epoch, runs, *self._names)

    def longest_property(self) -> int:
        """Returns the bytes of the longest property `hf-via` of messages that follow each other."""
        longest = encode_via(self._now.epoch, [(SEQ_MAX - 1, SEQ_MAX)], *self._names) if self.is_open else ""
        return len(encode_via_property(longest))

    def count(self, messages: Iterable[tuple[Message, int]]) -> None:
        """Messages with their numbers, in order, are about to be sent; a message counts when it goes for the first
        time."""
        if not self.is_stating:
            return
        now = self._now
        counted, handed = now.counted, now.handed
        for message, number in messages:
            if number > counted:
                counted, seq = number, message.seq
                found = handed.get((message.origin, message.epoch))
                if found is None:
                    handed[message.origin, message.epoch] = Handed(1, seq, seq)
                else:
                    found.messages += 1
                    if seq > found.last:
                        found.last = seq
                    elif seq < found.first:
                        found.first = seq
                self._has_news = self._has_news or not is_statement_topic(message.topic)
        now.counted = counted
        if len(now.due) + len(handed) >= ORIGINS_KEPT_MOST:
            now.said, now.due_to, now.due, now.handed = counted, counted, {}, {}
        elif len(handed) >= ORIGINS_MOST:
            self._is_due.set()
        if self._left_out is not None and self._left_out.count >= self._left_out_due:
            self._left_out_due = self._left_out.count + RUNS_MOST
            self._is_due.set()

    @property
    def is_stating(self) -> bool:
        """Whether there are statements of the messages that are sent now."""
        return self.is_open and self.interval_s > 0

    @property
    def is_said(self) -> bool:
        """Whether every sent message is covered by a statement; True if statements are off."""
        now = self._log.routes.numbering_of(self._place)
        if not self.interval_s or now is None:
            return True
        return not ((self._has_due_news and now.due) or (self._has_news and now.handed))

    def save(self) -> list[Work]:
        """Returns the work that writes the numbers as they are now."""
        if self._left_out is not None:
            self._now.left_out, self._now.left_out_ahead = self._left_out.come_past(), self._left_out.ahead()
        return [self._log.routes.save_numberings(self._consumer)]

    def ask(self) -> None:
        """Has a statement made soon, also without news."""
        self._is_asked = True
        self._is_due.set()

    def note_acknowledged(self) -> None:
        """The broker has acknowledged messages."""
        self._is_acknowledged.set()

    async def _look_through(self) -> None:
        """Finds what the route leaves out among the messages that were stored before it noted that."""
        while self._left_out is not None and (unseen := self._unseen) is not None:
            after, upto = unseen
            try:
                async with contextlib.aclosing(
                    self._left_out.look_through(self._log, max(after, self._log.gone), upto)
                ) as looked:
                    async for position in looked:
                        if self._unseen is not unseen:
                            break  # the route takes other messages now
                        unseen = self._unseen = position, upto  # a connection that ends here goes on there
            except sqlite3.Error as error:
                logger.warning("route %s: what it leaves out is not known: %s", self._names[1], error)
            if self._unseen is unseen:
                self._unseen = None

    async def run(self, wait_for: Callable[[str], Awaitable[None]]) -> None:
        """Makes a statement now and after each interval if there is news, for ever.

        ``wait_for`` returns when the broker may take statements of a topic.
        """
        await self._look_through()
        while self.is_stating:
            await wait_for(self.topic)
            self._is_due.clear()
            try:
                await self.state()
            except sqlite3.Error as error:  # the next statement covers what this one would have
                logger.warning("route %s: no statement could be made: %s", self._names[1], error)
                await asyncio.sleep(self.interval_s)
                continue
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self.interval_s):
                    await self._is_due.wait()
        await asyncio.get_running_loop().create_future()

    async def state(self) -> None:
        """Stores a statement of what was sent since the last one, once all of it is acknowledged, or several; none
        without news.

        Raises sqlite3.Error: none was stored.
        """
        self._make_due()
        while self.is_open and self._cursor.count < self._now.due_to:
            self._is_acknowledged.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_AGAIN_S):
                    await self._is_acknowledged.wait()
        if self.is_open:
            await self._state_due()

    def _make_due(self) -> None:
        """Has the next statement cover all that was sent so far."""
        now = self._now
        for origin, more in now.handed.items():
            if (had := now.due.get(origin)) is None:
                now.due[origin] = more
            else:
                had.take_in(more)
        now.due_to, now.handed = now.counted, {}
        self._has_due_news, self._has_news = self._has_due_news or self._has_news, False

    async def _state_due(self) -> None:
        now, now_ms = self._now, int(time.time() * 1000)
        self._log.save_place(self._cursor)  # what is before it cannot come again, and so may be named as left out
        await self._log.submit([])  # the ranges that were noted so far are in the table then
        since_ms = now.said_ms if now.said_ms <= now_ms else 0  # the clock was set back
        dropped: list[drops.DroppedRow] = []
        until_ms = now_ms
        if not self._cursor.is_backfill:  # the ranges of a route are in the statements of its other lane
            dropped, until_ms = await self._log.reader.read_dropped(self._consumer, since_ms, now_ms)
        left = self._left_out if self._left_out is not None and self._left_out.is_on else None
        if not (self._is_asked or self._has_due_news or dropped or (left is not None and left.has_news)):
            return
        self._is_asked = False
        before = now.statements, now.said, now.said_ms, now.due
        now.said, now.said_ms, now.due, self._has_due_news = now.due_to, until_ms, {}, False
        left_out = left.take(RUNS_MOST) if left is not None else {}
        statements = self._new_statements(now, before[1] + 1, before[3], dropped, left_out)
        messages = [self._message(one, now_ms) for one in statements]
        try:
            await self._log.submit([*messages, *self.save()])
        except sqlite3.Error:
            now.statements, now.said, now.said_ms, now.due = before
            self._has_due_news = True
            if left is not None:
                left.give_back(left_out)
            raise
        if left is not None:
            self._left_out_due = left.count + RUNS_MOST
            if left.has_news and left_out:
                self._is_due.set()

    def _new_statements(
        self,
        now: Numbering,
        first: int,
        handed: dict[tuple[str, int], Handed],
        dropped: Sequence[drops.DroppedRow],
        left_out: dict[tuple[str, int], list[tuple[int, int]]],
    ) -> Iterator[Statement]:
        """Yields the first statement with all numbers since the last one, and others with further ranges."""
        has_backfill = self._has_backfill()
        origins = [HandedOn(*key, had.last, had.messages, had.first, had.last) for key, had in handed.items()]
        ranges = [DroppedRange(*row) for row in dropped]
        left = [LeftOutRuns(*key, runs) for key, runs in left_out.items()]
        refused = self._refused()
        for at in range(0, max(1, len(ranges)), RANGES_MOST):
            now.statements += 1
            about = (*self._names, now.epoch, now.statements)
            some = ranges[at : at + RANGES_MOST]
            yield Statement(*about, first, now.said, origins, some, refused, has_backfill, left)
            first, origins, left = now.said + 1, [], []

    def _refused(self) -> list[tuple[int, int]]:
        """Returns the numbers of the messages that are set aside."""
        vias = [decode_via(one.row.via) for one in self._log.refused.of(self._consumer) if one.row.via]
        mine = [
            via.runs[0][0] for via in vias if (via.epoch, via.gateway, via.route) == (self._now.epoch, *self._names)
        ]
        return runs_of(sorted(mine))

    def _message(self, statement: Statement, now_ms: int) -> Message:
        return Message(
            self.topic,
            encode_statement(statement),
            properties={CONTENT_TYPE: STATEMENT_TYPE},
            received_ms=now_ms,
            received_by=self._names[0],
        )


def is_statement_topic(topic: str) -> bool:
    """Whether statements are published to this topic."""
    return topic.startswith(STATEMENT_TOPICS)


def numbered(pieces: Iterable[Piece]) -> Iterator[tuple[Message, int]]:
    """Yields messages that were handed out, each with its number."""
    for piece in pieces:
        if isinstance(piece, DeliveryRun):
            yield from zip(piece.messages(), range(piece.number, piece.last_number + 1), strict=True)
        else:
            yield piece.message, piece.number


def part_of_via(via: str, positions: Iterable[int], chosen: Container[int]) -> str:
    """Returns `hf-via` of a part of a batch.

    Args:
        via: the batch's `hf-via`, empty if it has none.
        positions: the positions of all its messages, in order.
        chosen: the positions of those in the part.
    """
    if not via:
        return ""
    epoch, runs, gateway, route = decode_via(via)
    numbers = (number for first, last in runs for number in range(first, last + 1))
    runs = runs_of(number for number, position in zip(numbers, positions, strict=True) if position in chosen)
    return encode_via(epoch, runs, gateway, route)
