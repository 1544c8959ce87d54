"""Looks through the log once for many consumers, whose subscriptions are looked up topic by topic for all of them."""

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Collection, Iterable
from typing import TYPE_CHECKING

from gateway.message import Message
from gateway.pace import Slice
from gateway.store.backlog import Backlog, queued_size
from gateway.store.stretches import Stretches

if TYPE_CHECKING:
    from gateway.store.cursor import Cursor
    from gateway.store.log import MessageLog

READ_LEAST = 32  # messages at once: for most, something is among the first of them
READ_MOST = 1024


async def settle(log: "MessageLog", cursors: Iterable["Cursor"]) -> None:
    """Takes consumers past messages for others, so that one that is away holds on to none of them.

    Raises sqlite3.Error.
    """
    waiting = {cursor for cursor in cursors if cursor.unread_from < log.head}
    reading, slice_ = READ_LEAST, Slice()
    while waiting and (position := min(cursor.unread_from for cursor in waiting)) < (head := log.head):
        found = await log.read(position, reading)
        for position, message in found:
            for cursor in log.audience.takers(message.topic).keys() & waiting:
                if cursor.is_next(position, message):
                    cursor.go_past(position - 1)
                    waiting.discard(cursor)
            if slice_.is_over:
                await slice_.give_way()
        for cursor in waiting:
            cursor.go_past(position if found else head)
        reading = min(2 * reading, READ_MOST)
        await asyncio.sleep(0)  # what is in memory is read without waiting for anybody


async def count_backlogs(log: "MessageLog", cursors: Iterable["Cursor"]) -> None:
    """Counts what waits for consumers, none of whom gets anything meanwhile; from now on their ``backlog`` says it.

    Raises sqlite3.Error.
    """
    counted, slice_ = {cursor: Backlog() for cursor in cursors}, Slice()
    async with contextlib.AsyncExitStack() as held:
        for cursor in counted:
            await held.enter_async_context(cursor.reading)
        async for found in _waiting(log, counted):
            for position, message in found:
                for cursor in log.audience.takers(message.topic).keys() & counted.keys():
                    if cursor.is_waiting_for(position, message) and cursor.rights.may_receive(message.topic):
                        counted[cursor].add(queued_size(message))
                if slice_.is_over:
                    await slice_.give_way()
        for cursor, backlog in counted.items():
            cursor.begin_to_count(backlog)


async def _waiting(log: "MessageLog", cursors: Collection["Cursor"]) -> AsyncIterator[list[tuple[int, Message]]]:
    """Yields the messages that wait where one of them may be for cursors, also those that come meanwhile."""
    position = min((cursor.waiting_from for cursor in cursors), default=log.head)
    while position < (head := log.head):
        places = Stretches(itertools.chain.from_iterable(cursor.places for cursor in cursors))
        while stretch := places.next_behind(position):
            first, last = stretch
            found = await log.read(first - 1, min(READ_MOST, last - first + 1))
            position = found[-1][0] if found else last
            yield found
            await asyncio.sleep(0)
        position = max(position, head)
