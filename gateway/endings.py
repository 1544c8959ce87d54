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
from gateway.store.drops import ENDED, EVICTED
from gateway.store.groups import Group
from gateway.store.log import MessageLog
from gateway.store.rights import Rights

PIECE = 1000  # messages
TOGETHER = 64  # who are looked through at once: what is found for each is in memory until it is through
PAUSE_S = 0.01  # between pieces, for everybody else
RETRY_S = 5.0  # until what could not be read is read again
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
        self._unreadable: list[Ending] = []
        self._retry: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        self._closing = Signal()
        self._until_s = math.inf
        self._looked_at = 0  # since the last pause
        self._number = 0  # of the newest ending

    def open(self) -> None:
        """Goes on with those that ended before the start, and of which no ranges tell yet.

        What a full store had dropped while it was on its way when the gateway was killed leaves its ranges now.
        """
        for number, description in self._log.endings.items():
            if description.evicted:
                for identity in description.evicted:
                    self._log.drop(EVICTED, description.consumer, identity.message())
                self._log.later(stored.remove(number))
                continue
            self._begin(Ending(number, description, Rights(), self._log.gone))

    def note(self, cursor: Cursor, begun: Iterable[int] = ()) -> None:
        """A consumer is about to end.

        Args:
            cursor: its cursor, as long as that has its subscriptions.
            begun: positions of QoS 2 messages that are on their way to it and not received yet.
        """
        description = describe(cursor, self._log, {*cursor.handed_out, *begun})
        ending = Ending(self._number + 1, description, cursor.rights, self._log.gone)
        if ending.next is not None:
            self._log.later(stored.save(ending.number, description))
            self._begin(ending)

    def _begin(self, ending: Ending) -> None:
        self._number = ending.number
        self._log.keep_for(ending)
        self._waiting.append(ending)
        self._go_on()

    def _go_on(self) -> None:
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def close(self) -> None:
        """Ends with what is left, without pauses, as far as the time goes: the next start goes on with the rest."""
        if self._retry is not None:
            self._retry.cancel()
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
                logger.exception("what waited for %d consumers is left to the next start", len(together))
            await asyncio.sleep(0)  # what is in memory is read without waiting for anybody

    async def _look_through(self, together: list[Ending]) -> None:
        """Reads for all of them at once; each leaves when it is through, or cannot be read on for now."""
        while True:
            for ending in [ending for ending in together if ending.next is None]:
                together.remove(ending)
                self._end(ending)
            if not together or self._is_late():
                return
            first = min(ending.next for ending in together if ending.next is not None)
            try:
                found = await self._log.read_groups(first - 1)
            except (sqlite3.Error, OSError) as error:
                self._put_off([ending for ending in together if ending.next == first], error)
                together[:] = [ending for ending in together if ending.next != first]
            else:
                for group in found:
                    await self._look_at(group, together)

    def _put_off(self, unreadable: list[Ending], error: Exception) -> None:
        """What waited for these is kept and read again later, here or by the next start."""
        consumers = ", ".join(ending.consumer for ending in unreadable)
        logger.error("what waited for %s cannot be read, attempts go on: %s", consumers, error)
        self._unreadable += unreadable
        if self._retry is None and self._until_s == math.inf:
            self._retry = asyncio.get_running_loop().call_later(RETRY_S, self._try_again)

    def _try_again(self) -> None:
        self._retry = None
        self._waiting.extend(self._unreadable)
        self._unreadable.clear()
        self._go_on()

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
