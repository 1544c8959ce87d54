"""What waited for consumers that have ended: nobody gets it any more, and a range of each publisher's says so.

A backlog may be long, so that it is looked through in pieces, behind the consumer's end. Until then its messages stay.
"""

import asyncio
import contextlib
import logging
import math
import sqlite3
import sys
import time
from collections import deque
from collections.abc import Iterable

from gateway.message import Message
from gateway.signals import Signal
from gateway.store.cursor import Cursor
from gateway.store.drops import ENDED, Spans
from gateway.store.groups import Group, Part
from gateway.store.log import MessageLog
from gateway.store.run import Run
from gateway.store.stretches import Stretches
from gateway.subscriptions import Subscription, SubscriptionTree
from gateway.topic_memory import remember

PIECE = 1000  # messages
PAUSE_S = 0.01  # between pieces, for everybody else
CLOSE_S = 5.0  # what a gateway that ends spends on it at most
TOPICS_REMEMBERED = 1024

logger = logging.getLogger(__name__)


class Endings:
    """Notes what goes with consumers that end.

    Args:
        log: the message log.
    """

    def __init__(self, log: MessageLog) -> None:
        self._log = log
        self._waiting: deque[_Ending] = deque()
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
        ending = _Ending(cursor, self._log, {*cursor.handed_out, *begun})
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

    async def _look_through(self, ending: "_Ending") -> bool:
        """Returns whether it could go to the end."""
        while ending.next is not None:
            if time.monotonic() > self._until_s:
                return False
            groups = await self._log.read_groups(ending.next - 1)
            if not groups:
                break  # they were dropped meanwhile, and noted
            for group in groups:
                self._looked_at += ending.look_at(group)
                if self._looked_at >= PIECE:
                    self._looked_at = 0
                    await self._pause()
        return True

    async def _pause(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(PAUSE_S):
                await self._closing.wait()


class _Ending:
    """A consumer as it was: ``next`` is where something for it may be that was not looked at yet, None at the end."""

    def __init__(self, cursor: Cursor, log: MessageLog, on_the_way: set[int]) -> None:
        self.consumer = cursor.consumer
        self.spans = Spans(ENDED, cursor.consumer)
        self._on_the_way = on_the_way
        self._unread_from = cursor.unread_from
        self._given_away = log.passed(cursor.consumer) if cursor.durable else set()
        self._may_receive = cursor.may_receive
        self._subscriptions = list(cursor.filters.values())
        # Behind this topic name and publisher say whether a message was for it.
        since = [subscription.since for subscription in self._subscriptions]
        self._usual_from = max([*on_the_way, *self._given_away, self._unread_from, *since])
        self._tree: SubscriptionTree[Subscription] | None = None
        self._known: dict[str, frozenset[str | None]] = {}
        unread = cursor.stretches if self._subscriptions else ()
        self._places = Stretches([*((position, position) for position in on_the_way), *unread])
        self.next = self._places.behind(min([*on_the_way, self._unread_from + 1]) - 1)
        self.evict(log.evicted)

    @property
    def position(self) -> int:
        """Everything up to here was looked at."""
        return sys.maxsize if self.next is None else self.next - 1

    def evict(self, position: int) -> None:
        """The log drops what is up to a position, and has a range for it."""
        self._on_the_way = {other for other in self._on_the_way if other > position}
        self._unread_from = max(self._unread_from, position)
        self._usual_from = max(self._usual_from, position)
        if self.next is not None and self.next <= position:
            self.next = self._places.behind(position)

    def look_at(self, group: Group) -> int:
        """Takes note of what was for the consumer; returns how many were looked at, a run as a whole for one."""
        first, looked_at = group.first, 0
        for part in group.parts:
            last = first + part.count - 1
            if self.next is not None and self.next <= last:
                looked_at += self._look_at_part(first, part)
                self.next = self._places.behind(last)
            first = last + 1
        if self.next is not None and self.next <= group.last:  # it is damaged
            self.next = self._places.behind(group.last)
        return looked_at

    def _look_at_part(self, first: int, part: Part) -> int:
        if self._usual_from < first:
            wanted = sum(self._wants(topic, part.publisher) for topic in part.topics)
            if not wanted:
                return 1
            if wanted == len(part.topics) and not (isinstance(part, Run) and part.bring_identities):
                self.spans.add(part)
                return 1
        for position, message in enumerate(part.messages(), first):
            if self._takes(position, message):
                self.spans.add(message)
        return part.count

    def _takes(self, position: int, message: Message) -> bool:
        """Whether the consumer would have got a message, or may have got it and did not say so."""
        if position > self._usual_from:
            return self._wants(message.topic, message.publisher)
        if position in self._on_the_way:
            return True
        if position <= self._unread_from or position in self._given_away:
            return False
        matching = self._matching(message.topic)
        is_for_it = any(one.since < position and one.not_from != message.publisher for one in matching)
        return is_for_it and (self._may_receive is None or self._may_receive(message.topic))

    def _wants(self, topic: str, publisher: str) -> bool:
        """The same by topic name and publisher alone."""
        not_from = self._known.get(topic)
        if not_from is None:
            may_receive = self._may_receive is None or self._may_receive(topic)
            not_from = frozenset(one.not_from for one in self._matching(topic)) if may_receive else frozenset()
            remember(self._known, topic, not_from, TOPICS_REMEMBERED)
        return len(not_from) > (publisher in not_from)

    def _matching(self, topic: str) -> set[Subscription]:
        if self._tree is None:
            self._tree = SubscriptionTree()
            for subscription in self._subscriptions:
                self._tree.add(subscription.topic_filter, subscription)
        return self._tree.match(topic)
