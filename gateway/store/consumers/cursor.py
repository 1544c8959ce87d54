"""A cursor: how far a session, a share group or a route has read the log, and which messages it was handed out.

The durable state is two numbers, ``position`` and ``count``. All messages up to ``position`` are acknowledged, or not
for this consumer; ``count`` of them were taken in its life. The n-th message that a consumer takes has packet
identifier (n - 1) % 65535 + 1, so that a restart gives the same messages the same identifiers. The maintenance saves
the state about once a second: after a crash some acknowledged messages come again, and none is missed.

When a message is stored that matches a subscription, the cursor notes that its position has to be read (``ranges``).
Later it reads the message, hands it out (``_unacknowledged``), and waits for its acknowledgement. If the connection
ends before, it hands the message out again (``redeliver``), unless a full store has evicted it.
"""

import asyncio
import sys
from collections import OrderedDict
from collections.abc import Callable, Container, Iterable, Sequence

from gateway.loop.pace import Slice, in_slices
from gateway.loop.signals import Signal
from gateway.message import Message, content_sizes
from gateway.store.consumers.delivery import (
    Backlog,
    Delivery,
    Grant,
    RangeSet,
    ReasonToDrop,
    Subscriptions,
    count_at_once,
    keep,
)
from gateway.store.consumers.held_back import HeldBack
from gateway.store.consumers.log_reader import LogReader
from gateway.store.consumers.redelivery import InFlight, Redelivery
from gateway.store.consumers.taker import Rights, Taker, everything
from gateway.store.consumers.tally import Tally, Walk, identifiers_used
from gateway.store.tables.cursors import Place
from gateway.store.tables.drops import EVICTED, FILTERED
from gateway.store.tables.evicted import EvictedMessage
from gateway.store.tables.log_rows import Part, is_qos_0
from gateway.subscriptions import Subscription

PACKET_IDENTIFIERS = 65535
HELD_BACK_MOST = 1000  # topic names; with more of them a share group reads no further
READ_LEAST, READ_MOST = 32, 1024  # messages read at once: some are for other consumers
KINDS_MOST = 16  # of messages that are handed out together, since each asks the subscriptions once

Kind = tuple[str, int, bool]
"""Topic name, QoS and retain flag: on them alone a grant depends usually."""

_new = tuple.__new__  # a NamedTuple's own takes three times as long


class Cursor(Taker):
    """Reads the log for one consumer, from its saved place on; a consumer without one begins at the newest message.

    Args:
        log: the log to read from.
        consumer: the durable name, such as ``route/central``.
        filters: topic filters, or subscriptions with their QoS; ``subscribe`` and ``unsubscribe`` change them.
        durable: whether the place survives the process.
        window: most deliveries without an acknowledgement; it may be changed. If it exceeds 65535, identifiers go on
            beyond that, and the caller chooses others for a connection.
        always_counts: whether it always counts its backlog; then the limits of queues do not hold for it.

    ``rights`` are the access rules. ``may_be_taken`` says whether any member of its share group may have a topic name,
    ``reason_to_drop``, asked once for each message, why it is dropped instead of handed out. ``tally`` counts the
    backlog. A task that holds ``fetching`` keeps messages from being handed out. ``takes_qos_0``: a subscription does.
    Messages of the publishers ``not_from`` are not for it. ``offered`` is called with each message of QoS 0 that a
    route's cursor takes as it comes. ``passed`` are positions of messages that QoS 2 flows took before the start, while
    earlier ones waited. ``takes_new``: messages that are stored from now on may be for it. ``saves_each_move``: its
    place is saved even if it only passes messages.

    Raises:
        ValueError: the consumer has a cursor already.
    """

    saves_each_move = False

    # What most cursors never change stands here: an object of more than 29 attributes takes 1.3 kB more.
    takes_new = True
    reason_to_drop: ReasonToDrop | None = None
    offered: Callable[[Message], None] | None = None
    _wake: Callable[[], None] | None = None
    _changes = _considered = 0  # of the members' access rules

    def __init__(
        self,
        log: "LogReader[Cursor]",
        consumer: str,
        filters: Iterable[str | Subscription] = (),
        *,
        durable: bool = True,
        window: int = PACKET_IDENTIFIERS,
        always_counts: bool = False,
    ) -> None:
        self.consumer, self.durable = consumer, durable
        self.filters, self.rights = Subscriptions(), Rights()
        self.may_be_taken: Callable[[str], bool] = everything
        self.always_counts = always_counts
        self.tally = Tally(always_counts or log.counts_backlogs, log.topic_shares())
        self._log, self.window = log, window
        self._identifiers = max(window, PACKET_IDENTIFIERS)
        for wanted in filters:
            self.subscribe(wanted if isinstance(wanted, Subscription) else Subscription(wanted))
        self._unacknowledged: OrderedDict[int, InFlight] = OrderedDict()
        self.held_back = HeldBack()
        self.ranges, self._read = self._range_set(), 0
        self._read, self._taken = log.attach(self)
        passed = log.passed(consumer) if durable else ()
        self.passed = {one: None for one in passed if one > self._read}  # a set takes more memory
        # A former process may have delivered these, up to its last moment.
        self._dup_up_to = (log.head, self._taken + min(window, PACKET_IDENTIFIERS))
        if self._read < log.head:
            self.read_again(self._read)
            self.tally.stop()  # until it is counted
            self.tally.noticed = Backlog(log.count_behind(self._read))  # their size is unknown
        self._to_redeliver = Redelivery()
        self._evicted: dict[int, EvictedMessage] = {}  # evicted messages in flight, by packet identifier
        self._late: dict[int, int] = {}  # positions of deliveries that were held back before, by packet identifier
        self._refused: dict[int, str] = {}  # topic names of refused deliveries, by packet identifier
        self._news = Signal()
        self._fetch_queue, self.fetching = asyncio.Lock(), asyncio.Lock()

    def note_left(self, head: int) -> None:  # its client left when this was the newest position
        self._dup_up_to = (min(head, self._dup_up_to[0]), self._dup_up_to[1])

    @property
    def place(self) -> str:
        """The name under which the place is saved."""
        return self.consumer

    @property
    def backlog(self) -> Backlog | None:
        """The messages that wait and those in flight, None if they are not counted."""
        return self.tally.backlog

    @property
    def position(self) -> int:
        """All messages up to here are acknowledged, or not for this consumer."""
        if not self._unacknowledged:
            return max(self._log.gone, self.waiting_from)
        oldest = next(iter(self._unacknowledged.values()))[0]
        if self._late or self.held_back:
            oldest = min(oldest, self.waiting_from + 1, *self._late.values())
        return max(self._log.gone, oldest - 1)

    @property
    def count(self) -> int:
        """How many messages up to ``position`` this consumer has taken in its life, evicted ones in flight included."""
        behind = (taken for position, _, _, taken in self._unacknowledged.values() if position > self._log.gone)
        return next(behind, self._taken)

    @property
    def handed_out(self) -> list[int]:
        """The positions of deliveries without an acknowledgement."""
        return [position for position, *_ in self._unacknowledged.values()]

    def place_of(self, packet_identifier: int) -> Place:
        """Returns position and number of a delivery without an acknowledgement. Raises KeyError."""
        position, _, _, taken = self._unacknowledged[packet_identifier]
        return position, taken + 1

    @property
    def unsubscribed(self) -> list[int]:
        """Positions of deliveries whose subscription may have ended since [MQTT-3.10.4-3]."""
        return self.handed_out if self._unsubscribed_up_to > self.position else []

    @property
    def unread_from(self) -> int:
        """All messages up to here were handed out or held back, or are not for this consumer."""
        wanted = self.ranges.behind(self._read)
        self._read = self._log.head if wanted is None else wanted - 1
        return self._read

    @property
    def waiting_from(self) -> int:
        """No message up to here waits."""
        unread_from = self.unread_from
        return min(unread_from, self.held_back.first - 1) if self.held_back else unread_from

    @property
    def waiting_ranges(self) -> list[tuple[int, int]]:
        """Ranges of positions where a message may wait."""
        return ([(self.waiting_from + 1, self.held_back.last)] if self.held_back else []) + list(self.ranges)

    def change_rights(self, before: Callable[[str], bool]) -> None:
        """The access rules have changed; ``before`` answers by the former rules. A message waits if it was allowed when
        it was stored. If it no longer is, it leaves a range when it is read, and does not count in ``backlog``.
        """
        self.rights.change(before, self.unread_from, self._log.head)

    async def fetch(self, limit: int, may_have: Callable[[str], bool] = everything) -> list[Delivery]:
        """Waits, then returns up to ``limit`` deliveries, at least one, which this group member ``may_have``. Raises
        sqlite3.Error."""
        while True:
            async with self._fetch_queue:  # the members of a share group take turns
                while not (deliveries := await self.fetch_now(limit, may_have)):
                    if self._refused or self.held_back:
                        break
                    await self._news.wait()
            if deliveries:
                return deliveries
            await self._news.wait()  # all waiting messages are for other members

    async def fetch_now(self, limit: int, may_have: Callable[[str], bool] = everything) -> list[Delivery]:
        """Does the same without waiting: the result may be empty, and ``wake_with`` tells when to try again."""
        async with self.fetching:
            self._news.clear()
            if may_have is everything:
                return await self._take_redelivered(limit) or await self._take_new(limit, may_have)
            self._offer_refused(may_have)
            while returned := await self._take_redelivered(limit):
                for delivery in returned:
                    if not may_have(delivery.message.topic):
                        self.refuse(delivery)
                if chosen := [delivery for delivery in returned if may_have(delivery.message.topic)]:
                    return chosen
            return await self._take_held_back(limit, may_have) or await self._take_new(limit, may_have)

    def refuse(self, delivery: Delivery) -> None:
        """The member that fetched a delivery may not have it: it waits for another member that may, if there is one."""
        if delivery.packet_identifier in self._evicted:
            self._lose_for_good([delivery.packet_identifier])
        elif self.may_be_taken(delivery.message.topic):
            self._refused[delivery.packet_identifier] = delivery.message.topic
            self._tell()
        else:
            self._log.drop(FILTERED, self.consumer, delivery.message)
            self.acknowledge(delivery.packet_identifier)

    def reconsider(self) -> None:
        """The members' access rules have changed."""
        self._changes += 1
        self._tell()

    def _offer_refused(self, may_have: Callable[[str], bool]) -> None:
        """Hands refused deliveries out again that the fetching member may have, or that no member may have any more."""
        for packet_identifier, topic in list(self._refused.items()):
            if may_have(topic) or not self.may_be_taken(topic):
                del self._refused[packet_identifier]
                self.redeliver([packet_identifier])

    def wake_with(self, wake: Callable[[], None] | None) -> None:
        """Calls this, from now on, whenever ``fetch_now`` may have deliveries, and now."""
        self._wake = wake
        self._tell()

    def _tell(self) -> None:
        self._news.set()
        if self._wake is not None and (self.unread_from < self._log.head or self._to_redeliver.waiting):
            self._wake()

    def acknowledge(self, packet_identifier: int) -> bool:
        """A delivery arrived; returns whether it was on the way."""
        return self.acknowledge_all([packet_identifier]) > 0

    def acknowledge_all(self, packet_identifiers: Sequence[int]) -> int:
        """Deliveries arrived; returns how many of them were on the way."""
        pop = self._unacknowledged.pop
        found = [pop(packet_identifier, None) for packet_identifier in packet_identifiers]
        arrived = [one for one in found if one is not None]
        if self._late or self._evicted:
            for packet_identifier in packet_identifiers:
                self._late.pop(packet_identifier, None)
                if evicted := self._evicted.pop(packet_identifier, None):
                    evicted.arrived()
        if arrived:
            self.tally.note_arrived(arrived)
            self._tell()
            self._log.changed()
        return len(arrived)

    def redeliver(self, packet_identifiers: Iterable[int]) -> None:
        """Hands deliveries out again before any new message, as duplicates; evicted ones leave ranges instead."""
        again = set(packet_identifiers)
        self._lose_for_good([*again & self._evicted.keys()])
        self._to_redeliver.add(again, self._unacknowledged)
        self._tell()

    def lose(
        self, messages: dict[int, Message], last: int, note_evicted: Callable[[str, Message], EvictedMessage]
    ) -> None:
        """The log evicts messages, by position, up to ``last``: their deliveries may arrive, but do not come again.
        ``note_evicted`` makes the object that learns how the delivery of one ends.
        """
        back = self._to_redeliver.packet_identifiers | self._refused.keys()
        for packet_identifier, (position, *_) in self._unacknowledged.items():
            if position > last and not self._late:
                break
            if position in messages:
                self._evicted[packet_identifier] = note_evicted(self.consumer, messages[position])
        self._lose_for_good([*back & self._evicted.keys()])

    def _lose_for_good(self, packet_identifiers: Sequence[int]) -> None:
        """Evicted deliveries can no longer arrive."""
        for packet_identifier in packet_identifiers:
            self._refused.pop(packet_identifier, None)
            self._evicted.pop(packet_identifier).lost()
        self.acknowledge_all(packet_identifiers)

    def notice(self, first: int, last: int, size: int) -> None:
        """The log has stored messages: some between two positions may be for this consumer."""
        if self.ranges.behind(self._read) is None and not (self._unacknowledged or self.held_back):
            self.tally.noticed = Backlog()
        self._read = min(self._read, first - 1)
        self.ranges.add(first, last)
        self.tally.noticed.add(size, last - first + 1)
        self._tell()

    def read_again(self, position: int) -> None:
        """Other messages than before may be for this consumer behind a position."""
        self._read, self.ranges = min(self._read, position), self._range_set()
        self.ranges.add(self._read + 1, self._log.head)

    def is_next(self, position: int, message: Message) -> bool:
        """Whether a message behind ``unread_from`` is for this consumer."""
        return position > self.unread_from and self.takes(position, message)

    def all_wait_behind(self, position: int) -> int | None:
        """Returns the position behind which all of its messages but those of QoS 0 wait, None if it is not known."""
        begin = max(self.unread_from, position)
        differs = self.passed or self.held_back or self.takes_qos_0 or self.not_from
        return None if differs or begin < self._usual_from else begin

    def all_wait_in(self, first: int, part: Part) -> bool:
        """Whether all messages of a part at a position wait, if the consumer takes all of its topic names."""
        is_new = first > max(self.unread_from, self._usual_from) and (not self.passed or first > self._dup_up_to[0])
        is_usual = is_new and not self.closed and not is_qos_0(part) and part.publisher not in self.not_from
        return is_usual and all(map(self.rights.may_receive, part.topics))

    def is_waiting_for(self, position: int, message: Message) -> bool:
        """Whether a message waits to be handed out, and was not taken by a QoS 2 flow."""
        is_here = self.is_next(position, message) or self.held_back.holds(position, message.topic)
        return is_here and position not in self.passed

    def go_past(self, position: int) -> None:
        """No message up to a position is for this consumer."""
        self._read = max(self._read, position)

    def begin_to_count(self, walk: Walk) -> None:
        """Counts from now on; a walk through the log adds the messages that wait now."""
        self.tally.begin(walk, (size for _, _, size, _ in self._unacknowledged.values()))

    async def discard_oldest(self, is_enough: Callable[[Backlog], bool], drops: ReasonToDrop = keep) -> None:
        """Drops the oldest waiting messages until the backlog is small enough, then those with a reason to drop."""
        drops = self.tally.drops(drops) or keep
        async with self.fetching:
            while self.held_back and self.backlog is not None and not is_enough(self.backlog):
                for position, message in await self._read_held_back(self.held_back, 1):
                    self._drop(EVICTED, position, message)
            await self._discard_held_back()
            while upcoming := await self._upcoming(1):
                async for position, message in in_slices(upcoming):
                    if position in self.passed:  # a QoS 2 flow has it: it does not wait
                        del self.passed[position]
                        self._taken += 1
                    elif self.takes(position, message):
                        reason = EVICTED if self.backlog is not None and not is_enough(self.backlog) else drops(message)
                        if reason is None:
                            return
                        self._drop(reason, position, message)
                    self._read = position

    async def _discard_held_back(self) -> None:
        """Drops the oldest messages that were held back while their shares are beyond a limit."""
        drops = self.tally.drops(None)
        while drops and (over := {topic for topic in self.held_back if drops(Message(topic, b""))}):
            for position, message in await self._read_held_back(over, 1):
                self._drop(EVICTED, position, message)

    def _drop(self, reason: str, position: int, message: Message) -> None:
        """Drops a waiting message, and notes it."""
        self._pass_over(reason, position, message)
        self._taken += 1
        self._log.changed()

    def _pass_over(self, reason: str, position: int, message: Message) -> None:
        self._log.drop(reason, self.consumer, message)
        self._miss(position, message)

    def _miss(self, position: int, message: Message) -> None:
        """Subtracts a message that waits no more; the log has a range for it."""
        if position not in self.passed and self.rights.may_receive(message.topic):
            self.tally.note_dropped(position, message)

    async def evict(self, messages: list[tuple[int, Message]]) -> None:
        """The log evicts its oldest messages: a message that waits will not be handed out."""
        last = messages[-1][0]
        async with self.fetching:
            if self.tally.counts and self.waiting_from < last:
                async for position, message in in_slices(one for one in messages if self.is_waiting_for(*one)):
                    self._miss(position, message)
            self._read = max(self._read, last)
            self._move_on(last, self.held_back)

    def close(self) -> None:
        """Leaves the log; a durable consumer keeps its place, and the messages behind it."""
        self.closed, self.takes_new = True, False
        self._lose_for_good(list(self._evicted))
        self._log.audience.dismiss(self)
        self._log.detach(self)

    def drop(self) -> None:
        """Leaves the log for good: no message is kept for the consumer."""
        self.close()
        self._log.forget(self.place)

    async def _take_redelivered(self, limit: int) -> list[Delivery]:
        while self._to_redeliver.waiting:
            first = self._to_redeliver.first
            found = dict(await self._log.read(first - 1, max(limit, READ_LEAST)))
            deliveries, gone = self._to_redeliver.take(first, found, limit, self._unacknowledged)
            self.acknowledge_all(gone)
            if deliveries:
                return deliveries
        return []

    async def _take_held_back(self, limit: int, may_have: Callable[[str], bool]) -> list[Delivery]:
        """Hands out held-back messages that the fetching member may have, and drops what no member may have."""
        changes = self._changes
        if changes != self._considered:
            untaken = {topic for topic in self.held_back if not self.may_be_taken(topic)}
            while dropped := await self._read_held_back(untaken, READ_MOST):
                for position, message in dropped:
                    self._drop(FILTERED, position, message)
            self._considered = changes
        await self._discard_held_back()
        wanted = {topic for topic in self.held_back if may_have(topic)}
        deliveries = []
        for position, message in await self._read_held_back(wanted, limit):
            if (grant := self.grant(position, message)) is not None:
                deliveries.append(self._deliver(position, message, grant))
                self._late[deliveries[-1].packet_identifier] = position
        return deliveries

    def _deliver(self, position: int, message: Message, grant: Grant) -> Delivery:
        packet_identifier = self._taken % self._identifiers + 1
        self._unacknowledged[packet_identifier] = position, grant, message.content_size, self._taken
        self.tally.note_handed_out(position, message)
        self._taken += 1
        return Delivery(position, packet_identifier, message, False, *grant, self._taken)

    async def _read_held_back(self, topics: Container[str], limit: int) -> list[tuple[int, Message]]:
        """Reads up to ``limit`` messages of some topics that were held back, and removes them from the set."""
        waiting: list[tuple[int, Message]] = []
        wanted, slice_ = max(limit, READ_LEAST), Slice()
        while not waiting and (first := self.held_back.next_of(topics)) is not None:
            found = await self._log.read(first - 1, wanted)
            at = found[-1][0] if found else self._log.head
            for position, message in found:
                if message.topic in topics and self.held_back.holds(position, message.topic):
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
            wanted = min(2 * wanted, READ_MOST)
            if not waiting and slice_.is_over:
                await slice_.give_way()
        return waiting

    def _move_on(self, position: int, topics: Container[str]) -> None:
        """Removes messages of some topics from the set, up to a position."""
        if self.held_back.move_on(position, topics):
            self._news.set()

    def _holds_back(self, position: int, message: Message, may_have: Callable[[str], bool]) -> bool:
        """Holds a new message back, or drops it, unless the member may have it and no earlier one waits."""
        topic = message.topic
        if topic not in self.held_back and (may_have(topic) or position in self.passed):
            return False
        if topic in self.held_back or self.may_be_taken(topic):
            self.held_back.extend(position, topic)
        else:
            self._drop(FILTERED, position, message)
        self._news.set()
        return True

    async def _take_new(self, limit: int, may_have: Callable[[str], bool]) -> list[Delivery]:
        deliveries: list[Delivery] = []
        while not deliveries and len(self.held_back) < HELD_BACK_MOST:
            used = identifiers_used(self._unacknowledged, self._taken)
            limit = min(limit, self.window - used)
            if limit <= 0 or not (upcoming := await self._upcoming(limit)):
                break
            deliveries = self._hand_out(upcoming[: self._identifiers - used], limit, may_have)
            if not deliveries:
                await asyncio.sleep(0)  # reads from memory do not suspend
        return deliveries

    def _hand_out(
        self, upcoming: list[tuple[int, Message]], limit: int, may_have: Callable[[str], bool]
    ) -> list[Delivery]:
        deliveries, sizes = list[Delivery](), content_sizes([message for _, message in upcoming])
        count = count_at_once(sizes)
        upcoming, sizes = upcoming[:count], sizes[:count]
        grants: dict[Kind, Grant | None] = {}
        (head, dup_up_to), taken = self._dup_up_to, self._taken
        usual_from, passed, unacknowledged = self._usual_from, self.passed, self._unacknowledged
        drops, tells = self.tally.drops(self.reason_to_drop), self.tally.notes_hand_outs
        not_from, changed = self.not_from, self.rights.changed
        looks_at_each = drops is not None or tells or passed or not_from or may_have is not everything
        if not looks_at_each and (together := self._hand_out_together(upcoming[:limit], sizes[:limit])):
            return together
        slice_ = Slice()
        for position, message in upcoming:
            if len(deliveries) == limit:
                break
            kind = message.topic, message.qos, message.retain
            is_known = position > usual_from and kind in grants
            if not_from and message.publisher in not_from:
                grant = None
            elif (drops is not None or not is_known) and position > upcoming[0][0] and slice_.is_over:
                break
            elif is_known:
                grant = grants[kind]
            else:
                grant = self.grant(position, message)
                if position > usual_from:
                    grants[kind] = grant
            self._read = position
            if grant is None or (may_have is not everything and self._holds_back(position, message, may_have)):
                continue
            if position in passed:
                del passed[position]
            elif position <= changed and not self.rights.may_receive(message.topic):
                self._log.drop(FILTERED, self.consumer, message)
            elif drops is not None and (reason := drops(message)):
                self._pass_over(reason, position, message)
            else:
                if tells:
                    self.tally.note_handed_out(position, message)
                packet_identifier = taken % self._identifiers + 1
                unacknowledged[packet_identifier] = position, grant, message.content_size, taken
                dup = position <= head and taken < dup_up_to
                deliveries.append(_new(Delivery, (position, packet_identifier, message, dup, *grant, taken + 1)))
            taken += 1  # also if it is not handed out: later messages keep their identifiers over a restart
        self._taken = taken
        return deliveries

    def _hand_out_together(self, upcoming: list[tuple[int, Message]], sizes: list[int]) -> list[Delivery]:
        """Hands out all of some messages of these sizes, none of them as a duplicate; none if they differ too much."""
        if upcoming[0][0] <= max(self._usual_from, self._dup_up_to[0]):
            return []
        kinds = [(message.topic, message.qos, message.retain) for _, message in upcoming]
        examples = dict(zip(kinds, upcoming, strict=True))
        if len(examples) > KINDS_MOST:
            return []
        grants: dict[Kind, Grant] = {}
        for kind, (position, message) in examples.items():
            if (grant := self.grant(position, message)) is None:
                return []
            grants[kind] = grant
        positions, messages = [position for position, _ in upcoming], [message for _, message in upcoming]
        numbers = range(self._taken, self._taken + len(upcoming))
        identifiers = [number % self._identifiers + 1 for number in numbers]
        granted = [grants[kind] for kind in kinds]
        in_flight = zip(positions, granted, sizes, numbers, strict=True)
        self._unacknowledged.update(zip(identifiers, in_flight, strict=True))
        self._read, self._taken = positions[-1], numbers.stop
        columns = zip(positions, identifiers, messages, granted, numbers, strict=True)
        return [
            _new(Delivery, (position, identifier, message, False, *grant, number + 1))
            for position, identifier, message, grant, number in columns
        ]

    async def _upcoming(self, limit: int) -> list[tuple[int, Message]]:
        """Reads on to the next message for this consumer; returns it and the messages behind it."""
        wanted, slice_ = max(limit, READ_LEAST), Slice()
        while True:
            head = self._log.head
            if self.unread_from == head:
                return []
            found, end = await self._log.read(self._read, wanted), self.end_of_stretch(self._read + 1)
            if end < head:
                found = [one for one in found if one[0] <= end]
            for index, (position, message) in enumerate(found):
                if self.takes(position, message):
                    if position > self._log.gone:
                        return found[index:]
                    self._miss(position, message)
                self._read = position
                if slice_.is_over:
                    await slice_.give_way()
            if not found:
                self._read = min(end, head)
            wanted = min(2 * wanted, READ_MOST)

    def end_of_stretch(self, position: int) -> int:
        """Returns up to which position all or no messages are for this consumer's lane."""
        return sys.maxsize

    def _range_set(self) -> RangeSet:
        return RangeSet()
