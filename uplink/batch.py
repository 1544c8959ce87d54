"""A route's column batches: which deliveries leave together in one PUBLISH, and when; without a connection or a clock.

::

    cursor ─ Delivery ─► BatchPacker ─ full, or the oldest is old enough ─► PackedBatch ─► one PUBLISH
"""

from collections import deque
from collections.abc import Iterable
from itertools import islice
from typing import NamedTuple

from gateway.routes import Delivery, Message, plain_properties
from wire.bulk.column_batch import CONTENT_TYPE, BatchFull, ColumnBatchEncoder
from wire.bulk.property_block import encode_contents
from wire.properties import CONTENT_TYPE as CONTENT_TYPE_PROPERTY

RUNS_MOST = 1000  # of numbers of the link in a batch, so that hf-via is no longer than a text of MQTT may be

PROPERTIES = {CONTENT_TYPE_PROPERTY: CONTENT_TYPE}
"""Those of a PUBLISH with a batch."""


class PackedBatch(NamedTuple):
    """What leaves in one PUBLISH. Its acknowledgement is that of all its deliveries.

    ``payload`` is None for a single message that goes by itself. ``qos`` is the highest of the deliveries.
    """

    payload: bytes | None
    deliveries: list[Delivery]
    qos: int


class BatchPacker:
    """Gathers the deliveries of one route in their order.

    Args:
        max_messages: the most messages in a batch.
        max_bytes: the most bytes in a batch, before compression, unless a single message has more.
        max_age_ms: how long a delivery waits for others.
        retained_alone: whether a retained message goes by itself, as a broker does not notice it in a batch.
    """

    def __init__(self, max_messages: int, max_bytes: int, max_age_ms: int, *, retained_alone: bool = True) -> None:
        self._max_messages = max_messages
        self._max_bytes = max_bytes
        self._max_age_ms = max_age_ms
        self._retained_alone = retained_alone
        self._waiting: deque[tuple[Delivery, int, int]] = deque()  # each with the time when it came, and its size
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def due_ms(self) -> int | None:
        """When the next batch leaves even if it is not full; None while no delivery waits."""
        return self._waiting[0][1] + self._max_age_ms if self._waiting else None

    def is_due(self, now_ms: int) -> bool:
        """Whether a batch leaves now: it is full, or its oldest delivery is old enough or goes by itself."""
        if self._waiting and self._goes_alone(self._waiting[0][0]):
            return True
        if len(self._waiting) >= self._max_messages or self._bytes >= self._max_bytes:
            return True
        return bool(self._waiting) and self._waiting[0][1] + self._max_age_ms <= now_ms

    def add(self, delivery: Delivery, now_ms: int) -> None:
        """Adds a delivery behind all others."""
        message = delivery.message
        size = len(message.topic) + len(message.payload) + message.properties_size
        self._waiting.append((delivery, now_ms, size))
        self._bytes += size

    def clear(self) -> list[Delivery]:
        """Takes all deliveries, without packing them."""
        taken = [one for one, _, _ in self._waiting]
        self._waiting.clear()
        self._bytes = 0
        return taken

    def pack(self, payload_max: int) -> PackedBatch:
        """Takes the oldest deliveries, at least one, and encodes them.

        Args:
            payload_max: the most bytes that the next broker takes as a payload. A batch of one message may have more.
        """
        most = self._count_next()
        while True:
            encoder = encode([(one.message, one.retain) for one, _, _ in islice(self._waiting, most)])
            payload = encoder.encode() if len(encoder) else None
            if payload is None or len(payload) <= payload_max or len(encoder) == 1:
                break
            most = max(1, min(len(encoder) - 1, len(encoder) * payload_max // len(payload)))
        taken = [self._waiting.popleft() for _ in range(len(encoder) or 1)]
        self._bytes -= sum([size for _, _, size in taken])
        return PackedBatch(payload, [one for one, _, _ in taken], max([one.qos for one, _, _ in taken]))

    def _goes_alone(self, delivery: Delivery) -> bool:
        return self._retained_alone and delivery.retain

    def _count_next(self) -> int:
        count = size = runs = before = 0
        for one, _, its_size in self._waiting:
            size += its_size
            runs += one.number > before + 1
            before = one.number
            if self._goes_alone(one) or count == self._max_messages or (count and size > self._max_bytes):
                break
            if runs > RUNS_MOST:
                break
            count += 1
        return count


def encode(messages: Iterable[tuple[Message, bool]]) -> ColumnBatchEncoder:
    """Returns an encoder with the first of these messages, as many as fit into a batch, each with its RETAIN flag."""
    encoder = ColumnBatchEncoder()
    blocks: dict[int, bytes] = {}  # by the identity of the properties, which many messages share
    for message, retain in messages:
        block = blocks.get(id(message.properties))
        if block is None:
            block = encode_contents(plain_properties(message))
            if not message.expires_ms:
                blocks[id(message.properties)] = block
        try:
            encoder.add(
                message.topic,
                message.payload,
                message.qos,
                retain,
                block,
                message.origin,
                message.epoch,
                message.seq,
                message.received_ms,
                message.received_by,
            )
        except BatchFull:
            break
    return encoder


def batch_topic(gateway_name: str, route_name: str) -> str:
    """Returns the topic name of a route's batches, unless the configuration gives another one."""
    return f"holdfast/batch/{gateway_name}/{route_name}"
