"""The subscriptions of all open cursors: which cursors take a topic name."""

import asyncio
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Generic, Protocol, TypeVar

from gateway.loop.pace import Slice
from gateway.subscriptions import Subscription, SubscriptionTree
from gateway.topic_memory import NAME_SIZE_MAX

TOPICS_REMEMBERED = 10_000
SUBSCRIPTIONS_REMEMBERED = 200_000  # of all these topic names together


class Subscriber(Protocol):
    """An object with subscriptions by topic filter: a cursor."""

    @property
    def filters(self) -> Mapping[str, Subscription]: ...


Taker = TypeVar("Taker", bound=Subscriber)
Takers = dict[Taker, tuple[Subscription, ...]]


class Audience(Generic[Taker]):
    """The subscriptions of all open cursors, and the cursors found for recent topic names.

    ``takers_of_qos_0`` are the cursors that have messages of QoS 0 stored.
    """

    def __init__(self) -> None:
        self._tree: SubscriptionTree[Taker] = SubscriptionTree()
        # Answers in two halves: when memory is full, the older half goes. So the answer that was found when a message
        # came in is still there when the message is committed.
        self._newer: dict[str, Takers[Taker]] = {}
        self._older: dict[str, Takers[Taker]] = {}
        self._remembered = 0  # subscriptions in the newer half
        self.takers_of_qos_0: dict[Taker, None] = {}
        self._leaving: deque[tuple[Taker, list[str]]] = deque()
        self._sweep: asyncio.Task[None] | None = None

    def join(self, cursor: Taker, topic_filter: str) -> None:
        """Adds a cursor's subscription, or replaces the one of the same topic filter."""
        self._tree.add(topic_filter, cursor)
        if cursor.filters[topic_filter].takes_qos_0:
            self.takers_of_qos_0[cursor] = None
        self._forget_matching(topic_filter)

    def leave(self, cursor: Taker, topic_filter: str) -> None:
        """Removes a cursor's subscription."""
        self._tree.discard(topic_filter, cursor)
        self._forget_matching(topic_filter)

    def dismiss(self, cursor: Taker) -> None:
        """Removes all subscriptions of a closed cursor, slice by slice; the cursor takes nothing from now on."""
        self.takers_of_qos_0.pop(cursor, None)
        self._leaving.append((cursor, list(cursor.filters)))
        if self._sweep is None:
            self._sweep = asyncio.get_running_loop().create_task(self._take_out())

    async def _take_out(self) -> None:
        slice_ = Slice()
        while self._leaving:
            cursor, topic_filters = self._leaving[0]
            while topic_filters:
                if slice_.is_over:
                    await slice_.give_way()
                self.leave(cursor, topic_filters.pop())
            self._leaving.popleft()
        self._sweep = None

    def close(self) -> None:
        """Stops removing subscriptions: the log is closed."""
        if self._sweep is not None:
            self._sweep.cancel()

    def learn(self, topics: Iterable[str]) -> bool:
        """Finds the takers of topic names; returns False if that takes more than a slice, and leaves the rest out."""
        slice_ = None
        for topic in topics:
            if topic not in self._newer and topic not in self._older:
                slice_ = slice_ or Slice()
                if slice_.is_over:
                    return False
                self.takers(topic)
        return True

    def takers(self, topic: str) -> Takers[Taker]:
        """Returns the cursors that take a topic name, each with its matching subscriptions."""
        found = self._newer.get(topic)
        if found is None:
            found = self._older.pop(topic, None)
            if found is None:
                found = self._find(topic)
            self._remember(topic, found)
        return found

    def _find(self, topic: str) -> Takers[Taker]:
        found: Takers[Taker] = {}
        for topic_filter, cursors in self._tree.match(topic):
            for cursor in cursors:
                found[cursor] = (*found.get(cursor, ()), cursor.filters[topic_filter])
        return found

    def _remember(self, topic: str, found: Takers[Taker]) -> None:
        count = sum(map(len, found.values()))
        if len(self._newer) >= TOPICS_REMEMBERED // 2 or self._remembered + count > SUBSCRIPTIONS_REMEMBERED // 2:
            self._older, self._newer, self._remembered = self._newer, {}, 0
        if len(topic) <= NAME_SIZE_MAX:
            self._newer[topic] = found
            self._remembered += count

    def _forget_matching(self, topic_filter: str) -> None:
        """Forgets the answers for topic names that a filter matches."""
        if "+" in topic_filter or "#" in topic_filter:
            self._newer.clear()
            self._older.clear()
            self._remembered = 0
            return
        self._older.pop(topic_filter, None)
        if found := self._newer.pop(topic_filter, None):
            self._remembered -= sum(map(len, found.values()))
