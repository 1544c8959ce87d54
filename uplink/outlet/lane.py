"""One lane of a route: what its cursor hands out goes through the route's steps before it leaves.

::

    LaneCursor ─ messages ─► shape ─► pack ─► RouteCursor
        ▲                                         │
        └── all messages of a batch ◄─────────────┴◄─ PUBACK, or a flow that has the batch durably
"""

import time
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from gateway.routes import Message
from gateway.store import Delivery, LaneCursor, MessageLog, Piece, drops
from uplink.numbers import RouteNumbers, numbered
from uplink.outlet.batch import BatchPacker, PackedBatch, behind, encode, first_of, messages_in
from uplink.outlet.batch_publish import batch_publish
from uplink.refusals import Refusals
from uplink.shape import CannotShape

FETCH_MOST = 250  # messages at once


class Batch(NamedTuple):
    """A batch that is not acknowledged, or a message that goes by itself: as the sender gets it, and the messages."""

    delivery: Delivery
    members: list[Piece]


class Lane:
    """One lane's messages on their way out.

    Args:
        log: where it is noted that a message has expired.
        cursor: hands out the messages.
        numbers: gives them their route numbers.
        refusals: where a message is set aside that cannot be shaped.
        shape: the first step, which returns a message as the route sends it, or raises CannotShape; None: none.
        packer: the second step, which gathers messages for a batch; None: each goes by itself.
        topic: the topic name of batches.

    ``identifiers`` maps the cursor's packet identifier of a delivery to the one used on the line. ``batches`` are those
    in flight, by packet identifier, and ``again`` those to hand out again, in their order.
    """

    def __init__(
        self,
        log: MessageLog,
        cursor: LaneCursor,
        numbers: RouteNumbers,
        refusals: Refusals,
        shape: Callable[[Message], Message] | None,
        packer: BatchPacker | None,
        topic: str,
    ) -> None:
        self.cursor = cursor
        self.packer = packer
        self.identifiers: dict[int, int] = {}
        self.batches: dict[int, Batch] = {}
        self.again: list[int] = []
        self._log = log
        self._numbers = numbers
        self._refusals = refusals
        self._shape = shape
        self._topic = topic

    @property
    def is_plain(self) -> bool:
        """Whether the messages go as the cursor hands them out."""
        return self._shape is None and self.packer is None

    @property
    def has_waiting(self) -> bool:
        """Whether messages may wait that were not handed out, or were handed back."""
        return bool(self.again or self.packer) or self.cursor.has_waiting

    async def fetch(self, limit: int) -> list[Delivery]:
        """Returns up to ``limit`` messages as the route sends them, in order; none if none waits.

        Raises sqlite3.Error, TooManyRefused.
        """
        deliveries = await self.cursor.fetch_now(limit)
        if self._shape is None:
            return deliveries
        while deliveries:
            try:
                if shaped := [one for one in map(self._shaped, deliveries) if one is not None]:
                    return shaped
            except BaseException:
                self.cursor.redeliver([delivery.packet_identifier for delivery in deliveries])
                raise
            deliveries = await self.cursor.fetch_now(limit)
        return []

    async def next_batch(self, packer: BatchPacker, payload_max: int) -> PackedBatch | None:
        """Returns the next batch, of at most this many bytes, once one is due; None before.

        Raises sqlite3.Error, TooManyRefused.
        """
        while not packer.is_due(now_ms := now_in_ms()):
            pieces: Sequence[Piece]
            if self._shape is None:
                pieces = await self.cursor.fetch_pieces(packer.room, FETCH_MOST)
            else:  # each message is shaped by itself, so none of them is in a run
                pieces = await self.fetch(FETCH_MOST)
            unix_ms = int(time.time() * 1000)
            for piece in pieces:
                if isinstance(piece, Delivery) and 0 < piece.message.expires_ms <= unix_ms:
                    self._log.drop(drops.EXPIRED, self.cursor.consumer, piece.message)
                    self.cursor.acknowledge_all([piece.packet_identifier])
                else:
                    packer.add(piece, now_ms)
            if not pieces:
                return None
        return packer.pack(payload_max)

    def begin_batch(self, number: int, packed: PackedBatch) -> Delivery:
        """Returns what the sender gets for a batch, which is in flight from now on under a packet identifier."""
        self._numbers.count(numbered(packed.deliveries))
        if packed.payload is None:
            first = packed.deliveries[0]
            assert isinstance(first, Delivery)  # a run never goes by itself
            delivery = first._replace(packet_identifier=number)
        else:
            via = self._numbers.via_of_batch(packed.deliveries)
            publish = batch_publish(self._topic, packed.payload, packed.qos, packed.deliveries, via)
            delivery = Delivery(publish.ranges[-1][1], number, publish, False, packed.qos)
        self.batches[number] = Batch(delivery, packed.deliveries)
        return delivery

    def halves(self, number: int) -> list[PackedBatch]:
        """Returns two batches, each with half of the messages, instead of one in flight; none if it has one message.

        Raises KeyError.
        """
        members = self.batches[number].members
        messages = sum(map(messages_in, members))
        if messages == 1:
            return []
        del self.batches[number]
        parts = first_of(members, messages // 2), behind(members, messages // 2)
        return [PackedBatch(encode(part).encode(), part, max([one.qos for one in part])) for part in parts]

    def messages_in(self, deliveries: Sequence[Delivery]) -> int:
        """Returns how many messages deliveries in flight have."""
        if self.packer is None:
            return len(deliveries)
        return sum([messages_in(piece) for one in deliveries for piece in self.batches[one.packet_identifier].members])

    def place_of(self, number: int) -> tuple[int, int]:
        """Returns position and route number of a delivery without an acknowledgement, of a batch those of its
        last message. Raises KeyError.
        """
        if self.packer is None:
            return self.cursor.place_of(number)
        last = self.batches[number].members[-1]
        return last.last, last.last_number

    def acknowledge_all(self, numbers: Sequence[int]) -> None:
        """Deliveries arrived, or are in flows."""
        if self.packer is None:
            self.cursor.acknowledge_all(numbers)
            return
        for number in numbers:
            self.cursor.acknowledge_pieces(self.batches.pop(number).members)

    def redeliver(self, numbers: Iterable[int]) -> None:
        """Hands deliveries out again, before any new one."""
        if self.packer is None:
            self.cursor.redeliver(numbers)
        else:
            self.again = sorted({*self.again, *numbers}, key=self.place_of)

    def give_back(self) -> None:
        """The cursor has all messages of batches again."""
        batches, self.batches, self.again = self.batches, {}, []
        for batch in batches.values():
            self.cursor.redeliver_pieces(batch.members)

    def _shaped(self, delivery: Delivery) -> Delivery | None:
        """Returns a delivery as the route sends it; None, and its message is set aside, if that cannot be shaped."""
        assert self._shape is not None
        try:
            message = self._shape(delivery.message)
        except CannotShape as error:
            self._refusals.set_aside(delivery.position, str(error), self._numbers.via(delivery.number))
            self.cursor.acknowledge_all([delivery.packet_identifier])
            return None
        if message is delivery.message:
            return delivery
        retain = delivery.retain and message.retain
        return delivery._replace(message=message, qos=min(delivery.qos, max(1, message.qos)), retain=retain)


def now_in_ms() -> int:
    """Returns the time of a clock that never goes back, in milliseconds."""
    return int(time.monotonic() * 1000)
