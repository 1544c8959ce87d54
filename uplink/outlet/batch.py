"""A route's column batches: which deliveries leave together in one PUBLISH, and when; without a connection or a clock.

::

    cursor ─ Delivery, DeliveryRun ─► BatchPacker ─ full, or the oldest is old enough ─► PackedBatch ─► one PUBLISH
"""

from collections import deque
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from gateway.routes import Message, plain_properties
from gateway.store import DeliveryRun, Piece
from wire.bulk.batch_encoder import BatchFull, ColumnBatchEncoder
from wire.bulk.property_block import encode_contents
from wire.bulk.publishes import qos_of

RUNS_MOST = 1000  # of route numbers in a batch, so that hf-via is no longer than a text of MQTT may be


class PackedBatch(NamedTuple):
    """What leaves in one PUBLISH. Its acknowledgement counts for all its deliveries.

    ``payload`` is None for a single message that goes by itself. ``qos`` is the highest of the deliveries.
    """

    payload: bytes | None
    deliveries: list[Piece]
    qos: int


class _Waiting(NamedTuple):
    """Deliveries that came at a time, and the bytes of their messages."""

    piece: Piece
    came_ms: int
    size: int


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
        self._waiting: deque[_Waiting] = deque()
        self._messages = self._bytes = 0

    def __len__(self) -> int:
        return self._messages

    @property
    def room(self) -> int:
        """How many more messages fit into the next batch."""
        return max(0, self._max_messages - self._messages)

    @property
    def due_ms(self) -> int | None:
        """When the next batch leaves even if it is not full; None while no delivery waits."""
        return self._waiting[0].came_ms + self._max_age_ms if self._waiting else None

    def is_due(self, now_ms: int) -> bool:
        """Whether a batch leaves now: it is full, or its oldest delivery is old enough or goes by itself."""
        if self._waiting and self._goes_alone(self._waiting[0].piece):
            return True
        if self._messages >= self._max_messages or self._bytes >= self._max_bytes:
            return True
        return bool(self._waiting) and self._waiting[0].came_ms + self._max_age_ms <= now_ms

    def add(self, piece: Piece, now_ms: int) -> None:
        """Adds a delivery, or many, behind all others."""
        if isinstance(piece, DeliveryRun):
            size = piece.size
        else:
            message = piece.message
            size = len(message.topic) + len(message.payload) + message.properties_size
        self._waiting.append(_Waiting(piece, now_ms, size))
        self._messages += messages_in(piece)
        self._bytes += size

    def clear(self) -> list[Piece]:
        """Takes all deliveries, without packing them."""
        taken = [one.piece for one in self._waiting]
        self._waiting.clear()
        self._messages = self._bytes = 0
        return taken

    def pack(self, payload_max: int) -> PackedBatch:
        """Takes the oldest deliveries, at least one, and encodes them.

        Args:
            payload_max: the most bytes that the next broker takes as a payload. A batch of one message may have more.
        """
        most = self._count_next()
        while True:
            encoder = encode(first_of(self._pieces(), most))
            payload = encoder.encode() if len(encoder) else None
            if payload is None or len(payload) <= payload_max or len(encoder) == 1:
                break
            most = max(1, min(len(encoder) - 1, len(encoder) * payload_max // len(payload)))
        taken = self._take(len(encoder) or 1)
        return PackedBatch(payload, taken, max([one.qos for one in taken]))

    def _pieces(self) -> Iterator[Piece]:
        return (one.piece for one in self._waiting)

    def _take(self, messages: int) -> list[Piece]:
        taken = first_of(self._pieces(), messages)
        self._messages -= messages
        for piece in taken:
            whole, came_ms, size = self._waiting.popleft()
            if isinstance(whole, DeliveryRun) and whole != piece:
                rest = whole.behind(messages_in(piece))
                self._waiting.appendleft(_Waiting(rest, came_ms, rest.size))
                size -= rest.size
            self._bytes -= size
        return taken

    def _goes_alone(self, piece: Piece) -> bool:
        return self._retained_alone and not isinstance(piece, DeliveryRun) and piece.retain

    def _count_next(self) -> int:
        count = size = runs = before = 0
        for piece, _, its_size in self._waiting:
            runs += piece.number > before + 1
            before = piece.last_number
            if self._goes_alone(piece) or count >= self._max_messages or runs > RUNS_MOST:
                break
            size += its_size
            if size > self._max_bytes:
                if isinstance(piece, DeliveryRun):
                    count += piece.fitting(self._max_bytes - size + its_size)
                return min(max(1, count), self._max_messages)
            count += messages_in(piece)
        return min(count, self._max_messages)


def messages_in(piece: Piece) -> int:
    """Returns how many messages are delivered."""
    return len(piece) if isinstance(piece, DeliveryRun) else 1


def first_of(pieces: Iterable[Piece], messages: int) -> list[Piece]:
    """Returns the first deliveries, up to ``messages`` of them."""
    found: list[Piece] = []
    for piece in pieces:
        if messages <= 0:
            break
        found.append(piece.first(messages) if isinstance(piece, DeliveryRun) and len(piece) > messages else piece)
        messages -= messages_in(piece)
    return found


def behind(pieces: Iterable[Piece], messages: int) -> list[Piece]:
    """Returns the other deliveries."""
    found: list[Piece] = []
    for piece in pieces:
        if messages <= 0:
            found.append(piece)
        elif isinstance(piece, DeliveryRun) and len(piece) > messages:
            found.append(piece.behind(messages))
        messages -= messages_in(piece)
    return found


def encode(pieces: Iterable[Piece]) -> ColumnBatchEncoder:
    """Returns an encoder with the first of these messages, as many as fit into a batch."""
    encoder = ColumnBatchEncoder()
    blocks: dict[int, bytes] = {}  # by the identity of the properties, which many messages share
    for piece in pieces:
        try:
            if isinstance(piece, DeliveryRun):
                _add_run(encoder, piece)
            else:
                _add(encoder, piece.message, piece.retain, blocks)
        except BatchFull:
            break
    return encoder


def _add(encoder: ColumnBatchEncoder, message: Message, retain: bool, blocks: dict[int, bytes]) -> None:
    block = blocks.get(id(message.properties))
    if block is None:
        block = encode_contents(plain_properties(message))
        if not message.expires_ms:
            blocks[id(message.properties)] = block
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


def _add_run(encoder: ColumnBatchEncoder, run: DeliveryRun) -> None:
    """Adds the messages of a run. Raises BatchFull if not all of them fit; then the first ones are added that do."""
    batch = run.batch
    topics, blocks, payloads, *_ = run.columns()
    try:
        encoder.add_columns(
            topics, blocks, payloads, qos_of(batch.packets), run.identities, batch.received_ms, batch.gateway
        )
    except BatchFull:
        if len(run) > 1:
            half = len(run) // 2
            _add_run(encoder, run.first(half))
            _add_run(encoder, run.behind(half))
        raise
