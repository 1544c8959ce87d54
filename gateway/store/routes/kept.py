"""What routes keep: messages that the next broker has acknowledged, and that no receipt has proved to be in the tables.

A route that keeps has one more place in the log, behind which nothing is deleted. It moves past messages that are
*settled*: what a receipt says of them is final [docs/reference/receipts.md]. What the route did not hand on it does not
keep either (`Unsent`). A nearly full store takes back what is
kept, the oldest first, and each message that was not settled leaves a range ``unproven``. So nothing new is refused for
what is kept, and nothing that waits for a consumer is dropped for it.
"""

import asyncio
import logging
import sqlite3
from collections.abc import AsyncGenerator, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

from gateway.loop.pace import Slice
from gateway.message import Message
from gateway.store.consumer_names import BACKFILL, KEPT
from gateway.store.consumers.registry import Consumers
from gateway.store.routes.unsent import Unsent
from gateway.store.tables import cursors
from gateway.store.tables.cursors import Place
from gateway.store.tables.drops import UNPROVEN
from gateway.store.tables.log_rows import Gap, LogRow, Part, PublishBatch, Work
from wire.bulk.publishes import cut_columns

GIVE_UP_MOST = 1000  # messages whose ranges are written in one transaction
ROOM_PART = 8  # the part of what is kept that a full store takes back at a time
ROOM_LEAST = 10_000  # positions taken back at a time

logger = logging.getLogger(__name__)


class Claims(Protocol):
    """What decides which messages a route keeps. ``acknowledged`` is the position up to which all are acknowledged."""

    @property
    def acknowledged(self) -> int: ...

    def hands_on(self, topic: str, part: Part, /) -> bool:
        """Whether the route hands on messages of a topic."""

    def settled_up_to(self, origin: str, epoch: int, seq: int, /) -> int:
        """Returns the last of the numbers from ``seq`` on that are all settled; ``seq - 1`` if the first is not."""


class Log(Protocol):
    """What this asks of the log."""

    head: int

    async def read_rows(self, after: int, /) -> list[LogRow]: ...

    def submit(self, works: Sequence[Work], /) -> asyncio.Future[list[Any]]: ...

    def defer(self, work: Work, /) -> None: ...

    def drop(self, reason: str, consumer: str, message: Message, /) -> None: ...

    def changed(self) -> None: ...


class Stretch(NamedTuple):
    """Messages at consecutive positions with consecutive numbers of one origin's epoch.

    ``begin`` is the index of the first one in its part.
    """

    position: int
    messages: int
    origin: str
    epoch: int
    seq: int
    part: Part
    begin: int

    @property
    def end(self) -> int:
        """The position of the last message."""
        return self.position + self.messages - 1

    @property
    def last(self) -> int:
        """The number of the last message."""
        return self.seq + self.messages - 1

    def between(self, first: int, last: int) -> "Stretch":
        """Returns the stretch of the messages between two positions; it has none if these are elsewhere."""
        if first <= self.position and self.end <= last:
            return self
        skip = max(0, first - self.position)
        messages = min(self.end, last) - self.position - skip + 1
        return self._replace(
            position=self.position + skip, messages=messages, seq=self.seq + skip, begin=self.begin + skip
        )


class Kept:
    """What one route keeps: the messages behind ``position``.

    Args:
        log: the log.
        consumer: the name of the route's cursor.
        position: up to which the route keeps nothing.
        unsent: what it did not hand on behind that.

    ``claims`` decides which messages stay, once the route is there.
    """

    def __init__(self, log: Log, consumer: str, position: int, unsent: Unsent) -> None:
        self.position = position
        self.unsent = unsent
        self.claims: Claims | None = None
        self._log = log
        self._consumer = consumer
        self._moving = asyncio.Lock()

    @property
    def positions(self) -> int:
        """How many positions hold what is kept, or was."""
        return 0 if self.claims is None else max(0, self.claims.acknowledged - self.position)

    def evict(self, position: int) -> None:
        """The log has dropped the messages up to a position."""
        self.position = max(self.position, position)

    async def pass_settled(self, up_to: int) -> int:
        """Moves on past settled messages, and past ones that the route does not hand on, at most up to a position.

        Returns how many messages of the route were settled. Raises sqlite3.Error.
        """
        passed, claims = 0, self.claims
        if claims is None or up_to <= self.position:
            return 0
        async with self._moving:
            before, reached = self.position, self.position
            async for stretch in self._stretches(before, up_to):
                last = claims.settled_up_to(stretch.origin, stretch.epoch, stretch.seq)
                settled = min(stretch.last, last) - stretch.seq + 1
                passed += settled
                reached = stretch.position + settled - 1
                if settled < stretch.messages:
                    break
            else:
                reached = up_to
            self._move_to(reached)
            if self.position > before:
                for work in self._save():
                    self._log.defer(work)
                self._log.changed()
        return passed

    async def unsettled(self, after: int, up_to: int) -> AsyncGenerator[tuple[int, Message]]:
        """Yields the messages between two positions that the route hands on and that are not settled, with their
        positions. Raises sqlite3.Error.
        """
        claims = self.claims
        async for stretch in self._stretches(after, up_to):
            index = 0
            while claims is not None and index < stretch.messages:
                settled = claims.settled_up_to(stretch.origin, stretch.epoch, stretch.seq + index)
                index = settled - stretch.seq + 1
                if index < stretch.messages:
                    yield stretch.position + index, stretch.part.messages()[stretch.begin + index]
                index += 1

    async def last_stretch(self, after: int, up_to: int) -> Stretch | None:
        """Returns the last messages between two positions that the route hands on. Raises sqlite3.Error."""
        found: Stretch | None = None
        async for one in self._stretches(after, up_to):
            found = one
        return found

    async def give_up(self, up_to: int) -> int:
        """Keeps nothing up to a position any more; messages that are not settled leave ranges ``unproven``.

        Returns how many these are. Raises sqlite3.Error.
        """
        given_up = 0
        async with self._moving:
            some: list[tuple[int, Message]] = []
            async for one in self.unsettled(self.position, up_to):
                some.append(one)
                if len(some) == GIVE_UP_MOST:
                    await self._give_up(some, one[0])
                    given_up += len(some)
                    some = []
            if up_to > self.position:
                await self._give_up(some, up_to)
        return given_up + len(some)

    async def _give_up(self, some: list[tuple[int, Message]], up_to: int) -> None:
        """The ranges and the place are in one transaction."""
        for position, message in some:
            if position > self.position:  # the log has not evicted it meanwhile
                self._log.drop(UNPROVEN, self._consumer, message)
        self._move_to(up_to)
        await self._log.submit(self._save())
        self._log.changed()

    def _move_to(self, position: int) -> None:
        self.position = max(self.position, position)

    def _save(self) -> list[Work]:
        return [cursors.save(KEPT + self._consumer, self.position), *self.unsent.forget(self.position)]

    async def _stretches(self, after: int, up_to: int) -> AsyncGenerator[Stretch]:
        """Yields what the route hands on of the messages between two positions, in order."""
        slice_ = Slice()
        while after < up_to and (rows := await self._log.read_rows(after)):
            for row in rows:
                position = row.first
                for part in row.parts:
                    if position + part.count - 1 > after and position <= up_to and not isinstance(part, Gap):
                        for stretch in self._stretches_in(position, part):
                            rest = stretch.between(after + 1, up_to)
                            if rest.messages > 0 and self.unsent:
                                for first, last in self.unsent.sent_between(rest.position, rest.end):
                                    yield rest.between(first, last)
                            elif rest.messages > 0:
                                yield rest
                    position += part.count
                    if slice_.is_over:
                        await slice_.give_way()
                after = max(after, row.last)

    def _stretches_in(self, first: int, part: Part) -> Iterator[Stretch]:
        """Yields the messages of a part that the route hands on and that have an identity."""
        claims = self.claims
        if claims is None:
            return
        wanted = {topic for topic in part.topics if claims.hands_on(topic, part)}
        if not wanted:
            return
        if isinstance(part, Message):
            if part.origin:
                yield Stretch(first, 1, part.origin, part.epoch, part.seq, part, 0)
        elif len(wanted) == len(part.topics):
            yield from _stretches_of_batch(first, part)
        else:
            for index, message in enumerate(part.messages()):
                if message.topic in wanted and message.origin:
                    yield Stretch(first + index, 1, message.origin, message.epoch, message.seq, part, index)


class KeptPlaces:
    """What all routes keep.

    Args:
        log: the log.
        saved: the places as they are in the file.
        unsent: what the file has of messages that were not handed on, by consumer, as bits by chunk.
        consumers: save the places of the routes' cursors, and keep the messages.
    """

    def __init__(
        self, log: Log, saved: dict[str, Place], unsent: dict[str, dict[int, int]], consumers: Consumers
    ) -> None:
        self._log = log
        self._unsent = unsent
        self._consumers = consumers
        self._kept: dict[str, Kept] = {}
        self._making_room: asyncio.Task[None] | None = None
        for name, (position, _) in saved.items():
            if name.startswith(KEPT):
                self._add(name.removeprefix(KEPT), position)

    def begin(self, consumer: str, position: int) -> Kept:
        """Returns what a route keeps. A route that did not keep begins behind a position, with the next commit."""
        if consumer not in self._kept:
            self._log.defer(cursors.save(KEPT + consumer, position))
            self._add(consumer, position)
        return self._kept[consumer]

    def end(self, consumer: str) -> None:
        """A route keeps nothing any more."""
        if kept := self._kept.pop(consumer, None):
            self._consumers.keepers.keep_softly_no_longer(kept)
            for place in (consumer, BACKFILL + consumer):
                self._consumers.save_with(place, KEPT, None)
            for work in (cursors.remove(KEPT + consumer), *kept.unsent.forget_all()):
                self._log.defer(work)

    def note_unsent(self, consumer: str, positions: Iterable[int]) -> None:
        """The cursor of a route came past messages for good without handing them on; durable with its place."""
        if (kept := self._kept.get(consumer)) is not None:
            kept.unsent.add(one for one in positions if one > kept.position)

    def make_room(self) -> None:
        """The store is nearly full: begins to give up the oldest part of what is kept, unless that is under way."""
        if self._kept and (self._making_room is None or self._making_room.done()):
            self._making_room = asyncio.get_running_loop().create_task(self._make_room())

    async def give_way(self) -> bool:
        """Gives up the oldest part of what is kept; returns whether anything was kept. Raises sqlite3.Error."""
        kept = [one for one in self._kept.values() if one.positions]
        oldest = min(kept, key=lambda one: one.position, default=None)
        if oldest is None:
            return False
        await oldest.give_up(oldest.position + min(oldest.positions, max(ROOM_LEAST, oldest.positions // ROOM_PART)))
        return True

    async def close(self) -> None:
        """Returns when nothing is given up any more."""
        if self._making_room is not None:
            await self._making_room

    async def _make_room(self) -> None:
        try:
            await self.give_way()
        except sqlite3.Error as error:
            logger.error("what routes keep cannot make room: %s", error)

    def _add(self, consumer: str, position: int) -> None:
        unsent = Unsent(consumer, self._unsent.pop(consumer, {}))
        self._kept[consumer] = kept = Kept(self._log, consumer, position, unsent)
        self._consumers.keepers.keep_softly(kept)
        for place in (consumer, BACKFILL + consumer):
            self._consumers.save_with(place, KEPT, lambda: unsent.works(self._consumers.failed_saves))


def _stretches_of_batch(first: int, batch: PublishBatch) -> Iterator[Stretch]:
    if not batch.bring_identities:
        yield Stretch(first, batch.count, batch.gateway, batch.epoch, batch.first_seq, batch, 0)
        return
    begin, count = 0, 0
    origin, epoch, seq = "", 0, 0
    for index, identity in enumerate(cut_columns(batch.packets, batch.level)[2]):
        if count and identity == (origin, epoch, seq + count):
            count += 1
            continue
        if count:
            yield Stretch(first + begin, count, origin, epoch, seq, batch, begin)
        (origin, epoch, seq), begin, count = identity, index, 1
    if count:
        yield Stretch(first + begin, count, origin, epoch, seq, batch, begin)
