"""Runs: messages that came in one piece and that a consumer takes alike, handed out and acknowledged in one piece.

A run is a `PublishBatch` or a part of one. Its topic names, properties and payloads are read as columns, so that no
message of it becomes an object. As soon as one message of a run has to be treated by itself, such as after an eviction,
its deliveries become single ones.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import accumulate
from operator import add
from typing import NamedTuple

from gateway.message import Message
from gateway.store.consumers.delivery import Delivery, Grant, InFlight
from gateway.store.tables.evicted import EvictedMessage
from gateway.store.tables.log_rows import PublishBatch
from wire.bulk.property_block import Identity, decode_common, encode_contents
from wire.bulk.publishes import Halves, cut_columns, cut_halves, lay_out_halves, qos_of, split_columns

COLUMNS_REMEMBERED = 4  # batches of PUBLISHes: a run is often followed by another one of the same batch
LAID_OUT_REMEMBERED = 4  # runs for the next subscriber
_NO_RUNS: dict[int, "FlownRun"] = {}  # of all consumers that have taken none yet: most devices only publish
_NO_NUMBERS: dict[int, int] = {}


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


class RunsInFlight(InFlight):
    """The same with runs. A run is one entry under the packet identifier of its first delivery, until ``spread``: the
    place of the first delivery without an acknowledgement, and the bytes of all of these.
    """

    __slots__ = ("_next", "_runs")

    def __init__(self) -> None:
        super().__init__()
        self._runs = _NO_RUNS
        self._next = _NO_NUMBERS  # the first packet identifier of a run, by the one to be acknowledged next

    def add_run(self, run: DeliveryRun) -> None:
        """Adds a run behind all other deliveries."""
        if self._runs is _NO_RUNS:
            self._runs, self._next = {}, {}
        first = run.packet_identifier
        self.entries[first] = (run.position, run.grant, run.size, run.taken)
        self._runs[first] = run.flown
        self._next[first] = first

    def take_run(self, run: DeliveryRun) -> bool:
        """Removes a run; returns False if it is not here in one piece."""
        first = run.packet_identifier
        if self._runs.get(first) != run.flown or first not in self._next:
            return False
        del self._runs[first], self.entries[first], self._next[first]
        return True

    def take_from_runs(self, packet_identifiers: Sequence[int]) -> tuple[int, int, Sequence[int]]:
        """Removes deliveries from the beginnings of runs.

        Returns how many these are and how many bytes they have, and the packet identifiers of other deliveries, which
        are single ones from now on.
        """
        if not self._runs:
            return 0, 0, packet_identifiers
        found = size = at = 0
        others: list[int] = []
        while at < len(packet_identifiers):
            first = self._next.pop(packet_identifiers[at], None)
            if first is None:
                others.append(packet_identifiers[at])
                at += 1
                continue
            run = self._runs[first]
            position, grant, total, taken = self.entries[first]
            begin = taken - run.taken
            end = min(len(run), begin + len(packet_identifiers) - at)
            count = _count_equal(run.packet_identifiers_of(begin, end), packet_identifiers[at : at + end - begin])
            acknowledged = total if begin + count == len(run) else sum(run.sizes[begin : begin + count])
            size += acknowledged
            if begin + count == len(run):
                del self._runs[first], self.entries[first]
            else:
                self.entries[first] = (position + count, grant, total - acknowledged, taken + count)
                self._next[run.packet_identifiers_of(begin + count, begin + count + 1)[0]] = first
            found += count
            at += count
        if any(one in self._runs or one not in self.entries for one in others):
            self.spread()
        return found, size, others

    def spread(self) -> None:
        """Makes single deliveries of all runs."""
        if not self._runs:
            return
        before, runs = list(self.entries.items()), self._runs
        self._runs, self._next = _NO_RUNS, _NO_NUMBERS
        self.entries.clear()
        for packet_identifier, entry in before:
            if run := runs.get(packet_identifier):
                for index in range(entry[3] - run.taken, len(run)):
                    (number,) = run.packet_identifiers_of(index, index + 1)
                    self.entries[number] = (run.position + index, run.grant, run.sizes[index], run.taken + index)
            else:
                self.entries[packet_identifier] = entry

    def positions(self) -> list[int]:
        found: list[int] = []
        for packet_identifier, (position, *_) in self.entries.items():
            run = self._runs.get(packet_identifier)
            found += range(position, run.last + 1) if run else (position,)
        return found

    def sizes(self) -> list[int]:
        self.spread()
        return super().sizes()

    def place_of(self, packet_identifier: int) -> tuple[int, int]:
        self.spread()
        return super().place_of(packet_identifier)

    def redeliver(self, packet_identifiers: set[int]) -> None:
        self.spread()
        super().redeliver(packet_identifiers)

    def lose(self, messages: dict[int, Message], last: int, note: Callable[[Message], EvictedMessage]) -> None:
        if self._runs and self.oldest <= last:
            self.spread()
        super().lose(messages, last, note)


def _count_equal(expected: list[int], numbers: Sequence[int]) -> int:
    """Returns how many numbers are as expected, from the first one on."""
    if numbers == expected:
        return len(expected)
    return next(index for index, pair in enumerate(zip(expected, numbers, strict=True)) if pair[0] != pair[1])
