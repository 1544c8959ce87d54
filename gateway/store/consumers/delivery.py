"""A message as a consumer gets it, by its subscriptions."""

import sys
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

from gateway.message import Message
from gateway.selectors import Selector, parse_selector, passing
from gateway.subscriptions import Subscription
from wire.topics import matches

ReasonToDrop = Callable[[Message], str | None]
"""Returns why a message that waits is dropped, None: it is not."""
HAND_OUT_BYTES_MAX = 64 * 1024  # of several messages that are handed out together: they are in memory until sent
RANGES_MAX = 100  # for each session that is away, of at least 64 bytes; beyond it the newest two become one


def keep(_: Message) -> str | None:
    """Drops no message."""
    return None


def count_at_once(sizes: list[int]) -> int:
    """Returns how many messages of these sizes, from the first on, are handed out together: at least one."""
    return bisect_right(list(accumulate(sizes)), HAND_OUT_BYTES_MAX) or 1


class Grant(NamedTuple):
    """How a consumer takes a message, by all of its matching subscriptions.

    ``qos`` is the lower of the message's QoS and the highest subscription's. ``retain`` is the message's flag if one of
    the subscriptions takes it as published. ``identifiers`` are the subscriptions' [MQTT-3.3.4-3]; with several of them
    the client gets copies (``grants_apart``).
    """

    qos: int
    retain: bool = False
    identifiers: tuple[int, ...] = ()


class Delivery(NamedTuple):
    """A message with its packet identifier and its grant.

    ``number`` says that it is the n-th message that its consumer has taken, 0 where a cursor does not count them.
    """

    position: int
    packet_identifier: int
    message: Message
    dup: bool
    qos: int
    retain: bool = False
    identifiers: tuple[int, ...] = ()
    number: int = 0

    @property
    def last(self) -> int:
        """The position, as that of the last message of a run."""
        return self.position

    @property
    def size(self) -> int:
        """The bytes of its message, as those of a run."""
        return self.message.content_size

    @property
    def last_number(self) -> int:
        """The number, as that of the last delivery of a run."""
        return self.number


def grant_by(subscriptions: Sequence[Subscription], message: Message) -> Grant:
    """Returns how a message is taken by matching subscriptions, at least one."""
    return Grant(
        min(message.qos, max(subscription.qos for subscription in subscriptions)),
        message.retain and any(subscription.retain_as_published for subscription in subscriptions),
        tuple(subscription.identifier for subscription in subscriptions if subscription.identifier),
    )


def grants_apart(subscriptions: Sequence[Subscription], message: Message, own: Grant) -> list[Grant]:
    """Returns how copies of a message are taken, one for each Subscription Identifier [MQTT-3.3.4-5], the highest QoS
    first. Clients with a handler for each identifier, as Node-RED, cannot read a PUBLISH with several of them.

    Args:
        subscriptions: the subscriptions that match the message.
        message: the message.
        own: how it is taken by all of them together. The first copy has its QoS [MQTT-3.3.4-2].
    """
    by_identifier: dict[int, list[Subscription]] = {}
    for one in subscriptions:
        if one.identifier:
            by_identifier.setdefault(one.identifier, []).append(one)
    if len(by_identifier) < 2:
        return [own._replace(identifiers=tuple(dict.fromkeys(own.identifiers)))]
    grants = [grant_by(some, message)._replace(identifiers=(one,)) for one, some in by_identifier.items()]
    grants.sort(key=lambda grant: -grant.qos)
    return [grants[0]._replace(qos=own.qos), *grants[1:]]


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
            one
            for one in matching
            if (one.since < position or (one.earlier and _took_before(one, position, message.topic)))
            and one.not_from != message.publisher
        ]
        if self._selectors is None:
            return found
        selectors = self._selectors
        passes = passing([selectors[one.topic_filter] for one in found if one.select], message)
        return [one for one in found if not one.select or next(passes)]


def _took_before(subscription: Subscription, position: int, topic: str) -> bool:
    """Whether a filter that a subscription has replaced took a message."""
    return any(since < position and matches(one, topic) for one, since in subscription.earlier)


@dataclass(slots=True)
class Backlog:
    """Messages that are not acknowledged yet, handed out or not, and their bytes."""

    messages: int = 0
    bytes: int = 0

    def add(self, size: int, messages: int = 1) -> None:
        self.messages += messages
        self.bytes += size

    def subtract(self, size: int, messages: int = 1) -> None:
        self.messages -= messages
        self.bytes -= size

    def exceeds(self, messages: int | None, size: int | None) -> bool:
        """Whether it is above a limit of messages or of bytes; None: there is no such limit."""
        return (messages is not None and self.messages > messages) or (size is not None and self.bytes > size)


class RangeSet:
    """Ranges of positions. Ranges are added in order, and joined if they touch."""

    __slots__ = ("_found",)
    MOST = RANGES_MAX

    def __init__(self, ranges: Iterable[tuple[int, int]] = ()) -> None:
        self._found: list[tuple[int, int]] | None = None  # most consumers wait for nothing
        for first, last in sorted(ranges):
            self.add(first, last)

    def add(self, first: int, last: int) -> None:
        """Adds a range: messages at these positions may be for the consumer."""
        if self._found is None:
            self._found = []
        if self._found and (self._found[-1][1] >= first - 1 or len(self._found) >= self.MOST):
            first, before = self._found.pop()
            last = max(last, before)
        self._found.append((first, last))

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return iter(self._found or ())

    def next_behind(self, position: int) -> tuple[int, int] | None:
        """Returns the next range behind a position, or the rest of it; forgets the ranges before it."""
        first = self.behind(position)
        return (first, self._found[0][1]) if first is not None and self._found else None

    def behind(self, position: int) -> int | None:
        """Returns the next position behind one that is in a range, or None; forgets the ranges before it."""
        while self._found and self._found[0][1] <= position:
            self._found.pop(0)
        if not self._found:
            self._found = None
            return None
        return max(self._found[0][0], position + 1)


class AllRanges(RangeSet):
    """The same, and ranges are joined only if they touch."""

    __slots__ = ()
    MOST = sys.maxsize
