"""Reads through the log once for many consumers; the subscriptions are looked up once a topic for all of them."""

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Collection, Iterable

from gateway.message import Message
from gateway.pace import Slice
from gateway.store.consumers.cursor import Cursor
from gateway.store.consumers.delivery import Backlog, RangeSet, queued_size
from gateway.store.consumers.log_reader import LogReader

READ_LEAST = 32  # messages at once: most consumers find one of theirs among the first
READ_MOST = 1024


async def skip_ahead(log: LogReader[Cursor], cursors: Iterable[Cursor]) -> None:
    """Moves consumers past messages of others, so that one that is away does not keep these in the log.

    Raises sqlite3.Error.
    """
    waiting = {cursor for cursor in cursors if cursor.unread_from < log.head}
    wanted, slice_ = READ_LEAST, Slice()
    while waiting and (position := min(cursor.unread_from for cursor in waiting)) < (head := log.head):
        found = await log.read(position, wanted)
        for position, message in found:
            for cursor in log.audience.takers(message.topic).keys() & waiting:
                if cursor.is_next(position, message):
                    cursor.go_past(position - 1)
                    waiting.discard(cursor)
            if slice_.is_over:
                await slice_.give_way()
        for cursor in waiting:
            cursor.go_past(position if found else head)
        wanted = min(2 * wanted, READ_MOST)
        await asyncio.sleep(0)  # reads from memory do not suspend


async def count_backlogs(log: LogReader[Cursor], cursors: Iterable[Cursor]) -> None:
    """Counts what waits for consumers; none of them gets a message meanwhile. Their ``backlog`` is exact from now on.

    Raises sqlite3.Error.
    """
    counted, slice_ = {cursor: Backlog() for cursor in cursors}, Slice()
    async with contextlib.AsyncExitStack() as held:
        for cursor in counted:
            await held.enter_async_context(cursor.fetching)
        async for found in _waiting(log, counted):
            for position, message in found:
                for cursor in log.audience.takers(message.topic).keys() & counted.keys():
                    if cursor.is_waiting_for(position, message) and cursor.rights.may_receive(message.topic):
                        counted[cursor].add(queued_size(message))
                if slice_.is_over:
                    await slice_.give_way()
        for cursor, backlog in counted.items():
            cursor.begin_to_count(backlog)


async def _waiting(log: LogReader[Cursor], cursors: Collection[Cursor]) -> AsyncIterator[list[tuple[int, Message]]]:
    """Yields messages at positions where one may wait for a cursor, including those that are stored meanwhile."""
    position = min((cursor.waiting_from for cursor in cursors), default=log.head)
    while position < (head := log.head):
        ranges = RangeSet(itertools.chain.from_iterable(cursor.waiting_ranges for cursor in cursors))
        while found_range := ranges.next_behind(position):
            first, last = found_range
            found = await log.read(first - 1, min(READ_MOST, last - first + 1))
            position = found[-1][0] if found else last
            yield found
            await asyncio.sleep(0)
        position = max(position, head)
