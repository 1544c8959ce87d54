"""What waited for consumers that have ended: nobody gets it any more, and a range of each publisher's says so.

A backlog may be long, so that it is looked through in pieces, behind the consumer's end. Until then its messages stay.
"""

import asyncio
import contextlib
import logging
import math
import sqlite3
import time
from collections import deque
from collections.abc import Iterable

from gateway.ending import Ending, describe
from gateway.signals import Signal
from gateway.store import endings as stored
from gateway.store.cursor import Cursor
from gateway.store.drops import ENDED
from gateway.store.groups import Group
from gateway.store.log import MessageLog

PIECE = 1000  # messages
TOGETHER = 64  # who are looked through at once: what is found for each is in memory until it is through
PAUSE_S = 0.01  # between pieces, for everybody else
CLOSE_S = 5.0  # what a gateway that ends spends on it at most

logger = logging.getLogger(__name__)


class Endings:
    """Notes what goes with consumers that end.

    Args:
        log: the message log.
    """

    def __init__(self, log: MessageLog) -> None:
        self._log = log
        self._waiting: deque[Ending] = deque()
        self._task: asyncio.Task[None] | None = None
        self._closing = Signal()
        self._until_s = math.inf
        self._looked_at = 0  # since the last pause
        self._number = 0  # of the newest ending

    def open(self) -> None:
        """Goes on with those that ended before the start, and of which no ranges tell yet."""
        for number, description in self._log.endings.items():
            self._begin(Ending(number, description, lambda _: True, self._log.evicted))

    def note(self, cursor: Cursor, begun: Iterable[int] = ()) -> None:
        """A consumer is about to end.

        Args:
            cursor: its cursor, as long as that has its subscriptions.
            begun: positions of QoS 2 messages that are on their way to it and not received yet.
        """
        description = describe(cursor, self._log, {*cursor.handed_out, *begun})
        ending = Ending(self._number + 1, description, cursor.may_receive, self._log.evicted)
        if ending.next is not None:
            self._log.later(stored.save(ending.number, description))
            self._begin(ending)

    def _begin(self, ending: Ending) -> None:
        self._number = ending.number
        self._log.keep_for(ending)
        self._waiting.append(ending)
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def close(self) -> None:
        """Ends with what is left, without pauses, as far as the time goes: the next start goes on with the rest."""
        self._until_s = time.monotonic() + CLOSE_S
        self._closing.set()
        if self._task is not None:
            await self._task

    async def _run(self) -> None:
        while self._waiting:
            together = [self._waiting.popleft() for _ in range(min(TOGETHER, len(self._waiting)))]
            try:
                await self._look_through(together)
            except Exception:
                logger.exception("not all that waited for %d consumers has a range", len(together))
            for ending in together:
                if ending.next is None or not self._is_late():
                    self._end(ending)
            await asyncio.sleep(0)  # what is in memory is read without waiting for anybody

    async def _look_through(self, together: list[Ending]) -> None:
        """Reads for all of them at once; who is through leaves."""
        while places := [ending.next for ending in together if ending.next is not None]:
            if self._is_late():
                return
            first = min(places)
            try:
                for group in await self._log.read_groups(first - 1):
                    await self._look_at(group, together)
            except sqlite3.Error as error:
                for ending in together:
                    if ending.next == first:
                        logger.error("what waited for %s cannot be read and has no range: %s", ending.consumer, error)
                        ending.give_up()
            for ending in [ending for ending in together if ending.next is None]:
                together.remove(ending)
                self._end(ending)

    async def _look_at(self, group: Group, together: list[Ending]) -> None:
        for ending in together:
            self._looked_at += ending.look_at(group)
            if self._looked_at >= PIECE:
                self._looked_at = 0
                await self._pause()

    def _end(self, ending: Ending) -> None:
        """Nothing is kept for it any more, and what was found goes with the next commit."""
        self._log.keep_no_longer(ending)
        self._log.counters.messages_dropped[ENDED] += ending.spans.messages
        self._log.later(ending.spans)
        self._log.later(stored.remove(ending.number))

    def _is_late(self) -> bool:
        return time.monotonic() > self._until_s

    async def _pause(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(PAUSE_S):
                await self._closing.wait()
