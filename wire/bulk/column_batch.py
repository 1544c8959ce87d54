"""Many messages in the payload of one PUBLISH, as columns: docs/reference/batch.md has the format byte by byte.

::

    "hfb" | version | zstd frame( count | topics | flags | properties | identities | provenance | lengths | payloads )

A column holds one field of all messages. Both ends work on whole columns: the encoder cuts PUBLISHes as they are
stored, and the decoder returns buffers that a program for tables takes as they are.
"""

import sys
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, count, pairwise
from typing import Any, NamedTuple

from wire import properties
from wire.bulk.batch_frame import SIZE_MAX as SIZE_MAX
from wire.bulk.batch_frame import MalformedBatch as MalformedBatch
from wire.bulk.batch_frame import compress, decompress
from wire.bulk.property_block import COLUMN_BATCH, Identity
from wire.bulk.publishes import cut_columns, qos_of
from wire.errors import WireError
from wire.identity import EPOCH_MAX, NAME_BYTES_MAX, SEQ_MAX
from wire.packet_types import PUBLISH
from wire.primitives import Reader, encode_varint
from wire.topics import check_topic_name

CONTENT_TYPE = COLUMN_BATCH
MESSAGES_MAX = 65_535
PROPERTIES_MAX = 1 << 20
"""Bytes of the distinct properties of a batch: decoded, they may take many times that."""

NO_RUN = (0, -1)
RETAIN_FLAG = 0x04  # in the flags of a message, above its QoS
WIDTHS = {1: "B", 2: "H", 4: "I", 8: "Q"}
"""The kinds of a column that are not 0: bytes of each number."""

MESSAGE_OVERHEAD = 64
"""Bytes of a message in a batch besides topic name, properties, names and payload: more than they can be."""


class BatchFull(WireError):
    """A message does not fit into the batch; nothing of it was added."""


class Run(NamedTuple):
    """Consecutive identities, in the order of the messages that have them: the first one."""

    origin: str
    epoch: int
    first_seq: int


class BatchMessage(NamedTuple):
    """One message of a batch. `block` are its properties as they are in a PUBLISH, without their length.

    `received_by` is empty where there is no provenance.
    """

    topic: str
    payload: bytes
    qos: int
    retain: bool
    block: bytes
    origin: str
    epoch: int
    seq: int
    received_ms: int
    received_by: str


@dataclass(frozen=True, slots=True)
class ColumnBatch:
    """A decoded batch: columns with an entry for each message, and the tables to which some of them point.

    `topic_of`, `block_of`, `run_of` and `receiver_of` are places in `topics`, `blocks`, `runs` and `receivers`.
    `blocks` are properties as bytes, all of them valid, and `content_types` has the content type in each. `flags` have
    the QoS, and RETAIN_FLAG.
    `offsets`, of 32 bits, has one entry more than there are messages: the payload of message i is `payloads` from
    `offsets[i]` to `offsets[i + 1]`.
    """

    topics: list[str]
    topic_of: "array[int]"
    flags: "array[int]"
    blocks: list[bytes]
    content_types: list[str | None]
    block_of: "array[int]"
    runs: list[Run]
    run_of: "array[int]"
    seqs: "array[int]"
    receivers: list[str]
    receiver_of: "array[int]"
    received_ms: "array[int]"
    offsets: "array[int]"
    payloads: bytes

    def __len__(self) -> int:
        return len(self.seqs)

    def messages(self) -> Iterator[BatchMessage]:
        """Yields the messages one by one, for programs that have no use for columns."""
        for i, (begin, end) in enumerate(pairwise(self.offsets)):
            run, flags = self.runs[self.run_of[i]], self.flags[i]
            yield BatchMessage(
                self.topics[self.topic_of[i]],
                self.payloads[begin:end],
                flags & 3,
                bool(flags & RETAIN_FLAG),
                self.blocks[self.block_of[i]],
                run.origin,
                run.epoch,
                self.seqs[i],
                self.received_ms[i],
                self.receivers[self.receiver_of[i]],
            )


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
            _encode_number(len(self)),
            _encode_table(self._topics),
            _encode_column(self._topic_of),
            _encode_column(self._flags),
            _encode_table(self._blocks),
            _encode_column(self._block_of),
            _encode_table([name.encode() for name in self._origins]),
            _encode_number(len(origins)),
            _encode_column(origins),
            _encode_column(epochs),
            _encode_column(first_seqs),
            _encode_column(self._run_of),
            _encode_table([name.encode() for name in self._receivers]),
            _encode_column(self._receiver_of),
            _encode_times(self._received),
            _encode_column(self._lengths),
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


def decode_batch(payload: bytes) -> ColumnBatch:
    """Decodes a batch. It takes memory for SIZE_MAX bytes and the columns of MESSAGES_MAX messages at most.

    Raises MalformedBatch.
    """
    body = _Body(decompress(payload))
    messages = body.messages()
    topics = [_decode_topic(name) for name in body.table("topics", messages)]
    topic_of = body.places("topic of each", messages, topics)
    flags = body.column("flags", messages)
    if any(one & 3 == 3 or one > RETAIN_FLAG + 2 for one in set(flags)):
        raise MalformedBatch(f"flags: {max(flags)}, expected QoS 0 to 2 and perhaps {RETAIN_FLAG}")
    blocks = body.table("properties", messages)
    if sum(map(len, blocks)) > PROPERTIES_MAX:
        raise MalformedBatch(f"properties: {sum(map(len, blocks))} bytes, expected {PROPERTIES_MAX} at most")
    content_types = [_decode_block(block).get(properties.CONTENT_TYPE) for block in blocks]
    block_of = body.places("properties of each", messages, blocks)
    runs = _decode_runs(body, messages)
    run_of = body.places("run of each", messages, runs)
    receivers = [_decode_name("gateways", name) for name in body.table("gateways", messages)]
    receiver_of = body.places("gateway of each", messages, receivers)
    received_ms = _decode_times(body, messages)
    lengths = body.column("lengths", messages)
    size = sum(lengths)
    size += sum(map([len(name.encode()) for name in topics].__getitem__, topic_of))
    size += sum(map([len(block) for block in blocks].__getitem__, block_of))
    if size > SIZE_MAX:
        raise MalformedBatch(f"lengths: {size} bytes in all messages, expected {SIZE_MAX} at most")
    offsets = array("i", accumulate(lengths, initial=0))
    payloads = body.take("payloads", offsets[-1])
    body.end()
    return ColumnBatch(
        topics,
        topic_of,
        flags,
        blocks,
        content_types,
        block_of,
        runs,
        run_of,
        _seqs(runs, run_of),
        receivers,
        receiver_of,
        received_ms,
        offsets,
        payloads,
    )


def origins_of(payload: bytes) -> set[str]:
    """Returns the origins of a batch's messages. It skips the columns, so that it costs a tenth of `decode_batch`.

    Raises MalformedBatch: they cannot be read. Another column may be malformed without an error.
    """
    body = _Body(decompress(payload))
    messages = body.messages()
    body.skip_table("topics", messages)
    body.skip_column("topic of each", messages)
    body.skip_column("flags", messages)
    body.skip_table("properties", messages)
    body.skip_column("properties of each", messages)
    return {_decode_name("origins", name) for name in body.table("origins", messages)}


class _Body:
    """Reads the decompressed bytes from their beginning; each part is named, for the errors."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def take(self, name: str, size: int) -> bytes:
        taken = self._data[self._at : self._at + size]
        if len(taken) < size:
            raise MalformedBatch(f"{name}: {size} bytes from byte {self._at} on, but there are {len(taken)}")
        self._at += size
        return taken

    def number(self, name: str) -> int:
        number = shift = 0
        while True:
            (byte,) = self.take(name, 1)
            number |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
            if shift > 56:
                raise MalformedBatch(f"{name}: a number of more than 63 bits before byte {self._at}")
        return number

    def messages(self) -> int:
        """Reads how many messages there are."""
        messages = self.number("count")
        if not 0 < messages <= MESSAGES_MAX:
            raise MalformedBatch(f"count: {messages} messages, expected 1 to {MESSAGES_MAX}")
        return messages

    def skip_column(self, name: str, entries: int) -> None:
        (kind,) = self.take(name, 1)
        if kind == 0:
            self.number(name)
        else:
            self._at += entries * kind

    def skip_table(self, name: str, most: int) -> None:
        sizes = self.column(name, self.entries(name, most))
        self._at += sum(sizes)

    def column(self, name: str, entries: int) -> "array[int]":
        (kind,) = self.take(name, 1)
        if kind == 0:
            number = self.number(name)
            return array(_code_for(number), (number,)) * entries
        if kind not in WIDTHS:
            raise MalformedBatch(f"{name}: a column of kind {kind}, expected 0, 1, 2, 4 or 8")
        planes = self.take(name, entries * kind)
        numbers = bytearray(entries * kind)
        for plane in range(kind):
            numbers[plane::kind] = planes[plane * entries : (plane + 1) * entries]
        column = array(WIDTHS[kind], numbers)
        if sys.byteorder == "big":
            column.byteswap()
        return column

    def places(self, name: str, entries: int, table: Sequence[object]) -> "array[int]":
        column = self.column(name, entries)
        if max(column) >= len(table):
            raise MalformedBatch(f"{name}: place {max(column)} in a table of {len(table)}")
        return column

    def entries(self, name: str, most: int) -> int:
        """Reads how many entries a table has. None may be of no use, so there are not more than messages."""
        entries = self.number(name)
        if not 0 < entries <= most:
            raise MalformedBatch(f"{name}: {entries} entries for {most} messages")
        return entries

    def table(self, name: str, most: int) -> list[bytes]:
        entries = self.entries(name, most)
        return [self.take(name, size) for size in self.column(name, entries)]

    def end(self) -> None:
        if self._at < len(self._data):
            raise MalformedBatch(f"{len(self._data) - self._at} bytes behind the payloads")


def _decode_runs(body: _Body, messages: int) -> list[Run]:
    origins = [_decode_name("origins", name) for name in body.table("origins", messages)]
    entries = body.entries("runs", messages)
    origin_of = body.places("origin of each run", entries, origins)
    epochs = body.column("epochs", entries)
    first_seqs = body.column("first seqs", entries)
    if "" in origins:
        raise MalformedBatch("origins: one is empty")
    if max(epochs) > EPOCH_MAX:
        raise MalformedBatch(f"epochs: {max(epochs)}, expected {EPOCH_MAX} at most")
    if min(first_seqs) < 1 or max(first_seqs) > SEQ_MAX:
        raise MalformedBatch(f"first seqs: from {min(first_seqs)} to {max(first_seqs)}, expected 1 to {SEQ_MAX}")
    return list(map(Run, map(origins.__getitem__, origin_of), epochs, first_seqs))


def _seqs(runs: list[Run], run_of: "array[int]") -> "array[int]":
    """Returns the seq of each message: the next one of its run. Raises MalformedBatch."""
    try:
        if len(runs) == 1:
            return array("q", range(runs[0].first_seq, runs[0].first_seq + len(run_of)))
        following = [count(run.first_seq).__next__ for run in runs]
        return array("q", [following[run]() for run in run_of])
    except OverflowError:
        raise MalformedBatch(f"run of each: a run goes on behind seq {SEQ_MAX}") from None


def _decode_times(body: _Body, messages: int) -> "array[int]":
    first, back = body.number("first time"), body.number("time back")
    steps: Iterable[int] = body.column("times", messages)
    times = list(accumulate(map((-back).__add__, steps) if back else steps, initial=first))
    earliest, latest = (min(times), max(times)) if back else (first, times[-1])
    if earliest < 0 or latest > SEQ_MAX:
        raise MalformedBatch(f"times: from {earliest} to {latest}, expected 0 to {SEQ_MAX}")
    return array("q", times[1:])


def _encode_times(times: list[tuple[int, int]]) -> bytes:
    first = latest = times[0][0]
    back = max(0, -min([later - earlier for (earlier, _), (later, _) in pairwise(times)], default=0))
    steps: list[int] = []
    for time, messages in times:
        steps.append(time - latest + back)
        steps += [back] * (messages - 1)
        latest = time
    return _encode_number(first) + _encode_number(back) + _encode_column(steps)


def _decode_name(column: str, name: bytes) -> str:
    if len(name) > NAME_BYTES_MAX:
        raise MalformedBatch(f"{column}: a name of {len(name)} bytes, expected {NAME_BYTES_MAX} at most")
    return _decode_text(column, name)


def _decode_topic(name: bytes) -> str:
    topic = _decode_text("topics", name)
    try:
        check_topic_name(topic)
    except WireError as error:
        raise MalformedBatch(f"topics: {error}") from None
    return topic


def _decode_text(column: str, text: bytes) -> str:
    try:
        return text.decode()
    except UnicodeDecodeError as error:
        raise MalformedBatch(f"{column}: {error}") from None


def _decode_block(block: bytes) -> dict[int, Any]:
    try:
        return properties.decode_properties(Reader(encode_varint(len(block)) + block), PUBLISH)
    except WireError as error:
        raise MalformedBatch(f"properties: {error}") from None


def _encode_number(number: int) -> bytes:
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def _encode_column(numbers: Sequence[int]) -> bytes:
    if numbers.count(numbers[0]) == len(numbers):
        return b"\0" + _encode_number(numbers[0])
    code = _code_for(max(numbers))
    column = array(code, numbers)
    if sys.byteorder == "big":
        column.byteswap()
    width, encoded = column.itemsize, column.tobytes()
    return bytes((width,)) + b"".join([encoded[plane::width] for plane in range(width)])


def _encode_table(values: Iterable[bytes]) -> bytes:
    entries = list(values)
    return _encode_number(len(entries)) + _encode_column(list(map(len, entries))) + b"".join(entries)


def _code_for(largest: int) -> str:
    return "B" if largest < 1 << 8 else "H" if largest < 1 << 16 else "I" if largest < 1 << 32 else "Q"
