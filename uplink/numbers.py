"""The numbers of a link: a route numbers the messages that it hands on, and states what it has numbered.

A message's number is its place among all messages that one cursor has taken. So it has the same number whenever it is
sent again. The messages since the last statement are counted by origin. The store has this count no later than the
cursor's place, so that after a crash no message is counted twice, and none is left out.

A statement is a message of the gateway, which the route hands on like any other. It is stored in one transaction with
the note that it was made. docs/reference/link-numbers.md has the format.
"""

import asyncio
import contextlib
import logging
import sqlite3
import time
from collections import deque
from collections.abc import Container, Iterable, Iterator, Sequence

from gateway.routes import (
    Cursor,
    Delivery,
    DeliveryRun,
    DroppedRow,
    Handed,
    Message,
    MessageLog,
    Numbering,
    Piece,
    Signal,
    Work,
)
from wire.bulk.property_block import encode_via_property, encode_vias
from wire.identity import SEQ_MAX
from wire.link_numbers import (
    STATEMENT_TOPICS,
    STATEMENT_TYPE,
    DroppedRange,
    Share,
    Statement,
    decode_via,
    encode_statement,
    encode_via,
    join_runs,
    runs_of,
    statement_topic,
)
from wire.properties import CONTENT_TYPE

ORIGINS_MOST = 200  # in a statement, roughly: with so many the next one is due
ORIGINS_KEPT_MOST = 1000  # while no statement can be made; with more of them the numbers so far stay without one
RANGES_MOST = 200  # in a statement
STATEMENTS_KNOWN = 1000  # statements in flight, whose answers are told from those of other messages

logger = logging.getLogger(__name__)


class LinkNumbers:
    """The numbers of the messages that one cursor hands out, and the statements of them.

    Args:
        gateway_name, link_name: the gateway, and the route as its receivers are to name it.
        log: the gateway's store.
        cursor: hands out the messages.

    ``is_open`` says whether messages get numbers over the connection that the route has now. ``interval_s`` is the time
    between two statements in seconds; with 0 none are made. ``topic`` is their topic name.
    """

    def __init__(self, gateway_name: str, link_name: str, log: MessageLog, cursor: Cursor) -> None:
        self.is_open = False
        self.interval_s = 0
        self.topic = statement_topic(gateway_name, link_name)
        self._names = (gateway_name, link_name)
        self._log = log
        self._cursor = cursor
        self._consumer = cursor.consumer
        self._before = self._behind = ""  # a number in hf-via
        self._has_news: bool | None = None  # other messages than statements; None: not known since the start
        self._is_due = Signal()
        self._sent: deque[tuple[int, str]] = deque(maxlen=STATEMENTS_KNOWN)  # positions and topics of statements
        self._is_unwanted = False

    @property
    def _now(self) -> Numbering:
        return self._log.routes.numbering_of(self._consumer)

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
        if not self._log.routes.numbers_on(self._consumer, basis):
            await self._log.submit([self._log.routes.begin_numbering(self._consumer, basis, self._cursor.count)])
        now = self._now
        if bool(self.interval_s) != now.states:
            now.states, now.handed = bool(self.interval_s), {}
            now.said = now.counted = self._cursor.count
            await self._log.submit(self.save())
        if self._has_news is None:
            self._has_news = bool(now.handed)
        self._before, self._behind = encode_via(now.epoch, [(SEQ_MAX, SEQ_MAX)], *self._names).split(str(SEQ_MAX), 1)
        self._log.save_with(self._consumer, self.save if now.states else None)
        self.is_open = True

    def end(self) -> None:
        """Ends the epoch, with the next commit: other messages would get numbers that were given before."""
        self.is_open = False
        self._log.save_with(self._consumer, None)
        if (work := self._log.routes.end_numbering(self._consumer)) is not None:
            self._log.defer(work)

    def via(self, number: int) -> str:
        """Returns `hf-via` of the message with a number, empty if messages get none now, or for the number 0."""
        return f"{self._before}{number}{self._behind}" if self.is_open and number else ""

    def vias(self, numbers: Sequence[int]) -> list[bytes]:
        """Returns the property `hf-via` of messages with these numbers, as bytes."""
        return encode_vias(self._now.epoch, numbers, *self._names)

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
        """Messages with their numbers, in order, are about to be sent; those that go for the first time count."""
        now = self._now
        if not self.is_stating:
            return
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
        if len(handed) >= ORIGINS_KEPT_MOST:
            now.said, now.handed = counted, {}
        elif len(handed) >= ORIGINS_MOST:
            self._is_due.set()

    @property
    def is_stating(self) -> bool:
        """Whether there are statements of the messages that are sent now."""
        return self.is_open and self.interval_s > 0

    def save(self) -> list[Work]:
        """Returns the work that writes the numbers as they are now, if there are statements of them."""
        return [self._log.routes.save_numbering(self._consumer)] if self._now.epoch else []

    def note_statements(self, deliveries: Iterable[Delivery]) -> None:
        """Notes which of these are statements; these may be of former settings, or of other routes and gateways."""
        self._sent += [(one.position, one.message.topic) for one in deliveries if is_statement_topic(one.message.topic)]

    def is_statement(self, position: int, *, is_own: bool) -> bool:
        """Whether the message at a position is a statement: one of this route, or any."""
        return any(at == position and (not is_own or topic == self.topic) for at, topic in self._sent)

    def note_refused(self, reason: str) -> None:
        """The broker refuses a statement: none is made until the next connection. Messages go on."""
        self._is_unwanted = True
        logger.warning("route %s: %s; it makes no more statements over this connection", self._names[1], reason)

    async def run(self) -> None:
        """Makes a statement now and after each interval if there is news, for ever."""
        self._is_unwanted = False
        while self.is_open and self.interval_s and not self._is_unwanted:
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
        """Stores a statement of what has happened since the last one, or several; none without news.

        Raises sqlite3.Error: none was stored.
        """
        now, now_ms = self._now, int(time.time() * 1000)
        await self._log.submit([])  # the ranges that were noted so far are in the table then
        since_ms = now.said_ms if now.said_ms <= now_ms else 0  # the clock was set back
        dropped, until_ms = await self._log.read_dropped(self._consumer, since_ms, now_ms)
        if not (self._has_news or dropped):
            return
        before = now.statements, now.said, now.said_ms, now.handed
        messages = [self._message(statement, now_ms) for statement in self._new_statements(dropped)]
        now.said, now.said_ms, now.handed, self._has_news = now.counted, until_ms, {}, False
        try:
            await self._log.submit([*messages, *self.save()])
        except sqlite3.Error:
            later, self._has_news = now.handed, True
            now.statements, now.said, now.said_ms, now.handed = before
            for origin, more in later.items():
                had = now.handed.setdefault(origin, Handed(0, more.first, more.last))
                had.messages += more.messages
                had.first, had.last = min(had.first, more.first), max(had.last, more.last)
            raise

    def _new_statements(self, dropped: Sequence[DroppedRow]) -> Iterator[Statement]:
        """Yields the first statement with all numbers since the last one, and others with further ranges."""
        now = self._now
        shares = [Share(*key, had.last, had.messages, had.first, had.last) for key, had in now.handed.items()]
        ranges = [DroppedRange(*row) for row in dropped]
        refused = self._refused()
        first = now.said + 1
        for at in range(0, max(1, len(ranges)), RANGES_MOST):
            now.statements += 1
            about = (*self._names, now.epoch, now.statements)
            yield Statement(*about, first, now.counted, shares, ranges[at : at + RANGES_MOST], refused)
            first, shares, refused = now.counted + 1, [], []

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
        via: that of the batch, empty if it has none.
        positions: those of all its messages, in order.
        chosen: the positions of those in the part.
    """
    if not via:
        return ""
    epoch, runs, gateway, route = decode_via(via)
    numbers = (number for first, last in runs for number in range(first, last + 1))
    runs = runs_of(number for number, position in zip(numbers, positions, strict=True) if position in chosen)
    return encode_via(epoch, runs, gateway, route)
