"""Which messages are for a consumer: its subscriptions decide, and its access rules when a message was stored."""

import sys
from collections.abc import Callable, Container, Sequence
from typing import Any

from gateway.message import Message
from gateway.selectors import Selector, parse_selector, passing
from gateway.store.consumers.delivery import Grant, grant_by
from gateway.store.consumers.log_reader import LogReader
from gateway.subscriptions import Subscription
from wire.topics import matches

MayReceive = Callable[[str], bool]
"""Returns whether messages of a topic name may be received."""


def everything(_: str) -> bool:
    """Allows every topic name."""
    return True


class Rights:
    """The access rules of a consumer, by the position of the message.

    Args:
        may_receive: whether the consumer may receive messages of a topic name by today's rules.

    ``changed`` is the position up to which former rules apply.
    """

    def __init__(self, may_receive: MayReceive = everything) -> None:
        self.may_receive = may_receive
        self.changed = 0
        self._before: list[tuple[int, MayReceive]] = []  # each up to a position

    def change(self, before: MayReceive, read: int, head: int) -> None:
        """The rules behind ``may_receive`` have changed. A message waits if it was allowed when it was stored. If it no
        longer is, it leaves a range when it is read, and does not count as waiting.

        Args:
            before: answers by the former rules.
            read: the consumer has read up to this position.
            head: the log's newest position.
        """
        self._before = [(last, might) for last, might in self._before if last > read]
        self._before.append((head, before))
        self.changed = head

    def might_receive(self, position: int, topic: str) -> bool:
        """Whether the consumer might receive a topic name when the message at a position was stored."""
        if position > self.changed:
            return self.may_receive(topic)
        might = next((might for last, might in self._before if position <= last), self.may_receive)
        return might(topic)


class Subscriptions(dict[str, Subscription]):
    """A consumer's subscriptions, by topic filter."""

    __slots__ = ("_newest_since", "_no_locals", "_selectors")

    def __init__(self) -> None:
        super().__init__()
        self._newest_since = self._no_locals = 0
        self._selectors: dict[str, Selector] | None = None  # by topic filter; most consumers have none

    @property
    def usual_from(self) -> int:
        """Behind this position, only the topic name decides which subscriptions a message matches."""
        return sys.maxsize if self._no_locals or self._selectors else self._newest_since

    def add(self, subscription: Subscription) -> None:
        """Adds or replaces the subscription of a topic filter."""
        self.remove(subscription.topic_filter)
        self[subscription.topic_filter] = subscription
        self._newest_since = max(self._newest_since, subscription.since)
        self._no_locals += subscription.not_from is not None
        if subscription.select:
            selector = parse_selector(subscription.select)
            self._selectors = {**(self._selectors or {}), subscription.topic_filter: selector}

    def remove(self, topic_filter: str) -> bool:
        """Removes the subscription of a topic filter; returns whether there was one."""
        subscription = self.pop(topic_filter, None)
        if subscription is None:
            return False
        self._no_locals -= subscription.not_from is not None
        if self._selectors is not None and subscription.select:
            del self._selectors[topic_filter]
            self._selectors = self._selectors or None
        return True

    def granting(self, matching: Sequence[Subscription], position: int, message: Message) -> list[Subscription]:
        """Returns those of the subscriptions matching its topic name that take a message."""
        found = [
            one for one in matching if is_since(one, position, message.topic) and one.not_from != message.publisher
        ]
        if self._selectors is None:
            return found
        selectors = self._selectors
        passes = passing([selectors[one.topic_filter] for one in found if one.select], message)
        return [one for one in found if not one.select or next(passes)]


def is_since(subscription: Subscription, position: int, topic: str) -> bool:
    """Whether a subscription was there before a message, or a filter that it has replaced and that took it."""
    if subscription.since < position:
        return True
    return any(since < position and matches(one, topic) for one, since in subscription.earlier)


class Taker:
    """A consumer as far as it says which messages are for it, and how it takes them.

    ``filters`` are its subscriptions, ``rights`` its access rules. Messages of the publishers ``not_from`` are not for
    it, and none is once it is ``closed``. ``takes_qos_0``: a subscription does.
    """

    filters: Subscriptions
    rights: Rights
    closed = False
    takes_qos_0 = False
    not_from: Container[str] = ()
    _log: LogReader[Any]
    unsubscribed_up_to = 0

    def subscribe(self, subscription: Subscription) -> None:
        """Adds or replaces the subscription of one topic filter."""
        self.filters.add(subscription)
        self.takes_qos_0 |= subscription.takes_qos_0
        self._log.audience.join(self, subscription.topic_filter)

    def unsubscribe(self, topic_filter: str) -> None:
        """Removes a topic filter; its deliveries still wait for their acknowledgements."""
        if self.filters.remove(topic_filter):
            self._log.audience.leave(self, topic_filter)
            self.unsubscribed_up_to = self._log.head  # no delivery in flight is behind it

    def grant(self, position: int, message: Message) -> Grant | None:
        """Returns how this consumer takes a stored message, None if it is not for it."""
        granting = self.granting(position, message)
        if not message.qos:
            granting = [subscription for subscription in granting if subscription.takes_qos_0]
        grant = grant_by(granting, message) if granting else None
        return grant if grant is None or message.qos else grant._replace(qos=1)

    def grant_now(self, message: Message) -> Grant | None:
        """Returns how it takes a message of QoS 0 as it comes, None if it is not for it."""
        return grant_by(granting, message) if (granting := self.granting(sys.maxsize, message)) else None

    def takes(self, position: int, message: Message) -> bool:
        """Whether a stored message is for this consumer."""
        return any(message.qos or one.takes_qos_0 for one in self.granting(position, message))

    def matching(self, topic: str) -> Sequence[Subscription]:
        """Returns the subscriptions that match a topic name."""
        return self._log.audience.takers(topic).get(self, ())

    def granting(self, position: int, message: Message) -> list[Subscription]:
        if self.closed or message.publisher in self.not_from:
            return []
        granting = self.filters.granting(self.matching(message.topic), position, message)
        return granting if granting and self.rights.might_receive(position, message.topic) else []

    @property
    def _usual_from(self) -> int:
        """Behind this position a grant depends only on topic name, QoS and retain flag."""
        return max(self.filters.usual_from, self.rights.changed)
