"""A consumer's place in the log: the one machine behind sessions, shared subscriptions and routes."""

import asyncio
import heapq
import sys
from collections import OrderedDict
from collections.abc import Callable, Container, Iterable, Sequence
from typing import TYPE_CHECKING

from gateway.message import Message
from gateway.pace import Slice
from gateway.signals import Signal
from gateway.store.backlog import Backlog, queued_size
from gateway.store.delivery import Delivery, Grant, grant_by
from gateway.store.drops import EVICTED, FILTERED
from gateway.store.groups import Part
from gateway.store.rights import Rights, everything
from gateway.store.set_aside import SetAside
from gateway.store.stretches import Stretches
from gateway.store.unsettled import Missing
from gateway.subscriptions import Subscription

if TYPE_CHECKING:
    from gateway.store.log import MessageLog

PACKET_IDENTIFIERS = 65535
SET_ASIDE_MOST = 1000  # topic names whose messages wait for another of those that share a consumer; then it stops
READ_LEAST = 32  # messages read at once, when others' messages may lie between those wanted
READ_MOST = 1024

_new = tuple.__new__  # a NamedTuple's own takes three times as long


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
        window: most deliveries that the consumer ever holds unacknowledged. Where that is more than there are packet
            identifiers, those of the deliveries go on beyond them, and others have to go on a line.

    ``closed`` says whether it has left the log, ``rights`` which topic names' messages the consumer may have, where
    there are rules for it, ``may_be_taken`` whether one of those that share it may; ``backlog`` counts what waits for
    it, where there is a limit for that and it has been counted; ``noticed`` is what may wait at most, as all counts
    that came in the same commits. While ``reading`` is held, nothing is handed out. ``stretches`` are where
    something may wait for it; ``passed`` are positions that were given away while what is before them waits;
    ``set_aside`` is what waits for another one of those that share it.
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
        self.rights = Rights()
        self.may_be_taken: Callable[[str], bool] = everything
        self.closed = False
        self.backlog: Backlog | None = Backlog() if log.counts_backlogs else None
        self.noticed = Backlog()
        self._log = log
        self._window = window
        self._identifiers = max(window, PACKET_IDENTIFIERS)
        self._newest_since = self._no_locals = 0  # of the subscriptions
        self._unsubscribed_up_to = 0
        for wanted in filters:
            self.subscribe(wanted if isinstance(wanted, Subscription) else Subscription(wanted))
        # position, grant, size, and how many were taken before it
        self._unacknowledged: OrderedDict[int, tuple[int, Grant, int, int]] = OrderedDict()
        self.set_aside = SetAside()
        self._behind = False
        self._read, self._taken = log.attach(self)
        self.passed = dict.fromkeys(log.passed(consumer) if durable else ())  # a set takes more memory
        # A process before this one may have delivered these, to its last moment.
        self._dup_up_to = (log.head, self._taken + min(window, PACKET_IDENTIFIERS))
        self.stretches = Stretches()
        self._behind = self._read < log.head
        if self._behind:
            self.stretches.add(self._read + 1, log.head)
            self.backlog = None  # until it is counted
            self.noticed = Backlog(log.count_behind(self._read))  # how large they are is not known
        self._returned: list[tuple[int, int]] = []
        self._missing: dict[int, Missing] = {}  # of what is on its way, by packet identifier: what the log has dropped
        self._late: dict[int, int] = {}  # of these the positions of those that were set aside before
        self._refused: dict[int, str] = {}  # of these, by packet identifier the topic name
        self._changes = self._considered = 0  # of what those that share it may have
        self._news = Signal()
        self._wake: Callable[[], None] | None = None
        self._turn = asyncio.Lock()
        self.reading = asyncio.Lock()

    @property
    def position(self) -> int:
        """Everything up to here is acknowledged, or not for this consumer."""
        if not self._unacknowledged:
            return max(self._log.gone, self.waiting_from)
        oldest = next(iter(self._unacknowledged.values()))[0]
        if self._late or self.set_aside:
            oldest = min(oldest, self.waiting_from + 1, *self._late.values())
        return max(self._log.gone, oldest - 1)

    @property
    def count(self) -> int:
        """How many messages up to ``position`` this consumer has acknowledged, ever."""
        if self._unacknowledged:
            return next(iter(self._unacknowledged.values()))[3]
        return self._taken

    @property
    def on_the_way(self) -> Container[int]:
        """The packet identifiers of what is handed out and not acknowledged."""
        return self._unacknowledged

    @property
    def handed_out(self) -> list[int]:
        """The positions of these."""
        return [position for position, *_ in self._unacknowledged.values()]

    @property
    def unsubscribed(self) -> list[int]:
        """Positions of what was handed out and may be of a subscription that is there no more [MQTT-3.10.4-3]."""
        return self.handed_out if self._unsubscribed_up_to > self.position else []

    @property
    def unread_from(self) -> int:
        """Everything up to here was handed out or set aside, or is not for this consumer."""
        self._skip()
        return self._read if self._behind else self._log.head

    @property
    def waiting_from(self) -> int:
        """Nothing up to here waits to be handed out."""
        unread_from = self.unread_from
        return min(unread_from, self.set_aside.first - 1) if self.set_aside else unread_from

    @property
    def places(self) -> list[tuple[int, int]]:
        """Stretches of positions where something may wait to be handed out."""
        if not self.set_aside:
            return list(self.stretches)
        return [(self.waiting_from + 1, self.set_aside.last), *self.stretches]

    def _skip(self) -> None:
        """Goes past what cannot be for this consumer."""
        if self._behind:
            wanted = self.stretches.behind(self._read)
            self._behind = wanted is not None
            self._read = self._log.head if wanted is None else wanted - 1

    def subscribe(self, subscription: Subscription) -> None:
        """Adds or replaces the subscription of one topic filter."""
        if before := self.filters.get(subscription.topic_filter):
            self._no_locals -= before.not_from is not None
        self.filters[subscription.topic_filter] = subscription
        self._no_locals += subscription.not_from is not None
        self._newest_since = max(self._newest_since, subscription.since)
        self._log.audience.join(self, subscription.topic_filter)

    def unsubscribe(self, topic_filter: str) -> None:
        """Removes a topic filter; what was delivered by it stays to be acknowledged."""
        if subscription := self.filters.pop(topic_filter, None):
            self._no_locals -= subscription.not_from is not None
            self._log.audience.leave(self, topic_filter)
            self._unsubscribed_up_to = max(self.handed_out, default=0)

    def change_rights(self, before: Callable[[str], bool]) -> None:
        """``rights`` answer by other rules from now on; ``before`` answers as they did until now.

        What waits is still what was allowed when it was stored. Where it no longer is, it leaves a range when its turn
        comes, and does not count in ``backlog``.
        """
        self.rights.change(before, self.unread_from, self._log.head)

    def grant(self, position: int, message: Message) -> Grant | None:
        """Returns how this consumer takes a message, or None when it is not for it."""
        granting = self._granting(position, message)
        return grant_by(granting, message) if granting else None

    def takes(self, position: int, message: Message) -> bool:
        """Whether a message is for this consumer."""
        return bool(self._granting(position, message))

    def _granting(self, position: int, message: Message) -> list[Subscription]:
        subscriptions = self._log.audience.takers(message.topic).get(self, ())
        granting = [s for s in subscriptions if s.since < position and s.not_from != message.publisher]
        return granting if granting and not self.closed and self.rights.might_receive(position, message.topic) else []

    @property
    def _usual_from(self) -> int:
        """Behind which position a grant depends on neither that nor the publisher, nor on rules of before."""
        return sys.maxsize if self._no_locals else max(self._newest_since, self.rights.changed)

    async def fetch(self, limit: int, may_have: Callable[[str], bool] = everything) -> list[Delivery]:
        """Waits, then returns up to ``limit`` deliveries in order, at least one. Raises sqlite3.Error.

        Args:
            limit: how many at most.
            may_have: for a consumer that many share, which topic names' messages the one that fetches may have: those
                that it may not wait for others.
        """
        while True:
            async with self._turn:  # those that share it take turns
                while not (deliveries := await self.fetch_now(limit, may_have)):
                    if self._refused or self.set_aside:
                        break
                    await self._news.wait()
            if deliveries:
                return deliveries
            await self._news.wait()  # what there is waits for others, whose turn it is

    async def fetch_now(self, limit: int, may_have: Callable[[str], bool] = everything) -> list[Delivery]:
        """The same without waiting, where ``wake_with`` tells when there is something: there may be none."""
        async with self.reading:
            self._news.clear()
            if may_have is everything:
                return await self._take_returned(limit) or await self._take_new(limit, may_have)
            self._offer_refused(may_have)
            while returned := await self._take_returned(limit):
                for delivery in returned:
                    if not may_have(delivery.message.topic):
                        self.refuse(delivery)
                if chosen := [delivery for delivery in returned if may_have(delivery.message.topic)]:
                    return chosen
            return await self._take_set_aside(limit, may_have) or await self._take_new(limit, may_have)

    def refuse(self, delivery: Delivery) -> None:
        """The consumer that has fetched a delivery may not have it: it waits for another one, as long as one may."""
        if delivery.packet_identifier in self._missing:
            self._lose_for_good([delivery.packet_identifier])
        elif self.may_be_taken(delivery.message.topic):
            self._refused[delivery.packet_identifier] = delivery.message.topic
            self._tell()
        else:
            self._log.drop(FILTERED, self.consumer, delivery.message)
            self.acknowledge(delivery.packet_identifier)

    def reconsider(self) -> None:
        """Other consumers may have what was refused or set aside, or may not have it any more."""
        self._changes += 1
        self._tell()

    def _offer_refused(self, may_have: Callable[[str], bool]) -> None:
        """Hands out again what the one that fetches may have, or what no consumer may have any more."""
        for packet_identifier, topic in list(self._refused.items()):
            if may_have(topic) or not self.may_be_taken(topic):
                del self._refused[packet_identifier]
                self.release([packet_identifier])

    def wake_with(self, wake: Callable[[], None] | None) -> None:
        """From now on this is called whenever there may be something for ``fetch_now``, which is now, perhaps."""
        self._wake = wake
        self._tell()

    def _tell(self) -> None:
        self._news.set()
        if self._wake is not None and (self._behind or self._returned):
            self._wake()

    def acknowledge(self, packet_identifier: int) -> bool:
        """Takes note that a delivery arrived; returns whether it was on the way."""
        return self.acknowledge_all([packet_identifier]) > 0

    def acknowledge_all(self, packet_identifiers: Sequence[int]) -> int:
        """Takes note that deliveries arrived; returns how many of them were on the way."""
        arrived = 0
        for packet_identifier in packet_identifiers:
            if unacknowledged := self._unacknowledged.pop(packet_identifier, None):
                arrived += 1
                self._late.pop(packet_identifier, None)
                if missing := self._missing.pop(packet_identifier, None):
                    missing.arrived()
                if self.backlog is not None:
                    self.backlog.subtract(unacknowledged[2])
        if arrived:
            self._tell()
            self._log.changed()
        return arrived

    def rewind(self) -> None:
        """Makes everything unacknowledged come again: in order, same identifiers, ``dup`` set."""
        self.release(self._unacknowledged)

    def release(self, packet_identifiers: Iterable[int]) -> None:
        """Makes some of the deliveries come again, before anything new; those acknowledged meanwhile do not.

        Nor do those that a full store has dropped meanwhile: they leave ranges.
        """
        waiting = {packet_identifier for _, packet_identifier in self._returned}
        missed = []
        for packet_identifier in packet_identifiers:
            if packet_identifier in self._missing:
                missed.append(packet_identifier)
            elif packet_identifier in self._unacknowledged and packet_identifier not in waiting:
                position = self._unacknowledged[packet_identifier][0]
                heapq.heappush(self._returned, (position, packet_identifier))
        self._lose_for_good(missed)
        self._tell()

    def lose(self, messages: dict[int, Message], last: int, missing: Callable[[str, Message], Missing]) -> None:
        """The log drops its oldest messages, up to a position: those on their way may arrive yet, but not come again.

        Args:
            messages: what it drops, by position.
            last: the last position.
            missing: returns what is told how it ends with a message.
        """
        missed = []
        back = {packet_identifier for _, packet_identifier in self._returned} if self._unacknowledged else set()
        for packet_identifier, (position, *_) in self._unacknowledged.items():
            if position > last and not self._late:
                break
            if position in messages:
                self._missing[packet_identifier] = missing(self.consumer, messages[position])
                if packet_identifier in back or packet_identifier in self._refused:
                    missed.append(packet_identifier)
        self._lose_for_good(missed)

    def _lose_for_good(self, packet_identifiers: Sequence[int]) -> None:
        """What the log has dropped does not arrive any more."""
        for packet_identifier in packet_identifiers:
            self._refused.pop(packet_identifier, None)
            self._missing.pop(packet_identifier).missed()
        self.acknowledge_all(packet_identifiers)

    def notice(self, first: int, last: int, stored: Iterable[tuple[int, Part]], size: int) -> None:
        """The log's news, with their positions and size: from one to another some may be for this consumer."""
        if not self._behind:
            self._behind, self._read = True, first - 1
            if not self._unacknowledged and not self.set_aside:
                self.noticed = Backlog()
        self.stretches.add(first, last)
        self.noticed.messages += last - first + 1
        self.noticed.bytes += size
        if self.backlog is not None:
            for begin, part in stored:
                for position, message in enumerate(part.messages(), begin):
                    if self.takes(position, message):
                        self.backlog.add(queued_size(message))
        self._tell()

    def is_next(self, position: int, message: Message) -> bool:
        """Whether a message behind ``unread_from`` is for this consumer."""
        return position > self.unread_from and self.takes(position, message)

    def all_wait_behind(self, position: int) -> int | None:
        """Returns behind which position, the given one at least, all messages of its topic names wait.

        None: whether one waits depends on more than its topic name.
        """
        place = max(self.unread_from, position)
        return None if self.passed or self.set_aside or place < self._usual_from else place

    def is_waiting_for(self, position: int, message: Message) -> bool:
        """Whether a message waits to be handed out, and is not given away already."""
        if position in self.passed:
            return False
        return self.is_next(position, message) or self.set_aside.holds(position, message.topic)

    def go_past(self, position: int) -> None:
        """Everything up to a position is not for this consumer."""
        if self._behind:
            self._read = max(self._read, position)
            self._behind = self._read < self._log.head

    def estimate(self) -> None:
        """What waits is not counted from now on: ``noticed`` begins with what it is, or with nothing."""
        self.noticed, self.backlog = self.backlog or Backlog(), None

    def begin_to_count(self, backlog: Backlog) -> None:
        """So much waits to be handed out: together with what is not acknowledged, ``backlog`` says it from now on."""
        for _, _, size, _ in self._unacknowledged.values():
            backlog.add(size)
        self.backlog = backlog

    async def discard_oldest(self, is_enough: Callable[["Backlog"], bool]) -> None:
        """Drops what is not handed out yet, from the oldest on, and notes it."""
        async with self.reading:
            while self.set_aside and self.backlog is not None and not is_enough(self.backlog):
                for _, message in await self._read_set_aside(self.set_aside, 1):
                    self._drop(EVICTED, message)
            while self.backlog is not None and not is_enough(self.backlog) and (upcoming := await self._upcoming(1)):
                for position, message in upcoming:
                    if self.backlog is None or is_enough(self.backlog):
                        return
                    if position in self.passed:  # somebody has it already: it does not wait
                        del self.passed[position]
                        self._taken += 1
                    elif self.takes(position, message):
                        self._drop(EVICTED, message)
                    self._read = position

    def _drop(self, reason: str, message: Message) -> None:
        """A message that waits goes to no client."""
        self._log.drop(reason, self.consumer, message)
        if self.backlog is not None and self.rights.may_receive(message.topic):
            self.backlog.subtract(queued_size(message))
        self._taken += 1
        self._log.changed()

    def _miss(self, position: int, message: Message) -> None:
        """The log has dropped a message that was to be handed out, and has a range for it."""
        if self.backlog is not None and position not in self.passed and self.rights.may_receive(message.topic):
            self.backlog.subtract(queued_size(message))

    async def evict(self, messages: list[tuple[int, Message]]) -> None:
        """The log drops its oldest messages: what was not handed out of them never will be."""
        async with self.reading:
            last = messages[-1][0]
            if self.backlog is not None and (self._behind or self.set_aside):
                for position, message in messages:
                    if self.is_waiting_for(position, message):
                        self._miss(position, message)
            if self._behind:
                self._read = max(self._read, last)
            self._move_on(last, self.set_aside)

    def close(self) -> None:
        """Leaves the log; the place of a durable consumer stays, and with it what it still has to get."""
        self.closed = True
        self._lose_for_good(list(self._missing))
        self._log.audience.dismiss(self)
        self._log.detach(self)

    def drop(self) -> None:
        """Leaves the log for good: the consumer gets nothing any more and holds nothing back."""
        self.close()
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
                deliveries.append(Delivery(position, packet_identifier, message, True, *unacknowledged[1]))
            else:
                self.acknowledge(packet_identifier)  # the message itself is gone
        return deliveries

    async def _take_set_aside(self, limit: int, may_have: Callable[[str], bool]) -> list[Delivery]:
        """Hands out what was set aside and the one that fetches may have; drops what none may have any more."""
        changes = self._changes
        if changes != self._considered:
            untaken = {topic for topic in self.set_aside if not self.may_be_taken(topic)}
            while dropped := await self._read_set_aside(untaken, READ_MOST):
                for _, message in dropped:
                    self._drop(FILTERED, message)
            self._considered = changes
        wanted = {topic for topic in self.set_aside if may_have(topic)}
        deliveries = []
        for position, message in await self._read_set_aside(wanted, limit):
            grant = self.grant(position, message)
            if grant is not None:
                deliveries.append(self._deliver(position, message, grant))
                self._late[deliveries[-1].packet_identifier] = position
        return deliveries

    def _deliver(self, position: int, message: Message, grant: Grant) -> Delivery:
        packet_identifier = self._taken % self._identifiers + 1
        self._unacknowledged[packet_identifier] = position, grant, queued_size(message), self._taken
        self._taken += 1
        return Delivery(position, packet_identifier, message, False, *grant)

    async def _read_set_aside(self, topics: Container[str], limit: int) -> list[tuple[int, Message]]:
        """Reads on through what was set aside of some topics, up to so many messages: these are set aside no more."""
        waiting: list[tuple[int, Message]] = []
        reading, slice_ = max(limit, READ_LEAST), Slice()
        while not waiting and (first := self.set_aside.next_of(topics)) is not None:
            found = await self._log.read(first - 1, reading)
            at = found[-1][0] if found else self._log.head
            for position, message in found:
                if message.topic in topics and self.set_aside.holds(position, message.topic):
                    if position in self.passed:
                        del self.passed[position]
                        self._taken += 1
                    elif position > self._log.gone:
                        waiting.append((position, message))
                    else:
                        self._miss(position, message)
                if len(waiting) == limit:
                    at = position
                    break
            self._move_on(at, topics)
            reading = min(2 * reading, READ_MOST)
            if not waiting and slice_.is_over:
                await slice_.give_way()
        return waiting

    def _move_on(self, position: int, topics: Container[str]) -> None:
        """Up to a position nothing of some topics is set aside any more."""
        if self.set_aside.move_on(position, topics):
            self._news.set()

    def _sets_aside(self, position: int, message: Message, may_have: Callable[[str], bool]) -> bool:
        """Sets a new message aside, or drops it, unless the one that fetches may have it and none before it waits."""
        topic = message.topic
        if topic not in self.set_aside and (may_have(topic) or position in self.passed):
            return False
        if topic in self.set_aside or self.may_be_taken(topic):
            self.set_aside.extend(position, topic)
        else:
            self._drop(FILTERED, message)
        self._news.set()
        return True

    async def _take_new(self, limit: int, may_have: Callable[[str], bool]) -> list[Delivery]:
        limit = min(limit, self._window - (self._taken - self.count))
        deliveries: list[Delivery] = []
        while limit > 0 and not deliveries and len(self.set_aside) < SET_ASIDE_MOST:
            upcoming = await self._upcoming(limit)
            if not upcoming:
                break
            deliveries = self._hand_out(upcoming, limit, may_have)
            if not deliveries:
                await asyncio.sleep(0)  # what is in memory is read without a pause
        return deliveries

    def _hand_out(
        self, upcoming: list[tuple[int, Message]], limit: int, may_have: Callable[[str], bool]
    ) -> list[Delivery]:
        deliveries: list[Delivery] = []
        grants: dict[tuple[str, int, bool], Grant | None] = {}  # what all of a kind have in common
        (head, dup_up_to), taken = self._dup_up_to, self._taken
        usual_from, passed, unacknowledged = self._usual_from, self.passed, self._unacknowledged
        slice_ = Slice()
        for position, message in upcoming:
            if len(deliveries) == limit:
                break
            kind = message.topic, message.qos, message.retain
            if position > usual_from and kind in grants:
                grant = grants[kind]
            elif deliveries and slice_.is_over:
                break
            else:
                grant = self.grant(position, message)
                if position > usual_from:
                    grants[kind] = grant
            self._read = position
            if grant is None or (may_have is not everything and self._sets_aside(position, message, may_have)):
                continue
            if position in passed:
                del passed[position]
            elif position <= self.rights.changed and not self.rights.may_receive(message.topic):
                self._log.drop(FILTERED, self.consumer, message)
            else:
                packet_identifier = taken % self._identifiers + 1
                unacknowledged[packet_identifier] = position, grant, queued_size(message), taken
                dup = position <= head and taken < dup_up_to
                deliveries.append(_new(Delivery, (position, packet_identifier, message, dup, *grant)))
            taken += 1  # also for one that is not handed out: those behind it have the identifiers they had before
        self._taken = taken
        return deliveries

    async def _upcoming(self, limit: int) -> list[tuple[int, Message]]:
        """Reads on, past messages for others, up to and including the next ones for this consumer."""
        reading, slice_ = max(limit, READ_LEAST), Slice()
        while True:
            self._skip()
            if not self._behind:
                return []
            head = self._log.head
            found = await self._log.read(self._read, reading)
            for index, (position, message) in enumerate(found):
                if self.takes(position, message):
                    if position > self._log.gone:
                        return found[index:]
                    self._miss(position, message)
                self._read = position
                if slice_.is_over:
                    await slice_.give_way()
            if not found:
                self._read = head
            reading = min(2 * reading, READ_MOST)
