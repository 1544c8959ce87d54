"""Deliveries: messages as a consumer gets them, by its subscriptions, and which have no acknowledgement yet.

Deliveries are handed out again when the connection on which they were sent has ended. A full store may evict their
messages meanwhile: such a delivery may still arrive, but does not come again.
"""

import heapq
import sys
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

from gateway.message import Message
from gateway.store.tables.evicted import EvictedMessage
from gateway.subscriptions import Subscription

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


Entry = tuple[int, Grant, int, int]
"""A delivery without an acknowledgement: position, grant, size, and how many messages were taken before it."""


class InFlight:
    """A cursor's deliveries without an acknowledgement.

    ``entries`` has them by packet identifier, in the order in which they were handed out: in the order of their
    positions, but for those in ``late``, which has their positions. ``evicted`` are the ones whose messages a full
    store has evicted. ``waiting`` is a heap of deliveries to hand out again, each as its position and its packet
    identifier; some of them may have been acknowledged since.
    """

    __slots__ = ("entries", "evicted", "late", "waiting")

    def __init__(self) -> None:
        self.entries: OrderedDict[int, Entry] = OrderedDict()
        self.evicted: dict[int, EvictedMessage] = {}
        self.late: dict[int, int] = {}
        self.waiting: list[tuple[int, int]] = []

    @property
    def oldest(self) -> int:
        """The lowest position. Raises StopIteration if there is no delivery."""
        first = next(iter(self.entries.values()))[0]
        return min(first, *self.late.values()) if self.late else first

    @property
    def oldest_left(self) -> int:
        """The lowest position of a delivery whose message is not evicted; above all positions if there is none."""
        left = (position for number, (position, *_) in self.entries.items() if number not in self.evicted)
        return min(left, default=sys.maxsize)

    @property
    def waiting_from(self) -> int:
        """The position of the next delivery that is handed out again. Raises IndexError."""
        return self.waiting[0][0]

    @property
    def to_redeliver(self) -> set[int]:
        """The packet identifiers of the deliveries that are handed out again."""
        return {packet_identifier for _, packet_identifier in self.waiting}

    def used(self, taken: int) -> int:
        """Returns how many packet identifiers are in use after ``taken`` messages; a dropped message takes one too."""
        for _, _, _, before in self.entries.values():
            return taken - before
        return 0

    def positions(self) -> list[int]:
        """Returns the position of each delivery."""
        return [position for position, *_ in self.entries.values()]

    def sizes(self) -> list[int]:
        """Returns the bytes of each delivery."""
        return [size for _, _, size, _ in self.entries.values()]

    def place_of(self, packet_identifier: int) -> tuple[int, int]:
        """Returns position and number of a delivery. Raises KeyError."""
        position, _, _, taken = self.entries[packet_identifier]
        return position, taken + 1

    def take(self, packet_identifiers: Sequence[int]) -> list[Entry]:
        """Removes deliveries that have arrived; returns the ones that were here."""
        pop = self.entries.pop
        found = [pop(packet_identifier, None) for packet_identifier in packet_identifiers]
        if self.late or self.evicted:
            for packet_identifier in packet_identifiers:
                self.late.pop(packet_identifier, None)
                if evicted := self.evicted.pop(packet_identifier, None):
                    evicted.arrived()
        return [one for one in found if one is not None]

    def lose(self, messages: dict[int, Message], last: int, note: Callable[[Message], EvictedMessage]) -> None:
        """The log evicts messages, by position, up to ``last``. ``note`` makes what learns how a delivery ends."""
        for packet_identifier, (position, *_) in self.entries.items():
            if position > last and not self.late:
                break
            if position in messages and packet_identifier not in self.evicted:
                self.evicted[packet_identifier] = note(messages[position])

    def give_up(self, packet_identifiers: Iterable[int]) -> None:
        """These evicted deliveries can no longer arrive."""
        for packet_identifier in packet_identifiers:
            self.evicted.pop(packet_identifier).lost()

    def redeliver(self, packet_identifiers: set[int]) -> None:
        """Deliveries are handed out again; others than those in flight are passed over."""
        for packet_identifier in (packet_identifiers - self.to_redeliver) & self.entries.keys():
            heapq.heappush(self.waiting, (self.entries[packet_identifier][0], packet_identifier))

    def take_again(self, first: int, found: dict[int, Message], limit: int) -> tuple[list[Delivery], list[int]]:
        """Takes the next deliveries that are handed out again, as far as the log was read for them.

        Args:
            first: the position from which on the log was read; an earlier one may have been added meanwhile.
            found: what was read, by position.
            limit: the most deliveries.

        Returns:
            The deliveries, and the packet identifiers of others that have lost their messages.
        """
        deliveries: list[Delivery] = []
        gone: list[int] = []
        last = max(found, default=first)
        while self.waiting and len(deliveries) < limit and first <= self.waiting_from <= last:
            position, packet_identifier = heapq.heappop(self.waiting)
            entry = self.entries.get(packet_identifier)
            if entry is None:
                continue
            if position in found:
                _, grant, _, taken = entry
                deliveries.append(Delivery(position, packet_identifier, found[position], True, *grant, taken + 1))
            else:
                gone.append(packet_identifier)
        return deliveries, gone


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

    def clear(self) -> None:
        """Removes all ranges."""
        self._found = None

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
