"""Who takes which topics: the cursors' subscriptions, found by topic name whatever their number."""

from typing import TYPE_CHECKING

from gateway.subscriptions import Subscription, SubscriptionTree
from gateway.topic_memory import remember

if TYPE_CHECKING:
    from gateway.store.cursor import Cursor

TOPICS_REMEMBERED = 10_000

Takers = dict["Cursor", tuple[Subscription, ...]]


class Audience:
    """The subscriptions of all cursors that are here."""

    def __init__(self) -> None:
        self._tree: SubscriptionTree[tuple[Cursor, str]] = SubscriptionTree()
        self._known: dict[str, Takers] = {}

    def join(self, cursor: "Cursor", topic_filter: str) -> None:
        """A cursor has a new subscription, or another one of the same topic filter."""
        self._tree.add(topic_filter, (cursor, topic_filter))
        self._known.clear()

    def leave(self, cursor: "Cursor", topic_filter: str) -> None:
        """A cursor has no subscription of this topic filter any more."""
        self._tree.discard(topic_filter, (cursor, topic_filter))
        self._known.clear()

    def takers(self, topic: str) -> Takers:
        """Returns the cursors that take a topic name, each with those of its subscriptions that match."""
        found = self._known.get(topic)
        if found is None:
            found = {}
            for cursor, topic_filter in self._tree.match(topic):
                found[cursor] = (*found.get(cursor, ()), cursor.filters[topic_filter])
            remember(self._known, topic, found, TOPICS_REMEMBERED)
        return found
