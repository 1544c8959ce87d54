"""Drops the oldest messages of a full store, though consumers still need them; each such consumer gets a range."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Any, Protocol

from gateway.counters import Counters
from gateway.loop.pace import Slice, in_slices
from gateway.message import Message
from gateway.store.consumers.audience import Audience
from gateway.store.consumers.cursor import Cursor
from gateway.store.consumers.registry import Consumers, topics_by_cursor
from gateway.store.maintenance import Maintenance
from gateway.store.routes.kept import KeptPlaces
from gateway.store.seen import Seen
from gateway.store.tables.drops import EVICTED, GATEWAY
from gateway.store.tables.evicted import EvictedInFlight, EvictedMessage
from gateway.store.tables.log_rows import Work

EVICT_PIECE = 1000  # messages; between two pieces the event loop runs
EVICT_CURSORS = 20  # a piece is a half, a third, … with 20, 40, … cursors: each may get a range of each message
EVICT_LEAST_BYTES = 64 * 1024  # freed by one eviction, as each costs a sync
PASS_AT_ONCE = 100  # cursors that lose messages together; beyond it other tasks run in between
WRITTEN_AT_ONCE = 1000  # of these, in one commit, so that no publisher waits long behind it


class Evictable(Protocol):
    """The log, as far as messages are evicted from it. ``MessageLog`` is one."""

    counters: Counters
    consumers: Consumers
    audience: Audience[Cursor]
    seen: Seen
    kept: KeptPlaces

    @property
    def head(self) -> int: ...

    async def read(self, after: int, limit: int, /) -> list[tuple[int, Message]]: ...

    def submit(self, works: Sequence[Work], /) -> Awaitable[list[Any]]: ...

    def defer(self, work: Work, /) -> None: ...

    def drop(self, reason: str, consumer: str, message: Message, /) -> None: ...


class Eviction:
    """Makes room in the log.

    Args:
        log: the log.
        maintenance: writes the ranges, and the places that belong to them.
        last_row: the lowest number of a row of messages that were evicted in flight.

    ``count`` says, since the start, how often messages were dropped that a consumer still needed.
    """

    def __init__(self, log: Evictable, maintenance: Maintenance, last_row: int) -> None:
        self.count = 0
        self._log = log
        self._maintenance = maintenance
        self._last_row = last_row

    def lose(self, consumer: str, message: Message) -> EvictedMessage:
        """Notes that a message in flight was evicted; the caller tells the result how that delivery ends."""
        row = self._new_row(consumer)
        evicted = row.add(message)
        row.save()
        return evicted

    async def evict(self, count: int, size: int) -> bool:
        """Drops the oldest messages that consumers still need, and notes ranges. What can be trimmed goes first, and
        before it what routes keep although it is acknowledged.

        Args:
            count: least number of messages to drop.
            size: bytes of the file to free; how much the messages take there is estimated.

        Returns:
            Whether there was anything to drop.

        Raises:
            sqlite3.Error: the log cannot be read or written.
        """
        log, consumers = self._log, self._log.consumers
        if await log.kept.give_way():
            self._maintenance.trim()
            await log.submit([])
            return True
        are_many = len(consumers.cursors) > PASS_AT_ONCE
        log.seen.evict(consumers.needed_from(log.head))
        if are_many:  # each look at all places takes a turn of the loop
            await asyncio.sleep(0)
        is_smaller = size > 0 and self._maintenance.has_to_trim
        if are_many:
            await asyncio.sleep(0)
        size = 0 if is_smaller or size <= 0 else max(size, EVICT_LEAST_BYTES)
        while (count > 0 or size > 0) and (oldest := await self._oldest(count, size)):
            count -= len(oldest)
            size -= sum(message.size for _, message in oldest)
            is_smaller = True
            has_passed = await self._pass_over(oldest)
            losers = list(consumers.losers_of(oldest, log.audience))
            for names, messages in losers:
                log.counters.messages_dropped[EVICTED] += len(names) * len(messages)
                self._maintenance.gathering().note_all(EVICTED, names, messages)
            in_flight: dict[str, list[EvictedInFlight]] = {}
            consumers.evict(oldest, partial(self._add, in_flight))
            self._save(in_flight)
            self._maintenance.save_with_ranges(GATEWAY)
            self.count += bool(losers or in_flight or has_passed)
            async for cursor in in_slices(consumers.cursors):
                await cursor.evict(oldest)
            await asyncio.sleep(0)
        self._maintenance.trim()
        await log.submit([])
        return is_smaller

    async def _pass_over(self, oldest: list[tuple[int, Message]]) -> bool:
        """Has many cursors lose the oldest messages some at a time, before the log drops these for all others.

        The ranges of a cursor, the rows of what is in flight to it, and its place are in one transaction: a kill
        between two of them leaves cursors that have lost the messages, and cursors that still get them. Cursors that
        cannot lose by themselves are left. Returns whether any has lost one. Raises sqlite3.Error.
        """
        log = self._log
        left = topics_by_cursor(oldest, log.audience)
        if len(left) <= PASS_AT_ONCE:
            return False
        messages, last, has_lost, unwritten, slice_ = dict(oldest), oldest[-1][0], False, 0, Slice()
        for some in _pieces(left, PASS_AT_ONCE):
            free = {cursor: left[cursor] for cursor in some if cursor.may_pass_over}
            for names, lost in log.consumers.losers_among(oldest, free):
                has_lost = True
                log.counters.messages_dropped[EVICTED] += len(names) * len(lost)
                self._maintenance.gathering().note_all(EVICTED, names, lost)
            in_flight: dict[str, list[EvictedInFlight]] = {}
            for cursor in free:
                cursor.pass_over(messages, last, partial(self._add, in_flight))
            self._save(in_flight)
            has_lost |= bool(in_flight)
            unwritten += len(free)
            if unwritten >= WRITTEN_AT_ONCE:
                unwritten = 0
                await log.submit([])
            if slice_.is_over:
                await slice_.give_way()
        return has_lost

    def _save(self, in_flight: dict[str, list[EvictedInFlight]]) -> None:
        """Writes the rows with their consumers' places: so the count goes on where the position does."""
        for consumer, rows in in_flight.items():
            for row in rows:
                row.save()
            self._maintenance.save_with_ranges(consumer)

    def _add(self, in_flight: dict[str, list[EvictedInFlight]], consumer: str, message: Message) -> EvictedMessage:
        rows = in_flight.setdefault(consumer, [])
        if not rows or rows[-1].is_full:
            rows.append(self._new_row(consumer))
        return rows[-1].add(message)

    def _new_row(self, consumer: str) -> EvictedInFlight:
        self._last_row -= 1  # below 0: the rows of consumers that have ended have numbers above
        drop: Callable[[str, Message], None] = partial(self._log.drop, EVICTED)
        return EvictedInFlight(self._last_row, consumer, drop, self._log.defer)

    async def _oldest(self, count: int, size: int) -> list[tuple[int, Message]]:
        """Returns some of the oldest messages that a consumer needs, at most as many and as large as asked for."""
        consumers = self._log.consumers
        piece = max(1, EVICT_PIECE // (1 + len(consumers.cursors) // EVICT_CURSORS))
        found = await self._log.read(consumers.needed_from(self._log.head), piece)
        for index, (_, message) in enumerate(found):
            if index >= count and size <= 0:
                return found[:index]
            size -= message.size
        return found


def _pieces(cursors: Iterable[Cursor], most: int) -> Iterator[list[Cursor]]:
    rest = iter(cursors)
    while some := list(islice(rest, most)):
        yield some
