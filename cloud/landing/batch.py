"""Column batches as rows of a landing file, without an object for each message."""

from array import array
from collections.abc import Sequence
from itertools import chain

import pyarrow as pa
import pyarrow.compute as pc

from cloud.landing.file import LINK, SCHEMA, Link
from wire.bulk.column_batch import RETAIN_FLAG, ColumnBatch
from wire.packet_types import PUBLISH
from wire.primitives import Reader, encode_varint
from wire.properties import USER_PROPERTY, decode_properties
from wire.route_numbers import VIA_PROPERTY, Via, decode_via

LINKS_MAX = 32
"""The most route numbers that a message lands with: each is a row of the tables. No chain of gateways is so long."""
_KINDS = {"B": pa.uint8(), "H": pa.uint16(), "I": pa.uint32(), "Q": pa.uint64(), "q": pa.int64()}


def to_table(
    batch: ColumnBatch, landed_ms: int, qos: int, lander: str, via: Via | None = None, *, is_of_route: bool = True
) -> pa.Table:
    """Returns the rows that the messages of a batch would be if each had come by itself.

    batch: the messages.
    landed_ms: when the lander received the batch (Unix time, ms).
    qos: the delivery's QoS, the highest one that a row has.
    lander: the lander's name.
    via: the route numbers that its messages have, as many as these; None if they have none.
    is_of_route: whether numbers of earlier links count that are among the properties of its messages.
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
        "retain": _pick([bool(flags & RETAIN_FLAG) for flags in range(8)], pa.bool_(), batch.flags),
        "content_type": _pick(batch.content_types, pa.string(), batch.block_of),
        "payload": pa.Array.from_buffers(
            pa.binary(), rows, [None, pa.py_buffer(batch.offsets), pa.py_buffer(batch.payloads)]
        ),
        "lander": pa.repeat(pa.scalar(lander), rows),
        "via": _links(batch, via, is_of_route=is_of_route),
    }
    return pa.table(columns, schema=SCHEMA)


def to_links(values: Sequence[str]) -> tuple[list[Link], list[str]]:
    """Returns the route numbers in the values of `hf-via` of one message, and what is wrong with the others.

    Of more than LINKS_MAX values the last ones count, which the routes nearest to the lander have added.
    """
    links, errors = [], []
    if len(values) > LINKS_MAX:
        errors.append(f"{len(values)} values in one message; the last {LINKS_MAX} count")
    for value in values[-LINKS_MAX:]:
        try:
            epoch, ((first, last),), gateway, route = decode_via(value)
            if first != last:
                raise ValueError(f"{value[:64]!r} has several numbers for one message")
            links.append(Link(epoch, first, gateway, route))
        except ValueError as error:
            errors.append(str(error))
    return links, errors


def count_numbers(via: Via) -> int:
    """Returns how many route numbers there are."""
    return sum(last - first + 1 for first, last in via.runs)


def _links(batch: ColumnBatch, via: Via | None, *, is_of_route: bool) -> pa.Array:
    """Returns the column `via`: for each message the numbers of earlier links, and the number of the batch's link."""
    rows = len(batch)
    numbers = array("q")
    if via is not None:
        numbers.extend(chain.from_iterable(range(first, last + 1) for first, last in via.runs))
    if is_of_route and any(VIA_PROPERTY.encode() in block for block in batch.blocks):
        earlier = [_links_in(block) for block in batch.blocks]
        own = [
            [] if via is None else [Link(via.epoch, number, via.gateway, via.route)] for number in numbers or [0] * rows
        ]
        lists = [[*earlier[place], *last] for place, last in zip(batch.block_of, own, strict=True)]
        return pa.array([[link._asdict() for link in links] for links in lists], pa.list_(LINK))
    if via is None:
        return pa.ListArray.from_arrays(pa.repeat(pa.scalar(0, pa.int32()), rows + 1), pa.array([], LINK))
    parts = [
        pa.repeat(pa.scalar(via.epoch, pa.int64()), rows),
        _numbers(numbers),
        pa.repeat(pa.scalar(via.gateway), rows),
        pa.repeat(pa.scalar(via.route), rows),
    ]
    links = pa.StructArray.from_arrays(parts, fields=list(LINK))
    return pa.ListArray.from_arrays(pa.array(range(rows + 1), pa.int32()), links)


def _links_in(block: bytes) -> list[Link]:
    properties = decode_properties(Reader(encode_varint(len(block)) + block), PUBLISH)
    return to_links([value for name, value in properties.get(USER_PROPERTY, ()) if name == VIA_PROPERTY])[0]


def _pick(values: Sequence[object], kind: pa.DataType, places: "array[int]") -> pa.Array:
    return pa.array(values, kind).take(_numbers(places))


def _numbers(column: "array[int]") -> pa.Array:
    return pa.Array.from_buffers(_KINDS[column.typecode], len(column), [None, pa.py_buffer(column)])
