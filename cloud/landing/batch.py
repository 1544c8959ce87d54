"""Column batches as rows of a landing file, without an object for each message."""

from array import array
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from cloud.landing.file import SCHEMA
from wire.bulk.column_batch import RETAIN_FLAG, ColumnBatch

_KINDS = {"B": pa.uint8(), "H": pa.uint16(), "I": pa.uint32(), "Q": pa.uint64(), "q": pa.int64()}


def to_table(batch: ColumnBatch, landed_ms: int, qos: int, lander: str) -> pa.Table:
    """Returns the rows that the messages of a batch would be if each had come by itself.

    batch: the messages.
    landed_ms: when the lander received the batch (Unix time, ms).
    qos: that of the delivery, the highest one that a row has.
    lander: the lander's name.
    """
    rows = len(batch)
    gateways = [name or None for name in batch.receivers]
    received_ms = _numbers(batch.received_ms)
    if None in gateways:
        told = _pick([name is not None for name in gateways], pa.bool_(), batch.receiver_of)
        received_ms = pc.if_else(told, received_ms, pa.scalar(None, pa.int64()))
    columns = {
        "origin": _pick([run.origin for run in batch.runs], pa.string(), batch.run_of),
        "epoch": _pick([run.epoch for run in batch.runs], pa.int64(), batch.run_of),
        "seq": _numbers(batch.seqs),
        "received_ms": received_ms,
        "gateway": _pick(gateways, pa.string(), batch.receiver_of),
        "landed_ms": pa.repeat(pa.scalar(landed_ms, pa.int64()), rows),
        "topic": _pick(batch.topics, pa.string(), batch.topic_of),
        "qos": _pick([min(flags & ~RETAIN_FLAG, qos) for flags in range(8)], pa.int8(), batch.flags),
        "retain": pa.repeat(pa.scalar(False), rows),
        "content_type": _pick(batch.content_types, pa.string(), batch.block_of),
        "payload": pa.Array.from_buffers(
            pa.binary(), rows, [None, pa.py_buffer(batch.offsets), pa.py_buffer(batch.payloads)]
        ),
        "lander": pa.repeat(pa.scalar(lander), rows),
    }
    return pa.table(columns, schema=SCHEMA)


def _pick(values: Sequence[object], kind: pa.DataType, places: "array[int]") -> pa.Array:
    return pa.array(values, kind).take(_numbers(places))


def _numbers(column: "array[int]") -> pa.Array:
    return pa.Array.from_buffers(_KINDS[column.typecode], len(column), [None, pa.py_buffer(column)])
