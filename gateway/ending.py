"""A consumer that has ended, held against the log: what waited for it."""

from gateway.message import Message
from gateway.store.cursor import Cursor
from gateway.store.drops import ENDED, Spans
from gateway.store.endings import StoredEnding
from gateway.store.groups import Gap, Group, Part
from gateway.store.log import MessageLog
from gateway.store.rights import Rights
from gateway.store.run import Run
from gateway.store.set_aside import SetAside
from gateway.store.stretches import Stretches
from gateway.subscriptions import Subscription, SubscriptionTree
from gateway.topic_memory import remember

TOPICS_REMEMBERED = 1024


def describe(cursor: Cursor, log: MessageLog, on_the_way: set[int]) -> StoredEnding:
    """Returns a consumer as it is.

    Args:
        cursor: its cursor, as long as that has its subscriptions.
        log: the message log.
        on_the_way: positions of what was sent to it and is not acknowledged, of QoS 2 messages: not received.
    """
    unread_from = cursor.unread_from
    given_away = log.passed(cursor.consumer) if cursor.durable else set()
    subscriptions = list(cursor.filters.values())
    places = cursor.places if subscriptions else []
    on_its_way = sorted(on_the_way)
    return StoredEnding(
        cursor.consumer, unread_from, on_its_way, sorted(given_away), places, subscriptions, cursor.set_aside.copy()
    )


class Ending:
    """A consumer as it was.

    ``next`` is where something for it may be that was not looked at yet, None at the end; ``spans`` are what it had
    not got of what was looked at. All behind ``position`` is kept until that is durable: after a kill it is looked at
    again.

    Args:
        number: what it is stored by.
        stored: the consumer.
        rights: what it might receive.
        gone: up to here no consumer gets anything any more.
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
        # Behind this topic name and publisher say whether a message was for it.
        since = [subscription.since for subscription in self._subscriptions]
        self._usual_from = max([*on_the_way, *self._given_away, self._unread_from, rights.changed, *since])
        self._tree: SubscriptionTree[Subscription] | None = None
        self._known: dict[str, frozenset[str | None]] = {}
        self._places = Stretches([*((position, position) for position in on_the_way), *stored.places])
        self._set_aside = SetAside(stored.set_aside)
        firsts = (first for first, _ in self._set_aside.values())
        self.position = min([*on_the_way, self._unread_from + 1, *firsts]) - 1
        self.next = self._places.behind(self.position)
        self.evict(gone)

    def evict(self, position: int) -> None:
        """The log drops what is up to a position, and has a range for it."""
        self._on_the_way = {other for other in self._on_the_way if other > position}
        self._unread_from = max(self._unread_from, position)
        self._usual_from = max(self._usual_from, position)
        self.position = max(self.position, position)
        if self.next is not None and self.next <= position:
            self.next = self._places.behind(position)

    def look_at(self, group: Group) -> int:
        """Takes note of what was for the consumer; returns how many were looked at, a run as a whole for one."""
        if self.next is None or self.next > group.last:
            return 0
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

    def _look_at_part(self, first: int, part: Part | Gap) -> int:
        if isinstance(part, Gap):
            return 1
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
        if position in self._given_away:
            return False
        if position <= self._unread_from:
            return self._set_aside.holds(position, message.topic)
        matching = self._matching(message.topic)
        is_for_it = any(one.since < position and one.not_from != message.publisher for one in matching)
        return is_for_it and self._rights.might_receive(position, message.topic)

    def _wants(self, topic: str, publisher: str) -> bool:
        """The same by topic name and publisher alone."""
        not_from = self._known.get(topic)
        if not_from is None:
            matching = self._matching(topic) if self._rights.may_receive(topic) else ()
            not_from = frozenset(one.not_from for one in matching)
            remember(self._known, topic, not_from, TOPICS_REMEMBERED)
        return len(not_from) > (publisher in not_from)

    def _matching(self, topic: str) -> set[Subscription]:
        if self._tree is None:
            self._tree = SubscriptionTree()
            for subscription in self._subscriptions:
                self._tree.add(subscription.topic_filter, subscription)
        return self._tree.match(topic)
