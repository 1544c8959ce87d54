"""Reads through the log once for many consumers; the subscriptions are looked up once a topic for all of them."""

import asyncio
import itertools
import sqlite3
from collections.abc import AsyncIterator, Collection, Iterable

from gateway.loop.pace import Slice
from gateway.message import Message
from gateway.store.consumers.cursor import Cursor
from gateway.store.consumers.delivery import RangeSet
from gateway.store.consumers.log_reader import LogReader
from gateway.store.consumers.tally import Walk
from gateway.store.tables.log_rows import Gap, Part

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
                if position > cursor.unread_from and cursor.takes(position, message):
                    cursor.go_past(position - 1)
                    waiting.discard(cursor)
            if slice_.is_over:
                await slice_.give_way()
        for cursor in waiting:
            cursor.go_past(position if found else head)
        wanted = min(2 * wanted, READ_MOST)
        await asyncio.sleep(0)  # reads from memory do not suspend


async def count_backlogs(log: LogReader[Cursor], cursors: Iterable[Cursor]) -> None:
    """Counts what waits for consumers, which go on meanwhile. Their ``backlog`` is exact from the end on.

    Raises sqlite3.Error; then it is not counted.
    """
    counted, slice_ = set(cursors), Slice()
    walk = Walk(min((cursor.waiting_from for cursor in counted), default=log.head), log.head)
    for cursor in counted:
        cursor.tally.begin(walk, cursor.flight.sizes())
    try:
        async for first, part in _waiting(log, counted, walk):
            last = first + part.count - 1
            takers = {cursor for topic in part.topics for cursor in log.audience.takers(topic).keys() & counted}
            takers = {cursor for cursor in takers if cursor.waiting_from < last}
            if all(_all_wait(log, cursor, first, part) for cursor in takers):
                for cursor in takers:
                    cursor.tally.add_walked(walk, part)
            else:
                for position, message in enumerate(part.messages(), first):
                    for cursor in takers & log.audience.takers(message.topic).keys():
                        if _waits(cursor, position, message):
                            cursor.tally.add_walked(walk, message)
                    walk.position = position
                    if slice_.is_over:
                        await slice_.give_way()
            walk.position = last
            if slice_.is_over:
                await slice_.give_way()
    except BaseException:
        for cursor in counted:
            cursor.tally.stop(walk)
        raise
    for cursor in counted:
        cursor.tally.end(walk)


class BacklogCounts:
    """Counts the backlogs that are asked for at the same time in one walk through the log."""

    def __init__(self, log: LogReader[Cursor]) -> None:
        self._log = log
        self._asked: dict[Cursor, asyncio.Future[None]] = {}
        self._task: asyncio.Task[None] | None = None

    async def count(self, cursor: Cursor) -> None:
        """Returns once a consumer's ``backlog`` is exact. Raises sqlite3.Error."""
        if cursor not in self._asked or self._asked[cursor].cancelled():
            self._asked[cursor] = asyncio.get_running_loop().create_future()
        counted = self._asked[cursor]
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._count())
        await counted

    async def _count(self) -> None:
        while self._asked:
            asked, self._asked = self._asked, {}
            error: sqlite3.Error | None = None
            try:
                await count_backlogs(self._log, asked)
            except sqlite3.Error as failure:
                error = failure
            for counted in asked.values():
                if error is not None and not counted.done():
                    counted.set_exception(error)
                elif not counted.done():
                    counted.set_result(None)

    def close(self) -> None:
        """Stops counting: the log is closed."""
        if self._task is not None:
            self._task.cancel()


def count_stored(log: LogReader[Cursor], cursor: Cursor, stored: Iterable[tuple[int, Part]]) -> None:
    """Counts messages that were just stored, for one of those consumers that take some of them."""
    waiting: list[Part] = []
    for first, part in stored:
        if _all_wait(log, cursor, first, part):
            waiting.append(part)
        elif any(cursor in log.audience.takers(topic) for topic in part.topics):
            waiting += [one for position, one in enumerate(part.messages(), first) if _waits(cursor, position, one)]
    cursor.tally.note_stored(waiting)


def _all_wait(log: LogReader[Cursor], cursor: Cursor, first: int, part: Part) -> bool:
    """Whether all messages of a part at a position wait for a consumer; False where each has to be looked at."""
    takes_all = all(cursor in log.audience.takers(topic) for topic in part.topics)
    return takes_all and cursor.all_wait_in(first, part)


def _waits(cursor: Cursor, position: int, message: Message) -> bool:
    """Whether a message waits for a consumer, which may receive it today."""
    return cursor.is_waiting_for(position, message) and cursor.rights.may_receive(message.topic)


async def _waiting(log: LogReader[Cursor], cursors: Collection[Cursor], walk: Walk) -> AsyncIterator[tuple[int, Part]]:
    """Yields parts with messages that may wait for a cursor, with their positions, each once."""
    ranges = RangeSet(itertools.chain.from_iterable(cursor.waiting_ranges for cursor in cursors))
    position = walk.position
    while (found_range := ranges.next_behind(position)) and found_range[0] <= walk.end:
        position = max(found_range[0] - 1, min(cursor.waiting_from for cursor in cursors))
        if position >= walk.end:
            break
        for row in await log.read_rows(position):
            at = row.first
            for part in row.parts:
                at += part.count
                if position < at - 1 and at - part.count <= walk.end and not isinstance(part, Gap):
                    yield at - part.count, part
            position = max(position, row.last)
        await asyncio.sleep(0)  # reads from memory do not suspend
