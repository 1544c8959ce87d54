"""A consumer's place in the log: the one machine behind sessions, shared subscriptions and routes."""

import asyncio
import heapq
from collections import OrderedDict
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from gateway.message import Message
from gateway.subscriptions import Subscription
from wire.topics import matches

if TYPE_CHECKING:
    from gateway.store.log import MessageLog

PACKET_IDENTIFIERS = 65535
READ_LEAST = 32  # messages read at once, when others' messages may lie between those wanted
READ_MOST = 1024
TOPICS_REMEMBERED = 1000


class Delivery(NamedTuple):
    """A message for the consumer; ``qos`` is the lower one of the message's and its subscription's."""

    position: int
    packet_identifier: int
    message: Message
    dup: bool
    qos: int


class _Unacknowledged(NamedTuple):
    position: int
    ordinal: int
    qos: int


class Cursor:
    """What one consumer still has to get, and in which order.

    The durable state is (position, count): everything up to ``position`` is acknowledged or not for this
    consumer, and ``count`` messages were acknowledged in its life. The n-th message it ever takes has packet
    identifier (n - 1) % 65535 + 1, so identifiers are the same again after a crash. The state is saved with the
    log's housekeeping; after a crash some acknowledged messages may come again, none is missed.

    Args:
        log: the log to take from.
        consumer: the durable name, such as ``route/central``.
        filters: topic filters, or subscriptions with their QoS; ``subscribe`` and ``unsubscribe`` change them.
        durable: whether the place survives the process.
        window: most deliveries that the consumer ever holds unacknowledged.

    A new consumer begins at the log's head. Raises ValueError if the consumer has a cursor already.
    """

    def __init__(
        self,
        log: "MessageLog",
        consumer: str,
        filters: Iterable[str | Subscription] = (),
        *,
        durable: bool = True,
        window: int = PACKET_IDENTIFIERS,
    ) -> None:
        self.consumer = consumer
        self.durable = durable
        self.filters: dict[str, Subscription] = {}
        self._log = log
        self._window = window
        self._matching: dict[str, tuple[Subscription, ...]] = {}
        for wanted in filters:
            self.subscribe(wanted if isinstance(wanted, Subscription) else Subscription(wanted))
        self._read, self._taken = log.attach(self)
        # A process before this one may have delivered these, to its last moment.
        self._dup_up_to = (log.head, self._taken + window)
        self._behind = self._read < log.head
        self._unacknowledged: OrderedDict[int, _Unacknowledged] = OrderedDict()
        self._returned: list[tuple[int, int]] = []
        self._news = asyncio.Event()
        self._turn = asyncio.Lock()

    @property
    def position(self) -> int:
        """Everything up to here is acknowledged, or not for this consumer."""
        if self._unacknowledged:
            return next(iter(self._unacknowledged.values())).position - 1
        return self._read

    @property
    def count(self) -> int:
        """How many messages up to ``position`` this consumer has acknowledged, ever."""
        if self._unacknowledged:
            return next(iter(self._unacknowledged.values())).ordinal
        return self._taken

    def subscribe(self, subscription: Subscription) -> None:
        """Adds or replaces the subscription of one topic filter."""
        self.filters[subscription.topic_filter] = subscription
        self._matching.clear()

    def unsubscribe(self, topic_filter: str) -> None:
        """Removes a topic filter; what was delivered by it stays to be acknowledged."""
        self.filters.pop(topic_filter, None)
        self._matching.clear()

    def qos_for(self, position: int, message: Message) -> int | None:
        """Returns the QoS at which this consumer takes a message, or None when it is not for it."""
        subscriptions = self._matching.get(message.topic)
        if subscriptions is None:
            if len(self._matching) >= TOPICS_REMEMBERED:
                self._matching.clear()
            subscriptions = tuple(s for s in self.filters.values() if matches(s.topic_filter, message.topic))
            self._matching[message.topic] = subscriptions
        granted = [
            subscription.qos
            for subscription in subscriptions
            if subscription.since < position and subscription.not_from != message.publisher
        ]
        return min(message.qos, max(granted)) if granted else None

    async def fetch(self, limit: int) -> list[Delivery]:
        """Waits until something is there, then returns up to ``limit`` deliveries in order, at least one.

        Raises:
            sqlite3.Error: the log cannot be read.
        """
        async with self._turn:
            while True:
                self._news.clear()
                deliveries = await self._take_returned(limit) or await self._take_new(limit)
                if deliveries:
                    return deliveries
                await self._news.wait()

    def acknowledge(self, packet_identifier: int) -> bool:
        """Takes note that a delivery arrived; returns whether it was on the way."""
        if self._unacknowledged.pop(packet_identifier, None) is None:
            return False
        self._news.set()
        self._log.changed()
        return True

    def rewind(self) -> None:
        """Makes everything unacknowledged come again: in order, same identifiers, ``dup`` set."""
        self.release(self._unacknowledged)

    def release(self, packet_identifiers: Iterable[int]) -> None:
        """Makes some of the deliveries come again, before anything new; those acknowledged meanwhile do not."""
        waiting = {packet_identifier for _, packet_identifier in self._returned}
        for packet_identifier in packet_identifiers:
            if packet_identifier in self._unacknowledged and packet_identifier not in waiting:
                position = self._unacknowledged[packet_identifier].position
                heapq.heappush(self._returned, (position, packet_identifier))
        self._news.set()

    def notice(self, stored: Iterable[tuple[int, Message]]) -> None:
        """The log's news: while nothing waits to be read, messages for others pass by without being read."""
        if self._behind:
            return
        for position, message in stored:
            if self.qos_for(position, message) is not None:
                self._behind = True
                self._news.set()
                return
            self._read = position

    async def settle(self) -> None:
        """Goes past messages for others, so that a consumer that is away holds on to none of them."""
        async with self._turn:
            await self._upcoming(1)

    def close(self) -> None:
        """Leaves the log; the place of a durable consumer stays, and with it what it still has to get."""
        self._log.detach(self)

    def drop(self) -> None:
        """Leaves the log for good: the consumer gets nothing any more and holds nothing back."""
        self._log.detach(self)
        self._log.forget(self.consumer)

    async def _take_returned(self, limit: int) -> list[Delivery]:
        while self._returned:
            first = self._returned[0][0]
            found = dict(await self._log.read(first - 1, max(limit, READ_LEAST)))
            if deliveries := self._hand_out_again(found, first, limit):
                return deliveries
        return []

    def _hand_out_again(self, found: dict[int, Message], first: int, limit: int) -> list[Delivery]:
        deliveries: list[Delivery] = []
        last = max(found, default=first)
        while self._returned and len(deliveries) < limit and first <= self._returned[0][0] <= last:
            position, packet_identifier = heapq.heappop(self._returned)
            unacknowledged = self._unacknowledged.get(packet_identifier)
            if unacknowledged is None:
                continue
            if position in found:
                message = found[position]
                deliveries.append(Delivery(position, packet_identifier, message, True, unacknowledged.qos))
            else:
                self.acknowledge(packet_identifier)  # the message itself is gone
        return deliveries

    async def _take_new(self, limit: int) -> list[Delivery]:
        limit = min(limit, self._window - (self._taken - self.count))
        if limit <= 0:
            return []
        deliveries: list[Delivery] = []
        for position, message in await self._upcoming(limit):
            if len(deliveries) == limit:
                break
            qos = self.qos_for(position, message)
            if qos is not None:
                deliveries.append(self._hand_out(position, message, qos))
            self._read = position
        return deliveries

    def _hand_out(self, position: int, message: Message, qos: int) -> Delivery:
        packet_identifier = self._taken % PACKET_IDENTIFIERS + 1
        self._unacknowledged[packet_identifier] = _Unacknowledged(position, self._taken, qos)
        head, taken = self._dup_up_to
        dup = position <= head and self._taken < taken
        self._taken += 1
        return Delivery(position, packet_identifier, message, dup, qos)

    async def _upcoming(self, limit: int) -> list[tuple[int, Message]]:
        """Reads on, past messages for others, up to and including the next ones for this consumer."""
        reading = max(limit, READ_LEAST)
        while self._read < self._log.head:
            found = await self._log.read(self._read, reading)
            for index, (position, message) in enumerate(found):
                if self.qos_for(position, message) is not None:
                    return found[index:]
                self._read = position
            if not found:
                self._read = self._log.head
            reading = min(2 * reading, READ_MOST)
        self._behind = False
        return []
