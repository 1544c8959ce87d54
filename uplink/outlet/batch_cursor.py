"""A route's cursor whose deliveries are column batches: it stands between the cursor of the messages and the sender.

::

    LaneCursor ─ messages ─► BatchPacker ─► BatchCursor ─ a delivery for each batch ─► Sender ─ PUBLISH ─► next broker
          ▲                                     │
          └──── all messages of the batch ──────┴◄──────── PUBACK, or a flow that has the batch durably
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from gateway.routes import Message, Slice
from gateway.store import Delivery, DeliveryRun, LaneCursor, MessageLog, Piece, drops
from uplink.numbers import LinkNumbers, numbered
from uplink.outlet.batch import PROPERTIES, BatchPacker, PackedBatch, behind, encode, first_of, messages_in
from uplink.outlet.shaped_cursor import ShapedCursor
from wire.bulk.column_batch import SIZE_MAX
from wire.bulk.property_block import encode_block
from wire.link_numbers import VIA_PROPERTY, join_runs
from wire.properties import USER_PROPERTY

BATCHES_MOST = 20  # in flight: their bytes and messages stay in memory until they are acknowledged
FETCH_MOST = 250  # messages at once
NUMBERS = 65_535
HEADER_SIZE = 9  # bytes of a PUBLISH, at most, besides topic name, properties and payload


@dataclass(slots=True)
class BatchPublish(Message):
    """The message of a PUBLISH that carries a batch. It has no identity of its own.

    ``ranges`` are the positions of the messages in it, ``members`` their deliveries, and ``via`` their numbers of the
    link, empty for none.
    """

    ranges: tuple[tuple[int, int], ...] = ()
    members: list[Piece] = field(default_factory=list)
    via: str = ""

    def messages(self) -> list[Message]:
        """The messages in the batch."""
        found: list[Message] = []
        for piece in self.members:
            found += piece.messages() if isinstance(piece, DeliveryRun) else (piece.message,)
        return found


class _Batch(NamedTuple):
    """A batch that is not acknowledged, or a message that goes by itself: as the sender gets it, and the messages."""

    delivery: Delivery
    members: list[Piece]


class BatchCursor:
    """Hands out batches of what a cursor hands out, in its order. It outlives the route's connections.

    A batch that was sent and not acknowledged goes again with the same bytes under the same packet identifier
    [MQTT-4.4.0-1]. Messages that wait for others when a connection ends go back to the cursor.

    Args:
        cursor: hands out the messages.
        log: where it is noted that a message has expired.
        topic: the topic name of the batches.
        limits: the most messages and bytes in a batch, and the milliseconds that a message waits for others.
        most: how many batches may be in flight.
        numbers: gives the messages of this lane their numbers of the link.

    ``payload_max`` is how many bytes of payload the next broker takes.
    """

    durable = True

    def __init__(
        self,
        cursor: LaneCursor | ShapedCursor,
        log: MessageLog,
        topic: str,
        limits: tuple[int, int, int],
        most: int,
        numbers: LinkNumbers,
    ) -> None:
        self.consumer = cursor.consumer
        self.payload_max = SIZE_MAX
        self._cursor = cursor
        self._log = log
        self._topic = topic
        self._numbers = numbers
        self._most = most
        self._packer = BatchPacker(*limits)
        self._batches: dict[int, _Batch] = {}
        self._again: list[int] = []  # batches to hand out again, in their order
        self._latest = 0  # the number given last
        self._wake: Callable[[], None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    async def fetch_now(self, limit: int) -> list[Delivery]:
        """Returns up to ``limit`` batches in order; none if none is due. Raises sqlite3.Error."""
        if self._again:
            return self._take_again(limit)
        found: list[Delivery] = []
        slice_ = Slice()
        try:
            while len(found) < limit and len(self._batches) < self._most and await self._gather():
                found.append(self._add(self._packer.pack(self.payload_max)))
                if slice_.is_over:
                    if found[-1].qos < 2:
                        break
                    await slice_.give_way()  # one commit is for all of them
        except BaseException:
            self.redeliver([delivery.packet_identifier for delivery in found])
            raise
        self._set_timer()
        return found

    def wake_with(self, wake: Callable[[], None] | None) -> None:
        """Calls this, from now on, whenever ``fetch_now`` may have batches, and now. None ends it, and gives messages
        back that wait for others.
        """
        self._wake = wake
        if wake is None:
            self._cursor.wake_with(None)
            self._cursor.redeliver_pieces(self._packer.clear())
            self._set_timer()
        else:
            self._cursor.wake_with(self._tell)
            self._tell()

    def acknowledge_all(self, numbers: Sequence[int]) -> None:
        """All messages of some batches arrived, or are in flows."""
        for number in numbers:
            if batch := self._batches.pop(number, None):
                self._cursor.acknowledge_pieces(batch.members)
        self._tell()

    def redeliver(self, numbers: Iterable[int]) -> None:
        """Hands batches out again, before any new one, with DUP set."""
        self._again = self._in_order({*self._again, *numbers})
        self._tell()

    def place_of(self, number: int) -> tuple[int, int]:
        """Returns position and number of the link of the last message of a batch. Raises KeyError."""
        last = self._batches[number].members[-1]
        return last.last, last.last_number

    def give_back(self) -> None:
        """The cursor has all messages again: they will go in other batches, or one by one. Nothing is being sent."""
        batches, self._batches, self._again = self._batches, {}, []
        for batch in batches.values():
            self._cursor.redeliver_pieces(batch.members)

    @property
    def has_waiting(self) -> bool:
        """Whether messages may wait that were not handed out, or were handed back."""
        return bool(self._again or len(self._packer)) or self._cursor.has_waiting

    def is_batch(self, number: int) -> bool:
        """Whether this is a batch, and not a message that goes by itself."""
        return number in self._batches and isinstance(self._batches[number].delivery.message, BatchPublish)

    def split(self, number: int) -> bool:
        """Hands out two batches, each with half of the messages, instead of one; False for one with a single message.

        Raises KeyError.
        """
        members = self._batches[number].members
        messages = sum(map(messages_in, members))
        if messages == 1:
            return False
        del self._batches[number]
        halves = []
        for part in (first_of(members, messages // 2), behind(members, messages // 2)):
            payload = encode(part).encode()
            halves.append(self._add(PackedBatch(payload, part, max([one.qos for one in part]))).packet_identifier)
        self.redeliver(halves)
        return True

    async def _gather(self) -> bool:
        """Fetches messages until a batch is due; returns whether one is."""
        packer = self._packer
        while not packer.is_due(now_ms := _now_ms()):
            fetched = await self._cursor.fetch_pieces(packer.room, FETCH_MOST)
            unix_ms = int(time.time() * 1000)
            for piece in fetched:
                if isinstance(piece, Delivery) and 0 < piece.message.expires_ms <= unix_ms:
                    self._log.drop(drops.EXPIRED, self.consumer, piece.message)
                    self._cursor.acknowledge_all([piece.packet_identifier])
                else:
                    packer.add(piece, now_ms)
            if not fetched:
                return packer.is_due(now_ms)
        return True

    def _add(self, packed: PackedBatch) -> Delivery:
        number = self._next_number()
        first = packed.deliveries[0]
        self._numbers.count(numbered(packed.deliveries))
        if packed.payload is None:
            assert isinstance(first, Delivery)  # a run never goes by itself
            delivery = first._replace(packet_identifier=number)
        else:
            via = self._numbers.via_of_batch(packed.deliveries)
            publish = batch_publish(self._topic, packed.payload, packed.qos, packed.deliveries, via)
            delivery = Delivery(publish.ranges[-1][1], number, publish, False, packed.qos)
        self._batches[number] = _Batch(delivery, packed.deliveries)
        return delivery

    def _next_number(self) -> int:
        while True:
            self._latest = self._latest % NUMBERS + 1
            if self._latest not in self._batches:
                return self._latest

    def _take_again(self, limit: int) -> list[Delivery]:
        found: list[Delivery] = []
        while self._again and len(found) < limit:
            number = self._again.pop(0)
            delivery = self._batches[number].delivery
            if self._is_too_large(delivery.message) and self.split(number):
                continue
            found.append(delivery._replace(dup=True))
        return found

    def _is_too_large(self, message: Message) -> bool:
        """Whether a batch was packed for a broker that took more at once."""
        return isinstance(message, BatchPublish) and len(message.payload) > self.payload_max

    def _in_order(self, numbers: set[int]) -> list[int]:
        return sorted(numbers & self._batches.keys(), key=self.place_of)

    def _set_timer(self) -> None:
        """Wakes the sender when the next batch is due, even if no message comes."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._packer.due_ms is not None and len(self._batches) < self._most:
            wait_s = max(0, self._packer.due_ms - _now_ms()) / 1000
            self._timer = asyncio.get_running_loop().call_later(wait_s, self._tell)

    def _tell(self) -> None:
        if self._wake is not None:
            self._wake()


def batch_publish(topic: str, payload: bytes, qos: int, members: list[Piece], via: str) -> BatchPublish:
    """Returns the message whose payload is a batch of the messages that were delivered.

    ``via`` has their numbers of the link, in their order, and is empty for none.
    """
    ranges = join_runs((piece.position, piece.last) for piece in members)
    properties: dict[int, Any] = dict(PROPERTIES)
    if via:
        properties[USER_PROPERTY] = [(VIA_PROPERTY, via)]
    return BatchPublish(topic, payload, qos, properties=properties, ranges=tuple(ranges), members=members, via=via)


def payload_max(packet_size_max: int, topic: str, via_size: int) -> int:
    """Returns the most bytes of payload in a PUBLISH with a batch, by the Maximum Packet Size of the next broker.

    ``via_size`` is how many bytes the number of the link has as a property.
    """
    properties_size = len(encode_block(PROPERTIES)) + via_size
    return packet_size_max - HEADER_SIZE - len(topic.encode()) - properties_size


def batches_in_flight(inflight_window: int) -> int:
    """Returns how many batches of a route may be in flight."""
    return min(inflight_window, BATCHES_MOST)


def _now_ms() -> int:
    return int(time.monotonic() * 1000)
