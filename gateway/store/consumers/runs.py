"""Runs: messages that came in one piece and that a consumer takes alike, handed out and acknowledged in one piece.

A run is a `PublishBatch` or a part of one. Its topic names, properties and payloads are read as columns, so that no
message of it becomes an object. As soon as one message of a run has to be treated by itself, such as after an eviction,
its deliveries become single ones.
"""

from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import accumulate
from operator import add
from typing import NamedTuple

from gateway.message import Message
from gateway.store.consumers.delivery import Delivery, Grant
from gateway.store.tables.log_rows import PublishBatch
from wire.bulk.property_block import Identity, decode_common, encode_contents
from wire.bulk.publishes import Halves, cut_columns, cut_halves, lay_out_halves, qos_of, split_columns

COLUMNS_REMEMBERED = 4  # batches of PUBLISHes: a run is often followed by another one of the same batch
LAID_OUT_REMEMBERED = 4  # runs for the next subscriber


class Columns(NamedTuple):
    """Messages of a `PublishBatch`: one field of all after the other.

    ``blocks`` are the properties of each as they travel on, without their length. There are no ``identities`` where the
    messages brought none. ``sizes`` is how many bytes each message counts for in a backlog (``Message.content_size``).
    ``may_expire``: at least one message of the batch may.
    """

    topics: list[bytes]
    blocks: list[bytes]
    payloads: list[bytes]
    identities: list[Identity]
    sizes: list[int]
    may_expire: bool

    def cut(self, begin: int, end: int) -> "Columns":
        """Returns the columns of the messages from one to another."""
        return self._replace(
            topics=self.topics[begin:end],
            blocks=self.blocks[begin:end],
            payloads=self.payloads[begin:end],
            identities=self.identities[begin:end],
            sizes=self.sizes[begin:end],
        )


@lru_cache(maxsize=COLUMNS_REMEMBERED)
def columns_of(batch: PublishBatch) -> Columns:
    """Returns the columns of all messages of a batch."""
    topics, blocks, identities, payloads = cut_columns(batch.packets, batch.level)
    name_sizes = {topic: len(topic.decode()) for topic in set(topics)}
    sizes = list(map(add, map(name_sizes.__getitem__, topics), map(len, payloads)))
    may_expire = False
    if (as_they_came := set(blocks)) != {b""}:
        own: dict[bytes, bytes] = {}
        block_sizes: dict[bytes, int] = {}
        for block in as_they_came:
            common = decode_common(block)
            assert common is not None
            own[block], block_sizes[block] = encode_contents(common.properties), common.size
            may_expire = may_expire or common.expiry_ms > 0
        sizes = list(map(add, sizes, map(block_sizes.__getitem__, blocks)))
        blocks = [own[block] for block in blocks]
    return Columns(topics, blocks, payloads, identities, sizes, may_expire)


@lru_cache(maxsize=COLUMNS_REMEMBERED)
def halves_of(batch: PublishBatch) -> Halves:
    """Returns the halves of the PUBLISHes of a batch, as they came: what most subscribers get."""
    return cut_halves(batch.packets, batch.level)


@lru_cache(maxsize=LAID_OUT_REMEMBERED)
def _laid_out(batch: PublishBatch, begin: int, end: int, level: int) -> tuple[list[bytes], int, int]:
    if batch.level == level and not batch.bring_identities:
        halves = halves_of(batch)
        parts, longest = lay_out_halves(halves.heads[begin:end], halves.tails[begin:end])
        return parts, longest, sum(halves.payload_sizes[begin:end])
    topics, blocks, payloads, *_ = columns_of(batch).cut(begin, end)
    parts, longest = lay_out_halves(*split_columns(topics, blocks, payloads, level, qos_of(batch.packets)))
    return parts, longest, sum(map(len, payloads))


@dataclass(frozen=True, slots=True)
class FlownRun:
    """What is kept of a run in flight: its deliveries at consecutive positions from ``position`` on.

    ``taken`` is how many messages the consumer took before, and ``identifiers`` how many packet identifiers there are.
    ``sizes`` is how many bytes each message counts for in the backlog.
    """

    position: int
    taken: int
    identifiers: int
    grant: Grant
    sizes: list[int]

    def __len__(self) -> int:
        return len(self.sizes)

    @property
    def size(self) -> int:
        """How many bytes all messages count for in the backlog."""
        return sum(self.sizes)

    @property
    def last(self) -> int:
        """The position of its last message."""
        return self.position + len(self) - 1

    @property
    def packet_identifier(self) -> int:
        """The packet identifier of its first delivery."""
        return self.taken % self.identifiers + 1

    @property
    def packet_identifiers(self) -> list[int]:
        """The packet identifiers of all its deliveries."""
        return self.packet_identifiers_of(0, len(self))

    def packet_identifiers_of(self, first: int, end: int) -> list[int]:
        """The packet identifiers of its deliveries from ``first`` up to but not ``end``."""
        begin = (self.taken + first) % self.identifiers + 1
        if begin + end - first <= self.identifiers + 1:
            return list(range(begin, begin + end - first))
        return [taken % self.identifiers + 1 for taken in range(self.taken + first, self.taken + end)]


@dataclass(frozen=True, slots=True)
class DeliveryRun(FlownRun):
    """Deliveries of the messages of a batch from ``begin`` on. ``dup``: a former process may have delivered them."""

    batch: PublishBatch
    begin: int
    dup: bool

    @property
    def end(self) -> int:
        """The number in the batch of the first message behind it."""
        return self.begin + len(self)

    @property
    def qos(self) -> int:
        """The QoS, the same for every delivery."""
        return self.grant.qos

    @property
    def number(self) -> int:
        """The number of its first delivery among all messages that the consumer has taken."""
        return self.taken + 1

    @property
    def last_number(self) -> int:
        """The number of its last delivery."""
        return self.taken + len(self)

    @property
    def flown(self) -> FlownRun:
        """What is kept of it in flight: not its messages, which a client may leave unacknowledged for long."""
        return FlownRun(self.position, self.taken, self.identifiers, self.grant, self.sizes)

    @property
    def identities(self) -> list[Identity] | Identity:
        """The identity of each message, or that of the first one; the others follow it."""
        identities = columns_of(self.batch).identities[self.begin : self.end]
        return identities or (self.batch.gateway, self.batch.epoch, self.batch.first_seq + self.begin)

    def deliveries(self) -> list[Delivery]:
        """Returns its deliveries one by one."""
        numbered = zip(self.packet_identifiers, self.messages(), strict=True)
        return [
            Delivery(self.position + index, identifier, message, self.dup, *self.grant, self.number + index)
            for index, (identifier, message) in enumerate(numbered)
        ]

    def columns(self) -> Columns:
        """Returns its messages as columns."""
        columns = columns_of(self.batch)
        return columns if len(self) == self.batch.count else columns.cut(self.begin, self.end)

    def laid_out(self, level: int) -> tuple[list[bytes], int, int]:
        """Returns the parts of its PUBLISHes without their packet identifiers, for ``fill_in``; a length that none of
        them exceeds; and the bytes of all payloads. The subscribers of a topic mostly get the same messages one after
        another: they share the parts.
        """
        return _laid_out(self.batch, self.begin, self.end, level)

    def messages(self) -> list[Message]:
        """Returns its messages."""
        return self.batch.messages()[self.begin : self.end]

    def first(self, messages: int) -> "DeliveryRun":
        """Returns the run of its first messages."""
        return replace(self, sizes=self.sizes[:messages])

    def behind(self, messages: int) -> "DeliveryRun":
        """Returns the run of the messages behind its first ones."""
        position, taken, begin = self.position + messages, self.taken + messages, self.begin + messages
        return replace(self, position=position, taken=taken, begin=begin, sizes=self.sizes[messages:])

    def fitting(self, size: int) -> int:
        """Returns how many messages, from the first one on, have no more bytes together."""
        found = 0
        for found, total in enumerate(accumulate(self.sizes)):
            if total > size:
                return found
        return found + 1
