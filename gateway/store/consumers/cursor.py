"""A cursor: how far a session, a share group or a route has read the log, and which messages it was handed out.

The durable state is two numbers, ``position`` and ``count``. All messages up to ``position`` are acknowledged, or not
for this consumer; ``count`` of them were taken in its life. The n-th message that a consumer takes has packet
identifier (n - 1) % 65535 + 1, so that a restart gives the same messages the same identifiers. The maintenance saves
the state about once a second: after a crash some acknowledged messages come again, and none is missed.

When a message is stored that matches a subscription, the cursor notes that its position has to be read (``ranges``).
Later it reads the message, hands it out (`InFlight`), and waits for its acknowledgement. If the connection ends before,
it hands the message out again (``redeliver``), unless a full store has evicted it.
"""

import asyncio
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import repeat
from operator import attrgetter

from gateway.loop.pace import Slice, in_slices
from gateway.message import Message, content_sizes
from gateway.store.consumers.delivery import (
    Backlog,
    Delivery,
    Grant,
    InFlight,
    RangeSet,
    ReasonToDrop,
    count_at_once,
    keep,
)
from gateway.store.consumers.held_back import HeldBack
from gateway.store.consumers.log_reader import LogReader
from gateway.store.consumers.taker import Rights, Subscriptions, Taker
from gateway.store.tables.cursors import Place
from gateway.store.tables.drops import EVICTED, FILTERED
from gateway.store.tables.evicted import EvictedMessage
from gateway.store.tables.log_rows import Part, is_qos_0
from gateway.subscriptions import Subscription

PACKET_IDENTIFIERS = 65535
READ_LEAST, READ_MOST = 32, 1024  # messages read at once: some are for other consumers
KINDS_MOST = 16  # of messages that are handed out together, since each asks the subscriptions once

Kind = tuple[str, int, bool]
"""Topic name, QoS and retain flag: on them alone a grant depends usually."""
HoldsBack = Callable[[int, Message], bool]
"""Holds the new message at a position back, or drops it; returns False for one that is handed out."""

_kind_of = attrgetter("topic", "qos", "retain")
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
        ranges: where its messages may wait, None: in a set of its own.

    ``flight`` has its deliveries, ``rights`` are the access rules. ``reason_to_drop`` says, asked once for each
    message, why it is dropped instead of handed out. ``tally`` counts the backlog. A task that holds ``fetching`` keeps
    messages from being handed out. ``held_back`` are messages that a share group's cursor holds back. ``takes_qos_0``:
    a subscription does. Messages of the publishers ``not_from`` are not for it. ``offered`` is called with each message
    of QoS 0 that a route's cursor takes as it comes. ``passed`` are positions of messages that QoS 2 flows took before
    the start, while earlier ones waited. ``takes_new``: messages that are stored from now on may be for it.
    ``saves_each_move``: its place is saved even if it only passes messages. ``in_flight`` makes the object
    for its deliveries.

    Raises:
        ValueError: the consumer has a cursor already.
    """

    saves_each_move = False
    in_flight: type[InFlight] = InFlight

    # What most cursors never change stands here: an object of more than 29 attributes takes 1.3 kB more.
    takes_new = True
    held_back = HeldBack()
    reason_to_drop: ReasonToDrop | None = None
    offered: Callable[[Message], None] | None = None
    _wake: Callable[[], None] | None = None

    def __init__(
        self,
        log: "LogReader[Cursor]",
        consumer: str,
        filters: Iterable[str | Subscription] = (),
        *,
        durable: bool = True,
        window: int = PACKET_IDENTIFIERS,
        always_counts: bool = False,
        ranges: RangeSet | None = None,
    ) -> None:
        self.consumer, self.durable = consumer, durable
        self.filters, self.rights = Subscriptions(), Rights()
        self.always_counts = always_counts
        self.tally = log.new_tally(always_counts)
        self._log, self.window = log, window
        self._identifiers = max(window, PACKET_IDENTIFIERS)
        for wanted in filters:
            self.subscribe(wanted if isinstance(wanted, Subscription) else Subscription(wanted))
        self.flight = self.in_flight()
        self.ranges, self._read = RangeSet() if ranges is None else ranges, 0
        self._read, self._taken = log.attach(self)
        passed = log.passed(consumer) if durable else ()
        self.passed = {one: None for one in passed if one > self._read}  # a set takes more memory
        # A former process may have delivered these, up to its last moment.
        self._dup_up_to = (log.head, self._taken + min(window, PACKET_IDENTIFIERS))
        if self._read < log.head:
            self.read_again(self._read)
            self.tally.stop()  # until it is counted
            self.tally.noticed = Backlog(log.count_behind(self._read))  # their size is unknown
        self.fetching = asyncio.Lock()

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
        flight, gone = self.flight, self._log.gone
        if not flight.entries:
            return max(gone, self.waiting_from)
        oldest = flight.oldest
        if flight.evicted and oldest > gone:  # the eviction goes on for other cursors
            oldest = min(flight.oldest_left, self.waiting_from + 1)
        if self.held_back:
            oldest = min(oldest, self.waiting_from + 1)
        return max(gone, oldest - 1)

    @property
    def count(self) -> int:
        """How many messages up to ``position`` this consumer has taken in its life, evicted ones in flight included."""
        entries, evicted, gone = self.flight.entries, self.flight.evicted, self._log.gone
        for packet_identifier, (position, _, _, taken) in entries.items():
            if position > gone and packet_identifier not in evicted:
                return taken
        return self._taken

    def place_of(self, packet_identifier: int) -> Place:
        """Returns position and number of a delivery without an acknowledgement. Raises KeyError."""
        return self.flight.place_of(packet_identifier)

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

    async def fetch_now(self, limit: int) -> list[Delivery]:
        """Returns up to ``limit`` deliveries, none if none waits; ``wake_with`` tells when to try again. Raises
        sqlite3.Error."""
        async with self.fetching:
            return await self._take_redelivered(limit) or await self._take_new(limit)

    def wake_with(self, wake: Callable[[], None] | None) -> None:
        """Calls this, from now on, whenever ``fetch_now`` may have deliveries, and now."""
        self._wake = wake
        self._tell()

    def _tell(self) -> None:
        if self._wake is not None and self.has_waiting:
            self._wake()

    @property
    def has_waiting(self) -> bool:
        """Whether messages may wait that were not handed out, or were handed back."""
        return self.unread_from < self._log.head or bool(self.flight.waiting)

    def acknowledge_all(self, packet_identifiers: Sequence[int]) -> int:
        """Deliveries arrived; returns how many of them were on the way."""
        arrived = self.flight.take(packet_identifiers)
        if arrived:
            self.tally.note_arrived(arrived)
            self._tell()
            self._log.changed()
        return len(arrived)

    def redeliver(self, packet_identifiers: Iterable[int]) -> None:
        """Hands deliveries out again before any new message, as duplicates; evicted ones leave ranges instead."""
        again = set(packet_identifiers)
        self._lose_for_good(again)
        self.flight.redeliver(again)
        self._tell()

    def lose(
        self, messages: dict[int, Message], last: int, note_evicted: Callable[[str, Message], EvictedMessage]
    ) -> None:
        """The log evicts messages, by position, up to ``last``: their deliveries may arrive, but do not come again.
        ``note_evicted`` makes the object that learns how the delivery of one ends.
        """
        self.flight.lose(messages, last, partial(note_evicted, self.consumer))
        self._lose_for_good(self.flight.to_redeliver)

    def _lose_for_good(self, packet_identifiers: set[int]) -> None:
        """The evicted deliveries among these can no longer arrive."""
        if lost := [*packet_identifiers & self.flight.evicted.keys()]:
            self.flight.give_up(lost)
            self.acknowledge_all(lost)

    def notice(self, first: int, last: int, size: int) -> None:
        """The log has stored messages: some between two positions may be for this consumer."""
        if self.ranges.behind(self._read) is None and not (self.flight.entries or self.held_back):
            self.tally.noticed = Backlog()
        self._read = min(self._read, first - 1)
        self.ranges.add(first, last)
        self.tally.noticed.add(size, last - first + 1)
        self._tell()

    def read_again(self, position: int) -> None:
        """Other messages than before may be for this consumer behind a position."""
        self._read = min(self._read, position)
        self.ranges.clear()
        self.ranges.add(self._read + 1, self._log.head)

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
        is_ahead = position > self.unread_from and self.takes(position, message)
        return (is_ahead or self.held_back.holds(position, message.topic)) and position not in self.passed

    def go_past(self, position: int) -> None:
        """No message up to a position is for this consumer."""
        self._read = max(self._read, position)

    async def discard_oldest(self, is_enough: Callable[[Backlog], bool], drops: ReasonToDrop = keep) -> None:
        """Drops the oldest waiting messages until the backlog is small enough, then those with a reason to drop."""
        drops = self.tally.drops(drops) or keep
        async with self.fetching:
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

    @property
    def may_pass_over(self) -> bool:
        """Whether ``pass_over`` may be called: no task hands messages out, and no other cursor has to lose with it."""
        return not (self.closed or self.fetching.locked() or self.held_back or self.passed)

    def pass_over(
        self, messages: dict[int, Message], last: int, note_evicted: Callable[[str, Message], EvictedMessage]
    ) -> None:
        """The log is about to evict its oldest messages, by position, up to ``last``: this cursor loses them now, and
        its place is behind them. See ``lose``.
        """
        if self.tally.counts and self.waiting_from < last:
            for position, message in messages.items():
                if self.is_waiting_for(position, message):
                    self._miss(position, message)
        self._read = max(self._read, last)
        self.lose(messages, last, note_evicted)

    async def evict(self, messages: list[tuple[int, Message]]) -> None:
        """The log evicts its oldest messages: a message that waits will not be handed out."""
        last = messages[-1][0]
        async with self.fetching:
            if self.tally.counts and self.waiting_from < last:
                async for position, message in in_slices(one for one in messages if self.is_waiting_for(*one)):
                    self._miss(position, message)
            self._read = max(self._read, last)

    def close(self) -> None:
        """Leaves the log; a durable consumer keeps its place, and the messages behind it."""
        self.closed, self.takes_new = True, False
        self._lose_for_good(set(self.flight.evicted))
        self._log.audience.dismiss(self)
        self._log.detach(self)

    def drop(self) -> None:
        """Leaves the log for good: no message is kept for the consumer."""
        self.close()
        self._log.forget(self.place)

    async def _take_redelivered(self, limit: int) -> list[Delivery]:
        flight = self.flight
        while flight.waiting:
            first = flight.waiting_from
            found = dict(await self._log.read(first - 1, max(limit, READ_LEAST)))
            deliveries, gone = flight.take_again(first, found, limit)
            self.acknowledge_all(gone)
            if deliveries:
                return deliveries
        return []

    async def _take_new(self, limit: int, holds_back: HoldsBack | None = None) -> list[Delivery]:
        deliveries: list[Delivery] = []
        while not deliveries:
            used = self.flight.used(self._taken)
            room = self._room(limit, used)
            if room <= 0 or not (upcoming := await self._upcoming(room)):
                break
            deliveries = self._hand_out(upcoming[: self._identifiers - used], room, holds_back)
            if not deliveries:
                await asyncio.sleep(0)  # reads from memory do not suspend
        return deliveries

    def _room(self, limit: int, used: int) -> int:
        """Returns how many new messages may be handed out while as many packet identifiers are in use."""
        return min(limit, self.window - used)

    def _hand_out(
        self, upcoming: list[tuple[int, Message]], limit: int, holds_back: HoldsBack | None = None
    ) -> list[Delivery]:
        deliveries, sizes = list[Delivery](), content_sizes([message for _, message in upcoming])
        count = count_at_once(sizes)
        upcoming, sizes = upcoming[:count], sizes[:count]
        grants: dict[Kind, Grant | None] = {}
        (head, dup_up_to), taken = self._dup_up_to, self._taken
        usual_from, passed, in_flight = self._usual_from, self.passed, self.flight.entries
        drops, tells = self.tally.drops(self.reason_to_drop), self.tally.notes_hand_outs
        not_from, changed = self.not_from, self.rights.changed
        looks_at_each = drops is not None or tells or passed or not_from or holds_back is not None
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
            if grant is None or (holds_back is not None and holds_back(position, message)):
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
                in_flight[packet_identifier] = position, grant, message.content_size, taken
                dup = position <= head and taken < dup_up_to
                deliveries.append(_new(Delivery, (position, packet_identifier, message, dup, *grant, taken + 1)))
            taken += 1  # also if it is not handed out: later messages keep their identifiers over a restart
        self._taken = taken
        return deliveries

    def _hand_out_together(self, upcoming: list[tuple[int, Message]], sizes: list[int]) -> list[Delivery]:
        """Hands out all of some messages of these sizes, none of them as a duplicate; none if they differ too much."""
        if upcoming[0][0] <= max(self._usual_from, self._dup_up_to[0]):
            return []
        positions, messages = zip(*upcoming, strict=True)
        kinds = list(map(_kind_of, messages))
        examples = dict(zip(kinds, upcoming, strict=True))
        if len(examples) > KINDS_MOST:
            return []
        grants: dict[Kind, Grant] = {}
        for kind, (position, message) in examples.items():
            if (grant := self.grant(position, message)) is None:
                return []
            grants[kind] = grant
        taken, count = self._taken, len(upcoming)
        identifiers = [number % self._identifiers + 1 for number in range(taken, taken + count)]
        granted = list(map(grants.__getitem__, kinds))
        in_flight = zip(positions, granted, sizes, range(taken, taken + count), strict=True)
        self.flight.entries.update(zip(identifiers, in_flight, strict=True))
        self._read, self._taken = positions[-1], taken + count
        numbers = range(taken + 1, taken + count + 1)
        fields = zip(
            positions, identifiers, messages, repeat(False), *zip(*granted, strict=True), numbers, strict=False
        )
        return list(map(_new, repeat(Delivery), fields))

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
