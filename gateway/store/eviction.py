"""Drops the oldest messages of a full store, though consumers still need them; each such consumer gets a range."""

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Protocol

from gateway.counters import Counters
from gateway.message import Message
from gateway.store.consumers.audience import Audience
from gateway.store.consumers.cursor import Cursor
from gateway.store.consumers.registry import Consumers
from gateway.store.maintenance import Maintenance
from gateway.store.seen import Seen
from gateway.store.tables.drops import EVICTED, GATEWAY
from gateway.store.tables.evicted import EvictedInFlight, EvictedMessage
from gateway.store.tables.log_rows import Work

EVICT_PIECE = 1000  # messages; between two pieces the event loop runs
EVICT_CURSORS = 20  # a piece is a half, a third, … with 20, 40, … cursors: each may get a range of each message
EVICT_LEAST_BYTES = 64 * 1024  # freed by one eviction, as each costs a sync


class Evictable(Protocol):
    """The log, as far as messages are evicted from it. ``MessageLog`` is one."""

    counters: Counters
    consumers: Consumers
    audience: Audience[Cursor]
    seen: Seen

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
        """Drops the oldest messages that consumers still need, and notes ranges. What can be trimmed goes first.

        Args:
            count: least number of messages to drop.
            size: bytes of the file to free; how much the messages take there is estimated.

        Returns:
            Whether there was anything to drop.

        Raises:
            sqlite3.Error: the log cannot be read or written.
        """
        log, consumers = self._log, self._log.consumers
        log.seen.evict(consumers.needed_from(log.head))
        is_smaller = size > 0 and self._maintenance.has_to_trim
        size = 0 if is_smaller or size <= 0 else max(size, EVICT_LEAST_BYTES)
        while (count > 0 or size > 0) and (oldest := await self._oldest(count, size)):
            count -= len(oldest)
            size -= sum(message.size for _, message in oldest)
            is_smaller = True
            losers = list(consumers.losers_of(oldest, log.audience))
            for names, messages in losers:
                log.counters.messages_dropped[EVICTED] += len(names) * len(messages)
                self._maintenance.drop_all(EVICTED, names, messages)
            in_flight: dict[str, list[EvictedInFlight]] = {}
            consumers.evict(oldest, partial(self._add, in_flight))
            for row in itertools.chain.from_iterable(in_flight.values()):
                row.save()
            for consumer in (GATEWAY, *in_flight):  # in one transaction: the count goes on where the position does
                self._maintenance.save_with_ranges(consumer)
            self.count += bool(losers or in_flight)
            for cursor in consumers.cursors:
                await cursor.evict(oldest)
            await asyncio.sleep(0)
        self._maintenance.run()
        await log.submit([])
        return is_smaller

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
