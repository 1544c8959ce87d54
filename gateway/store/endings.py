"""Consumers that have ended: a scan of the log finds the messages that waited for them, and notes these as ranges.

Many messages may wait for a consumer, so the scan goes piece by piece after the consumer's end. The log keeps the
messages until the scan is done.
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

import msgspec

from gateway.loop.pace import Slice, paced
from gateway.loop.signals import Signal
from gateway.message import Message
from gateway.selectors import Selector, parse_selector, passing
from gateway.store.consumers.cursor import Cursor
from gateway.store.consumers.delivery import AllRanges, Backlog
from gateway.store.consumers.held_back import HeldBack
from gateway.store.consumers.taker import Rights, is_since
from gateway.store.log import MessageLog
from gateway.store.tables import endings
from gateway.store.tables.drops import ENDED, EVICTED, Spans
from gateway.store.tables.endings import StoredEnding
from gateway.store.tables.log_rows import Gap, LogRow, Part, PublishBatch, is_qos_0
from gateway.subscriptions import Subscription, SubscriptionTree
from gateway.topic_memory import remember

TOPICS_REMEMBERED = 1024
PIECE = 1000  # messages
TOGETHER = 64  # consumers scanned for at once: what is found for each is in memory until its end
PAUSE_S = 0.01  # between pieces, so that other tasks run
RETRY_S = 5.0  # until messages that could not be read are read again
FILTERS_MAX = 10_000  # of a consumer that goes on without some of them: all are written each time
CLOSE_S = 5.0  # at most, when the gateway closes

logger = logging.getLogger(__name__)


def describe(cursor: Cursor, log: MessageLog, on_the_way: set[int]) -> StoredEnding:
    """Returns what is stored of a consumer when it ends.

    Args:
        cursor: the consumer's cursor, which still has its subscriptions.
        log: the message log.
        on_the_way: positions of the messages in flight to the consumer: not acknowledged, and at QoS 2 not received.
    """
    unread_from = cursor.unread_from
    given_away = log.passed(cursor.consumer) if cursor.durable else set()
    subscriptions = list(cursor.filters.values())
    ranges = cursor.waiting_ranges if subscriptions else []
    on_its_way = sorted(on_the_way)
    return StoredEnding(
        cursor.consumer, unread_from, on_its_way, sorted(given_away), ranges, subscriptions, cursor.held_back.copy()
    )


class Ending:
    """One consumer that has ended, and the scan for the messages that waited for it.

    ``next`` is the next position that may have a message for the consumer, None when the scan is done. ``spans`` has
    the messages found so far. The log keeps the messages behind ``position`` until ``spans`` is durable, because the
    scan begins again after a crash.

    Args:
        number: the key of the consumer's row in the table ``ending``.
        stored: that row.
        rights: which topic names the consumer might receive.
        gone: the log has no messages up to this position.
    """

    def __init__(self, number: int, stored: StoredEnding, rights: Rights, gone: int) -> None:
        self.number = number
        self.consumer = stored.consumer
        self.spans = Spans(ENDED, stored.consumer)
        self._on_the_way = on_the_way = set(stored.on_the_way)
        self._unread_from = stored.unread_from
        self._given_away = set(stored.given_away)
        self._rights = rights
        self._subscriptions = stored.subscriptions
        self._takes_qos_0 = any(subscription.takes_qos_0 for subscription in stored.subscriptions)
        # Behind this position the topic name and the publisher decide whether a message was for it.
        since = [subscription.since for subscription in self._subscriptions]
        self._usual_from = max([*on_the_way, *self._given_away, self._unread_from, rights.changed, *since])
        if any(one.select for one in self._subscriptions):
            self._usual_from = sys.maxsize
        self._selectors: dict[str, Selector] = {}  # by their texts, as far as they were needed
        self._kept = stored.kept
        self._trees: tuple[SubscriptionTree[Subscription], SubscriptionTree[Subscription]] | None = None
        self._known: dict[str, frozenset[str | None]] = {}
        self._ranges = AllRanges([*((position, position) for position in on_the_way), *stored.ranges])
        self._held_back = HeldBack(stored.held_back)
        firsts = (first for first, _ in self._held_back.values())
        self.position = min([*on_the_way, self._unread_from + 1, *firsts]) - 1
        self.next = self._ranges.behind(self.position)
        self.evict(gone)

    def evict(self, position: int) -> None:
        """Notes that the log evicts the messages up to a position and has noted their ranges."""
        self._on_the_way = {other for other in self._on_the_way if other > position}
        self._unread_from = max(self._unread_from, position)
        self._usual_from = max(self._usual_from, position)
        self.position = max(self.position, position)
        if self.next is not None and self.next <= position:
            self.next = self._ranges.behind(position)

    async def look_at(self, row: LogRow, slice_: Slice) -> int:
        """Adds the messages of a row that waited for the consumer; returns how many were looked at, a batch as one.

        A selector may take long, so other tasks run between two messages when the slice is over.
        """
        if self.next is None or self.next > row.last:
            return 0
        first, looked_at = row.first, 0
        for part in row.parts:
            last = first + part.count - 1
            if self.next is not None and self.next <= last:
                looked_at += await self._look_at_part(first, part, slice_)
                self.next = self._ranges.behind(last)
            first = last + 1
        if self.next is not None and self.next <= row.last:  # the row is damaged, and has fewer parts
            self.next = self._ranges.behind(row.last)
        return looked_at

    async def _look_at_part(self, first: int, part: Part | Gap, slice_: Slice) -> int:
        if isinstance(part, Gap) or (is_qos_0(part) and not self._takes_qos_0):
            return 1
        if self._usual_from < first:
            wanted = sum(self._wants(topic, part.publisher) for topic in part.topics)
            if not wanted:
                return 1
            if wanted == len(part.topics) and not (isinstance(part, PublishBatch) and part.bring_identities):
                self.spans.add(part)
                return 1
        async for position, message in paced(enumerate(part.messages(), first), slice_):
            if position > self.position and self._takes(position, message):  # else it was evicted meanwhile
                self.spans.add(message)
        return part.count

    def _takes(self, position: int, message: Message) -> bool:
        """Whether a message waited for the consumer, or was in flight to it."""
        if position > self._usual_from:
            return self._wants(message.topic, message.publisher)
        if position in self._on_the_way:
            return not self._kept or bool(self._matching(message.topic))
        if position in self._given_away:
            return False
        if position <= self._unread_from:
            return self._held_back.holds(position, message.topic)
        matching = self._matching(message.topic)
        matching = [
            one for one in matching if is_since(one, position, message.topic) and one.not_from != message.publisher
        ]
        selectors = [self._selector(one.select) for one in matching if one.select]
        is_for_it = len(selectors) < len(matching) or any(passing(selectors, message))
        return is_for_it and self._rights.might_receive(position, message.topic)

    def _selector(self, text: str) -> Selector:
        return self._selectors.get(text) or self._selectors.setdefault(text, parse_selector(text))

    def _wants(self, topic: str, publisher: str) -> bool:
        """Whether a message waited for the consumer, by topic name and publisher alone."""
        not_from = self._known.get(topic)
        if not_from is None:
            matching = self._matching(topic) if self._rights.may_receive(topic) else ()
            not_from = frozenset(one.not_from for one in matching)
            remember(self._known, topic, not_from, TOPICS_REMEMBERED)
        return len(not_from) > (publisher in not_from)

    def _matching(self, topic: str) -> list[Subscription]:
        if self._trees is None:
            self._trees = _tree_of(self._subscriptions), _tree_of(self._kept)
        tree, kept = self._trees
        if kept.match(topic):
            return []
        return [subscription for _, matching in tree.match(topic) for subscription in matching]


def _tree_of(subscriptions: list[Subscription]) -> SubscriptionTree[Subscription]:
    tree: SubscriptionTree[Subscription] = SubscriptionTree()
    for subscription in subscriptions:
        tree.add(subscription.topic_filter, subscription)
    return tree


class Endings:
    """Scans the log for all consumers that have ended or have other subscriptions than before."""

    def __init__(self, log: MessageLog) -> None:
        self._log = log
        self._waiting: deque[Ending] = deque()
        self._unreadable: list[Ending] = []
        self._retry: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        self._closing = Signal()
        self._until_s = math.inf
        self._looked_at = 0  # since the last pause
        self._slice = Slice()
        self._number = max([0, *log.found.endings])  # of the newest ending

    def open(self) -> None:
        """Goes on with the consumers that ended before the start and whose messages have no ranges yet.

        Messages that a full store evicted while they were in flight, before a crash, get their ranges now.
        """
        for number, description in self._log.found.endings.items():
            if description.evicted:
                for identity in description.evicted:
                    self._log.drop(EVICTED, description.consumer, identity.message())
                self._log.defer(endings.remove(number))
                continue
            self._begin(Ending(number, description, Rights(), self._log.gone))

    def note(self, cursor: Cursor, begun: Iterable[int] = ()) -> None:
        """Begins the scan for a consumer that is about to end.

        Args:
            cursor: the consumer's cursor, which still has its subscriptions.
            begun: positions of QoS 2 messages that are in flight to the consumer and not received yet.
        """
        self._note(describe(cursor, self._log, {*cursor.flight.positions(), *begun}), cursor.rights)

    def resubscribe(self, cursor: Cursor, subscriptions: list[Subscription]) -> None:
        """Gives a consumer other subscriptions. Messages that wait and that none of these matches leave ranges.

        Messages in flight stay in flight, and leave ranges too if none matches: a restart does not send them again. The
        subscriptions also match the messages in the log behind the oldest one
        that waits.
        """
        log, description = self._log, describe(cursor, self._log, set(cursor.flight.positions()))
        self._note(msgspec.structs.replace(description, kept=subscriptions), cursor.rights)
        for topic_filter in cursor.filters.keys() - {one.topic_filter for one in subscriptions}:
            cursor.unsubscribe(topic_filter)
        for subscription in subscriptions:
            cursor.subscribe(subscription)
        if cursor.unread_from < log.head:
            cursor.read_again(cursor.unread_from)
        cursor.tally.stop()  # until it is counted again
        cursor.tally.noticed = Backlog(log.count_behind(cursor.position))

    def withdraw(self, cursor: Cursor, topic_filters: Iterable[str]) -> None:
        """Some of a consumer's topic filters are about to end. Messages that wait for these alone leave ranges.

        What is in flight may still arrive. Of a consumer with more than FILTERS_MAX filters nothing is noted.
        """
        if cursor.unread_from >= self._log.head or len(cursor.filters) > FILTERS_MAX:
            return
        ended = [cursor.filters[one] for one in topic_filters if one in cursor.filters]
        if not ended:
            return
        gone = {one.topic_filter for one in ended}
        kept = [one for topic_filter, one in cursor.filters.items() if topic_filter not in gone]
        description = describe(cursor, self._log, set())
        self._note(msgspec.structs.replace(description, subscriptions=ended, kept=kept), cursor.rights)

    def _note(self, description: StoredEnding, rights: Rights) -> None:
        ending = Ending(self._number + 1, description, rights, self._log.gone)
        if ending.next is not None:
            self._log.defer(endings.save(ending.number, description))
            self._begin(ending)

    def _begin(self, ending: Ending) -> None:
        self._number = max(self._number, ending.number)
        self._log.consumers.keepers.keep_for(ending)
        self._waiting.append(ending)
        self._go_on()

    def _go_on(self) -> None:
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def close(self) -> None:
        """Goes on without pauses for CLOSE_S at most; the next start goes on with the rest."""
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
                logger.exception("the messages that waited for %d consumers are left to the next start", len(together))
            await asyncio.sleep(0)  # rows in memory are read without a pause

    async def _look_through(self, together: list[Ending]) -> None:
        """Scans the log once for several consumers; one leaves when its scan is done, or the log cannot be read."""
        while True:
            for ending in [ending for ending in together if ending.next is None]:
                together.remove(ending)
                self._end(ending)
            if not together or self._is_late():
                return
            first = min(ending.next for ending in together if ending.next is not None)
            try:
                found = await self._log.read_rows(first - 1)
            except (sqlite3.Error, OSError) as error:
                self._put_off([ending for ending in together if ending.next == first], error)
                together[:] = [ending for ending in together if ending.next != first]
            else:
                for row in found:
                    await self._look_at(row, together)

    def _put_off(self, unreadable: list[Ending], error: Exception) -> None:
        """Keeps the messages of these consumers, to scan them again after RETRY_S, or after the next start."""
        consumers = ", ".join(ending.consumer for ending in unreadable)
        logger.error("the messages that waited for %s cannot be read, attempts go on: %s", consumers, error)
        self._unreadable += unreadable
        if self._retry is None and self._until_s == math.inf:
            self._retry = asyncio.get_running_loop().call_later(RETRY_S, self._try_again)

    def _try_again(self) -> None:
        self._retry = None
        self._waiting.extend(self._unreadable)
        self._unreadable.clear()
        self._go_on()

    async def _look_at(self, row: LogRow, together: list[Ending]) -> None:
        for ending in together:
            self._looked_at += await ending.look_at(row, self._slice)
            if self._looked_at >= PIECE:
                self._looked_at = 0
                await self._pause()

    def _end(self, ending: Ending) -> None:
        """Lets the log trim the consumer's messages; the ranges of those found are written with the next commit."""
        self._log.consumers.keepers.keep_no_longer(ending)
        self._log.counters.messages_dropped[ENDED] += ending.spans.messages
        self._log.defer(ending.spans)
        self._log.defer(endings.remove(ending.number))

    def _is_late(self) -> bool:
        return time.monotonic() > self._until_s

    async def _pause(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(PAUSE_S):
                await self._closing.wait()
