"""The messages of one consumer, counted in quotas with a limit each: a quota has the messages of one origin, or below
one topic filter.

A message that waits and belongs to a quota beyond its limit is dropped when the consumer comes to it. The consumer
comes to the oldest messages first, so these go, and messages of other quotas stay.
"""

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeVar

from gateway.message import Message
from gateway.store.consumers.delivery import Backlog
from gateway.store.tables.log_rows import Part, PublishBatch
from gateway.subscriptions import SubscriptionTree
from gateway.topic_memory import remember

ORIGINS_MAX = 10_000  # of which messages wait; further ones are counted together, as one origin, until none waits
OTHERS = ""
TOPICS_REMEMBERED = 10_000

Key = TypeVar("Key", bound=Hashable)


class Limit(NamedTuple):
    """The most messages and bytes of a quota, None: no limit. ``discards``: messages beyond it are dropped."""

    max_messages: int | None
    max_bytes: int | None
    discards: bool = True


@dataclass(slots=True)
class Quota:
    """The messages of one quota that wait, and the messages that are in flight.

    ``excess`` is how many messages that wait, and how many bytes of these, are to be dropped, as of the last
    ``settle``. Where bytes decide, it is an estimate.
    """

    limit: Limit
    waiting: Backlog = field(default_factory=Backlog)
    in_flight: Backlog = field(default_factory=Backlog)
    excess: tuple[int, int] = (0, 0)

    @property
    def is_over(self) -> bool:
        """Whether it is beyond its limit."""
        return self._is_beyond(0)

    @property
    def is_full(self) -> bool:
        """Whether it is at its limit, or beyond."""
        return self._is_beyond(1)

    def settle(self) -> None:
        """Finds ``excess`` after a change."""
        most, bytes_most, discards = self.limit
        if not discards or not self.is_over:
            self.excess = 0, 0
            return
        messages, size = kept, kept_size = self.waiting.messages, self.waiting.bytes
        if most is not None and messages > (room := max(0, most - self.in_flight.messages)):
            kept, kept_size = room, size * room // messages
        if bytes_most is not None and size > (room := max(0, bytes_most - self.in_flight.bytes)):
            kept, kept_size = min(kept, messages * room // size), min(kept_size, room)
        self.excess = messages - kept, size - kept_size

    def _is_beyond(self, less: int) -> bool:
        """Whether it has more messages or bytes than its limit, which is by one less if ``less`` is 1."""
        most, bytes_most, _ = self.limit
        return (most is not None and self.waiting.messages + self.in_flight.messages > most - less) or (
            bytes_most is not None and self.waiting.bytes + self.in_flight.bytes > bytes_most - less
        )


class Quotas(Generic[Key]):
    """The quotas of one consumer.

    ``excess`` is how many messages, and how many bytes of these, are beyond the limits of their quotas. Which messages
    these are shows when the consumer comes to them. A message in several quotas may count several times.
    """

    def __init__(self) -> None:
        self._of: dict[Key, Quota] = {}
        self.excess = Backlog()

    def is_over(self, message: Message) -> bool:
        """Whether a message that waits is to be dropped, as one of its quotas is beyond its limit."""
        for key in self._keys_of(message):
            if (quota := self._of.get(key)) is not None and quota.limit.discards and quota.is_over:
                return True
        return False

    def add(self, part: Part) -> None:
        """Counts a message that waits, or all messages of a batch."""
        raise NotImplementedError

    def subtract(self, message: Message) -> None:
        """A message waits no more."""
        size = message.content_size
        for key in self._keys_of(message):
            if quota := self._of.get(key):
                quota.waiting.subtract(size)
                self._settle(key, quota)

    def hand_out(self, position: int, message: Message, *, has_waited: bool) -> None:
        """The message at a position is in flight. ``has_waited``: it was counted before."""
        if has_waited:
            self.subtract(message)

    def clear(self) -> None:
        """Counts the messages that wait anew, beginning with none."""
        for quota in self._of.values():
            quota.waiting, quota.excess = Backlog(), (0, 0)
        self._of = {key: quota for key, quota in self._of.items() if quota.in_flight.messages}
        self.excess = Backlog()

    def _keys_of(self, message: Message) -> Sequence[Key]:
        """Returns the quotas of a message that is counted."""
        raise NotImplementedError

    def _settle(self, key: Key, quota: Quota) -> None:
        """A quota has changed."""
        messages, size = quota.excess
        quota.settle()
        self.excess.add(quota.excess[1] - size, quota.excess[0] - messages)
        if not quota.waiting.messages and not quota.in_flight.messages:
            del self._of[key]


class OriginQuotas(Quotas[str]):
    """The messages that wait for one consumer, by origin; those in flight do not count.

    Args:
        max_messages: the most messages of one origin, None: no limit.
        max_bytes: the most bytes of these.
    """

    def __init__(self, max_messages: int | None, max_bytes: int | None) -> None:
        super().__init__()
        self._limit = Limit(max_messages, max_bytes)

    def add(self, part: Part) -> None:
        if not isinstance(part, PublishBatch):
            self._add(part.origin, part.count, part.content_size)
        elif not part.bring_identities:
            self._add(part.gateway, part.count, part.content_size)
        else:
            for message in part.messages():
                self._add(message.origin, 1, message.content_size)

    def _keys_of(self, message: Message) -> Sequence[str]:
        return (message.origin,) if message.origin in self._of else (OTHERS,)

    def _add(self, origin: str, messages: int, size: int) -> None:
        # An origin is either among the others or by itself: it does not become one of its own while others wait.
        if origin not in self._of and (OTHERS in self._of or len(self._of) >= ORIGINS_MAX):
            origin = OTHERS
        quota = self._of.setdefault(origin, Quota(self._limit))
        quota.waiting.add(size, messages)
        self._settle(origin, quota)


class TopicLimits:
    """The limits below topic filters, for each consumer; a limit has the number of its place.

    Args:
        limits: topic filters, each with its limit.
    """

    def __init__(self, limits: Iterable[tuple[str, Limit]]) -> None:
        self._limits: list[Limit] = []
        self._tree: SubscriptionTree[int] = SubscriptionTree()
        for number, (topic_filter, limit) in enumerate(limits):
            self._limits.append(limit)
            self._tree.add(topic_filter, number)
        self._known: dict[str, tuple[int, ...]] = {}

    def __getitem__(self, number: int) -> Limit:
        return self._limits[number]

    def matching(self, topic: str) -> tuple[int, ...]:
        """Returns the numbers of the limits that a topic name counts for, in order."""
        found = self._known.get(topic)
        if found is None:
            found = tuple(sorted(number for _, numbers in self._tree.match(topic) for number in numbers))
            remember(self._known, topic, found, TOPICS_REMEMBERED)
        return found


class TopicQuotas(Quotas[int]):
    """The messages that wait for one consumer or are in flight to it, by the limits that their topic names match.

    Args:
        limits: the gateway's.
    """

    def __init__(self, limits: TopicLimits) -> None:
        super().__init__()
        self._limits = limits
        self._in_flight: dict[int, tuple[int, ...]] = {}  # the limits of each message in flight, by position

    def has(self, topic: str) -> bool:
        """Whether messages of a topic name are counted."""
        return bool(self._limits.matching(topic))

    def is_full(self, number: int) -> bool:
        """Whether the consumer is at a limit."""
        quota = self._of.get(number)
        return quota is not None and quota.is_full

    def add(self, part: Part) -> None:
        kinds = {self._limits.matching(topic) for topic in part.topics}
        if len(kinds) == 1:
            self._add(kinds.pop(), part.count, part.content_size)
        elif isinstance(part, PublishBatch):
            for message in part.messages():
                self._add(self._limits.matching(message.topic), 1, message.content_size)

    def hand_out(self, position: int, message: Message, *, has_waited: bool) -> None:
        if not (numbers := self._limits.matching(message.topic)):
            return
        size = message.content_size
        self._in_flight[position] = numbers
        for number in numbers:
            quota = self._quota(number)
            quota.in_flight.add(size)
            if has_waited:
                quota.waiting.subtract(size)
            self._settle(number, quota)

    def acknowledge(self, position: int, size: int) -> None:
        """The message at a position is in flight no more."""
        for number in self._in_flight.pop(position, ()):
            quota = self._of[number]
            quota.in_flight.subtract(size)
            self._settle(number, quota)

    def _keys_of(self, message: Message) -> Sequence[int]:
        return self._limits.matching(message.topic)

    def _quota(self, number: int) -> Quota:
        if (quota := self._of.get(number)) is None:
            quota = self._of[number] = Quota(self._limits[number])
        return quota

    def _add(self, numbers: Iterable[int], messages: int, size: int) -> None:
        for number in numbers:
            quota = self._quota(number)
            quota.waiting.add(size, messages)
            self._settle(number, quota)
