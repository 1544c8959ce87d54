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

from gateway.ending import Ending
from gateway.signals import Signal
from gateway.store.cursor import Cursor
from gateway.store.drops import ENDED
from gateway.store.log import MessageLog

PIECE = 1000  # messages
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

    def note(self, cursor: Cursor, begun: Iterable[int] = ()) -> None:
        """A consumer is about to end.

        Args:
            cursor: its cursor, as long as that has its subscriptions.
            begun: positions of QoS 2 messages that are on their way to it and not received yet.
        """
        ending = Ending(cursor, self._log, {*cursor.handed_out, *begun})
        if ending.next is None:
            return
        self._log.keep_for(ending)
        self._waiting.append(ending)
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def close(self) -> None:
        """Ends with what is left, without pauses."""
        self._until_s = time.monotonic() + CLOSE_S
        self._closing.set()
        if self._task is not None:
            await self._task

    async def _run(self) -> None:
        while self._waiting:
            ending = self._waiting.popleft()
            try:
                if not await self._look_through(ending):
                    logger.warning("the gateway ends: not all that waited for %s has a range", ending.consumer)
            except sqlite3.Error as error:
                logger.error("what waited for %s cannot be read and has no range: %s", ending.consumer, error)
            finally:
                self._log.keep_no_longer(ending)
            if ending.spans.messages:
                self._log.counters.messages_dropped[ENDED] += ending.spans.messages
                self._log.later(ending.spans)
            await asyncio.sleep(0)  # what is in memory is read without waiting for anybody

    async def _look_through(self, ending: Ending) -> bool:
        """Returns whether it could go to the end."""
        while ending.next is not None:
            if time.monotonic() > self._until_s:
                return False
            for group in await self._log.read_groups(ending.next - 1):
                self._looked_at += ending.look_at(group)
                if self._looked_at >= PIECE:
                    self._looked_at = 0
                    await self._pause()
        return True

    async def _pause(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(PAUSE_S):
                await self._closing.wait()
