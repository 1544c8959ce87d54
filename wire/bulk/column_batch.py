"""Many messages in the payload of one PUBLISH, as columns: docs/reference/batch.md has the format byte by byte.

::

    "hfb" | version | zstd frame( count | topics | flags | properties | identities | provenance | lengths | payloads )

A column holds one field of all messages. Both ends work on whole columns: `wire.bulk.batch_encoder` cuts PUBLISHes as
they are stored, and `decode_batch` returns buffers that a program for tables takes as they are.
"""

from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import accumulate, count, pairwise
from typing import Any, NamedTuple

from wire import properties
from wire.bulk.batch_columns import ColumnReader
from wire.bulk.batch_frame import MESSAGES_MAX as MESSAGES_MAX
from wire.bulk.batch_frame import SIZE_MAX as SIZE_MAX
from wire.bulk.batch_frame import MalformedBatch as MalformedBatch
from wire.bulk.batch_frame import decompress
from wire.bulk.property_block import COLUMN_BATCH
from wire.errors import WireError
from wire.identity import EPOCH_MAX, NAME_BYTES_MAX, SEQ_MAX
from wire.packet_types import PUBLISH
from wire.primitives import Reader, encode_varint
from wire.topics import check_topic_name

CONTENT_TYPE = COLUMN_BATCH
PROPERTIES_MAX = 1 << 20
"""Bytes of the distinct properties of a batch: decoded, they may take many times that."""

RETAIN_FLAG = 0x04  # in the flags of a message, above its QoS


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


def decode_batch(payload: bytes) -> ColumnBatch:
    """Decodes a batch. It takes memory for SIZE_MAX bytes and the columns of MESSAGES_MAX messages at most.

    Raises MalformedBatch.
    """
    body = ColumnReader(decompress(payload))
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
    body = ColumnReader(decompress(payload))
    messages = body.messages()
    body.skip_table("topics", messages)
    body.skip_column("topic of each", messages)
    body.skip_column("flags", messages)
    body.skip_table("properties", messages)
    body.skip_column("properties of each", messages)
    return {_decode_name("origins", name) for name in body.table("origins", messages)}


def _decode_runs(body: ColumnReader, messages: int) -> list[Run]:
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


def _decode_times(body: ColumnReader, messages: int) -> "array[int]":
    first, back = body.number("first time"), body.number("time back")
    steps: Iterable[int] = body.column("times", messages)
    times = list(accumulate(map((-back).__add__, steps) if back else steps, initial=first))
    earliest, latest = (min(times), max(times)) if back else (first, times[-1])
    if earliest < 0 or latest > SEQ_MAX:
        raise MalformedBatch(f"times: from {earliest} to {latest}, expected 0 to {SEQ_MAX}")
    return array("q", times[1:])


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
