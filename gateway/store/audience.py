"""Who takes which topics: the cursors' subscriptions, found by topic name whatever their number."""

from typing import TYPE_CHECKING

from gateway.subscriptions import Subscription, SubscriptionTree
from gateway.topic_memory import remember

if TYPE_CHECKING:
    from gateway.store.cursor import Cursor

TOPICS_REMEMBERED = 10_000
SUBSCRIPTIONS_REMEMBERED = 200_000  # of all these topics together

Takers = dict["Cursor", tuple[Subscription, ...]]


class Audience:
    """The subscriptions of all cursors that are here."""

    def __init__(self) -> None:
        self._tree: SubscriptionTree[tuple[Cursor, str]] = SubscriptionTree()
        self._known: dict[str, Takers] = {}
        self._remembered = 0  # subscriptions

    def join(self, cursor: "Cursor", topic_filter: str) -> None:
        """A cursor has a new subscription, or another one of the same topic filter."""
        self._tree.add(topic_filter, (cursor, topic_filter))
        self._forget()

    def leave(self, cursor: "Cursor", topic_filter: str) -> None:
        """A cursor has no subscription of this topic filter any more."""
        self._tree.discard(topic_filter, (cursor, topic_filter))
        self._forget()

    def takers(self, topic: str) -> Takers:
        """Returns the cursors that take a topic name, each with those of its subscriptions that match."""
        found = self._known.get(topic)
        if found is None:
            subscriptions: dict[Cursor, list[Subscription]] = {}
            for cursor, topic_filter in self._tree.match(topic):
                subscriptions.setdefault(cursor, []).append(cursor.filters[topic_filter])
            found = {cursor: tuple(matching) for cursor, matching in subscriptions.items()}
            self._remember(topic, found)
        return found

    def _remember(self, topic: str, found: Takers) -> None:
        count = sum(map(len, found.values()))
        if self._remembered + count > SUBSCRIPTIONS_REMEMBERED:
            self._forget()
        self._remembered += count
        remember(self._known, topic, found, TOPICS_REMEMBERED)

    def _forget(self) -> None:
        self._known.clear()
        self._remembered = 0
