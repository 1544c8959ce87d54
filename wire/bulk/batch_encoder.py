"""The encoder of column batches: it cuts PUBLISHes as they are stored, and works on whole columns."""

from collections.abc import Iterable
from itertools import pairwise
from typing import Any

from wire.bulk.batch_columns import encode_column, encode_number, encode_table
from wire.bulk.batch_frame import MESSAGES_MAX, SIZE_MAX, compress
from wire.bulk.column_batch import PROPERTIES_MAX, RETAIN_FLAG
from wire.bulk.property_block import Identity
from wire.bulk.publishes import cut_columns, qos_of
from wire.errors import WireError

NO_RUN = (0, -1)

MESSAGE_OVERHEAD = 64
"""Bytes of a message in a batch besides topic name, properties, names and payload: more than they can be."""


class BatchFull(WireError):
    """A message does not fit into the batch; nothing of it was added."""


class _Table(dict[Any, int]):
    """Distinct values with their places, in the order in which they came."""

    def __missing__(self, value: Any) -> int:
        self[value] = place = len(self)
        return place


class ColumnBatchEncoder:
    """Gathers messages, and encodes them as one batch.

    `size` is at least the bytes that the messages have without compression.
    """

    def __init__(self) -> None:
        self.size = 2 * MESSAGE_OVERHEAD
        self._properties_size = 0
        self._topics, self._blocks, self._origins, self._receivers = _Table(), _Table(), _Table(), _Table()
        self._topic_of: list[int] = []
        self._flags: list[int] = []
        self._block_of: list[int] = []
        self._runs: list[tuple[int, int, int]] = []
        self._open_runs: dict[tuple[str, int], tuple[int, int]] = {}  # each with the seq that it expects
        self._run_of: list[int] = []
        self._receiver_of: list[int] = []
        self._received: list[tuple[int, int]] = []  # times, each with the number of messages that have it
        self._lengths: list[int] = []
        self._payloads: list[bytes] = []

    def __len__(self) -> int:
        return len(self._payloads)

    def add(
        self,
        topic: str,
        payload: bytes,
        qos: int,
        retain: bool,
        block: bytes,
        origin: str,
        epoch: int,
        seq: int,
        received_ms: int,
        received_by: str,
    ) -> None:
        """Adds one message, with the fields of a `BatchMessage`. Raises BatchFull."""
        name = topic.encode()
        size = len(name) + len(block) + len(payload)
        if (
            origin in self._origins
            and block in self._blocks
            and received_by in self._receivers
            and len(self._payloads) < MESSAGES_MAX
            and self.size + size + MESSAGE_OVERHEAD <= SIZE_MAX
        ):
            self.size += size + MESSAGE_OVERHEAD
        else:
            self._make_room(1, size, (block,), (origin,), received_by)
        self._topic_of.append(self._topics[name])
        self._block_of.append(self._blocks[block])
        self._flags.append(qos | retain * RETAIN_FLAG)
        self._payloads.append(payload)
        self._lengths.append(len(payload))
        self._add_identity(origin, epoch, seq)
        self._receiver_of.append(self._receivers[received_by])
        self._received.append((received_ms, 1))

    def add_publishes(
        self,
        packets: bytes,
        level: int,
        origin: str,
        epoch: int,
        first_seq: int,
        received_ms: int,
        received_by: str,
        begin: int = 0,
        end: int | None = None,
    ) -> None:
        """Adds PUBLISHes that `wire.bulk.publishes.cut_publishes` has cut. Raises BatchFull.

        Args:
            packets: their bytes, back to back.
            level: their protocol level.
            origin, epoch, first_seq: the identity of the first one; the others follow. Not used where they bring one.
            received_ms, received_by: when and by which gateway they were accepted.
            begin, end: the first one to add, and the first one behind those; without `end` all that follow.
        """
        topics, blocks, identities, payloads = cut_columns(packets, level)
        if begin or end is not None:
            topics, blocks, payloads = topics[begin:end], blocks[begin:end], payloads[begin:end]
            identities = identities[begin:end]
        identity = (origin, epoch, first_seq + begin)
        self.add_columns(topics, blocks, payloads, qos_of(packets), identities or identity, received_ms, received_by)

    def add_columns(
        self,
        topics: list[bytes],
        blocks: list[bytes],
        payloads: list[bytes],
        qos: int,
        identities: list[Identity] | Identity,
        received_ms: int,
        received_by: str,
    ) -> None:
        """Adds messages without RETAIN, of which these fields are known. Raises BatchFull.

        Args:
            topics: their topic names.
            blocks: the properties of each, as in a `BatchMessage`.
            payloads: their payloads.
            qos: their QoS.
            identities: the identity of each, or that of the first one; the others follow.
            received_ms, received_by: when and by which gateway they were accepted.
        """
        added = len(payloads)
        lengths = list(map(len, payloads))
        own_blocks = set(blocks)
        blocks_size = added * len(blocks[0]) if len(own_blocks) == 1 else sum(map(len, blocks))
        size = sum(map(len, topics)) + blocks_size + sum(lengths)
        origins = {one[0] for one in identities} if isinstance(identities, list) else {identities[0]}
        self._make_room(added, size, own_blocks, origins, received_by)
        self._topic_of += map(self._topics.__getitem__, topics)
        self._block_of += map(self._blocks.__getitem__, blocks)
        self._flags += [qos] * added
        self._payloads += payloads
        self._lengths += lengths
        if isinstance(identities, list):
            for identity in identities:
                self._add_identity(*identity)
        else:
            self._run_of += [self._run(*identities, added)] * added
        self._receiver_of += [self._receivers[received_by]] * added
        self._received.append((received_ms, added))

    def encode(self) -> bytes:
        """Returns the batch of all messages that were added, at least one."""
        origins, epochs, first_seqs = zip(*self._runs)
        columns = (
            encode_number(len(self)),
            encode_table(self._topics),
            encode_column(self._topic_of),
            encode_column(self._flags),
            encode_table(self._blocks),
            encode_column(self._block_of),
            encode_table([name.encode() for name in self._origins]),
            encode_number(len(origins)),
            encode_column(origins),
            encode_column(epochs),
            encode_column(first_seqs),
            encode_column(self._run_of),
            encode_table([name.encode() for name in self._receivers]),
            encode_column(self._receiver_of),
            _encode_times(self._received),
            encode_column(self._lengths),
        )
        return compress(b"".join(columns) + b"".join(self._payloads))

    def _make_room(
        self, added: int, size: int, blocks: Iterable[bytes], origins: Iterable[str], received_by: str
    ) -> None:
        size += added * MESSAGE_OVERHEAD
        for origin in origins:
            if origin not in self._origins:
                size += len(origin.encode())
        if received_by not in self._receivers:
            size += len(received_by.encode())
        properties_size = self._properties_size
        for block in blocks:
            if block not in self._blocks:
                properties_size += len(block)
        if len(self) + added > MESSAGES_MAX or self.size + size > SIZE_MAX or properties_size > PROPERTIES_MAX:
            raise BatchFull(f"{len(self)} messages of {self.size} bytes, and {added} of {size} bytes more")
        self.size += size
        self._properties_size = properties_size

    def _add_identity(self, origin: str, epoch: int, seq: int) -> None:
        place, expected = self._open_runs.get((origin, epoch), NO_RUN)
        if seq == expected:
            self._open_runs[origin, epoch] = place, seq + 1
        else:
            place = self._run(origin, epoch, seq, 1)
        self._run_of.append(place)

    def _run(self, origin: str, epoch: int, seq: int, length: int) -> int:
        """Returns the run that ``length`` identities belong to: one that goes on, or a new one."""
        place, expected = self._open_runs.get((origin, epoch), NO_RUN)
        if seq != expected:
            place = len(self._runs)
            self._runs.append((self._origins[origin], epoch, seq))
        self._open_runs[origin, epoch] = place, seq + length
        return place


def _encode_times(times: list[tuple[int, int]]) -> bytes:
    first = latest = times[0][0]
    back = max(0, -min([later - earlier for (earlier, _), (later, _) in pairwise(times)], default=0))
    steps: list[int] = []
    for time, messages in times:
        steps.append(time - latest + back)
        steps += [back] * (messages - 1)
        latest = time
    return encode_number(first) + encode_number(back) + encode_column(steps)
