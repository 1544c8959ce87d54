"""Who takes which topics: the cursors' subscriptions, found by topic name whatever their number."""

import asyncio
from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING

from gateway.pace import Slice
from gateway.subscriptions import Subscription, SubscriptionTree
from gateway.topic_memory import NAME_SIZE_MAX

if TYPE_CHECKING:
    from gateway.store.cursor import Cursor

TOPICS_REMEMBERED = 10_000
SUBSCRIPTIONS_REMEMBERED = 200_000  # of all these topics together

Takers = dict["Cursor", tuple[Subscription, ...]]


class Audience:
    """The subscriptions of all cursors that are here."""

    def __init__(self) -> None:
        self._tree: SubscriptionTree[tuple[Cursor, str]] = SubscriptionTree()
        # What was found last, and what was found before that: where memory is full, the older half goes. So what a
        # publisher has found is still there when its message is committed.
        self._newer: dict[str, Takers] = {}
        self._older: dict[str, Takers] = {}
        self._remembered = 0  # subscriptions in the newer half
        self._leaving: deque[tuple[Cursor, list[str]]] = deque()
        self._sweep: asyncio.Task[None] | None = None

    def join(self, cursor: "Cursor", topic_filter: str) -> None:
        """A cursor has a new subscription, or another one of the same topic filter."""
        self._tree.add(topic_filter, (cursor, topic_filter))
        self._forget_matching(topic_filter)

    def leave(self, cursor: "Cursor", topic_filter: str) -> None:
        """A cursor has no subscription of this topic filter any more."""
        self._tree.discard(topic_filter, (cursor, topic_filter))
        self._forget_matching(topic_filter)

    def dismiss(self, cursor: "Cursor") -> None:
        """A cursor is closed, and takes nothing: its subscriptions leave slice by slice."""
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
        """Takes no more subscriptions out: the log is closed."""
        if self._sweep is not None:
            self._sweep.cancel()

    def learn(self, topics: Iterable[str]) -> bool:
        """Finds the takers of some topic names; False, and some are left out, where that takes more than a slice."""
        slice_ = Slice()
        for topic in topics:
            if topic not in self._newer and topic not in self._older:
                if slice_.is_over:
                    return False
                self.takers(topic)
        return True

    def takers(self, topic: str) -> Takers:
        """Returns the cursors that take a topic name, each with those of its subscriptions that match."""
        found = self._newer.get(topic)
        if found is None:
            found = self._older.pop(topic, None)
            if found is None:
                found = self._find(topic)
            self._remember(topic, found)
        return found

    def remembered(self) -> int:
        """Returns how many topic names and subscriptions are remembered together."""
        return sum(1 + sum(map(len, found.values())) for half in (self._newer, self._older) for found in half.values())

    def _find(self, topic: str) -> Takers:
        subscriptions: dict[Cursor, list[Subscription]] = {}
        for cursor, topic_filter in self._tree.match(topic):
            subscriptions.setdefault(cursor, []).append(cursor.filters[topic_filter])
        return {cursor: tuple(matching) for cursor, matching in subscriptions.items()}

    def _remember(self, topic: str, found: Takers) -> None:
        count = sum(map(len, found.values()))
        if len(self._newer) >= TOPICS_REMEMBERED // 2 or self._remembered + count > SUBSCRIPTIONS_REMEMBERED // 2:
            self._older, self._newer, self._remembered = self._newer, {}, 0
        if len(topic) <= NAME_SIZE_MAX:
            self._newer[topic] = found
            self._remembered += count

    def _forget_matching(self, topic_filter: str) -> None:
        """What was found for topic names that a filter matches is another now."""
        if "+" in topic_filter or "#" in topic_filter:
            self._newer.clear()
            self._older.clear()
            self._remembered = 0
            return
        self._older.pop(topic_filter, None)
        if found := self._newer.pop(topic_filter, None):
            self._remembered -= sum(map(len, found.values()))
