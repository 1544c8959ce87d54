"""PUBLISHes as bytes become rows of a landing file, without an object for each message.

A loop finds where each packet begins. All that follows is done for whole columns: numpy finds the fields, and Arrow
copies them. Topic names, properties and names of devices are checked once for each distinct one.
"""

import time
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cloud.landing.file import LINK, SCHEMA
from wire.bulk.column_batch import CONTENT_TYPE as COLUMN_BATCH
from wire.errors import WireError
from wire.identity import IDENTITY_PROPERTY, NAME_BYTES_MAX, RECEIVED_PROPERTY
from wire.packet_types import PUBLISH
from wire.primitives import Reader, encode_varint
from wire.properties import CONTENT_TYPE, TOPIC_ALIAS, USER_PROPERTY, decode_properties
from wire.route_numbers import VIA_PROPERTY, Via, decode_via
from wire.topics import check_topic_name

FIRST_BYTE = 0x32
"""The first byte of PUBLISHes that become rows together: QoS 1, neither DUP nor RETAIN."""
PACKET_SIZE_MAX = 3 + 16_383
"""Bytes of the largest such PUBLISH: its length has two digits."""
LEAST = 16
"""Fewer PUBLISHes are read one by one, which is faster."""

_REMEMBERED = 4096
_FIELDS = 5  # of each packet: topic name, packet identifier, properties, payload, and what is up to the next topic name
_IDENTITY = rb"\x26\x00\x05hf-id(?P<size>..)(?P<epoch>[0-9a-f]{8})/(?P<seq>[1-9][0-9]{0,17})/(?P<origin>.+?)"
_RECEIVED = rb"\x26\x00\x0bhf-received(?P<received_size>..)(?P<ms>0|[1-9][0-9]{0,17})/(?P<gateway>.+?)"
_VIA = rb"\x26\x00\x06hf-via(?P<via_size>..)(?P<link_epoch>[0-9a-f]{8})/(?P<number>[1-9][0-9]{0,17})/(?P<link>.+)"
_PARTS = [part.decode("latin-1") for part in (_IDENTITY, _RECEIVED, _VIA)]
_BLOCK = rf"(?s)^(?P<common>.*?){_PARTS[0]}(?:{_PARTS[1]})?(?:{_PARTS[2]})?$"
"""Properties that end with an identity, and perhaps the provenance and a route number."""


class Published(NamedTuple):
    """Rows with their packet identifiers. Those without an identity have `seq` 0, and their identifier in `packets`."""

    rows: pa.Table
    identifiers: list[int]
    packets: np.ndarray


class _Odd(Exception):
    """A PUBLISH has something that is better read by itself."""


def find_publishes(buffer: bytes, at: int) -> tuple[list[int], int]:
    """Returns where each whole PUBLISH begins that follows from a place on, and where the last one ends."""
    starts: list[int] = []
    size = len(buffer)
    while at + 2 < size and buffer[at] == FIRST_BYTE:
        length = buffer[at + 1]
        if length < 0x80:
            end = at + 2 + length
        else:
            more = buffer[at + 2]
            if not 0 < more < 0x80:
                break
            end = at + 3 + (length & 0x7F | more << 7)
        if end > size:
            break
        starts.append(at)
        at = end
    return starts, at


def to_rows(buffer: bytes, starts: Sequence[int], end: int, lander: str) -> Published | None:
    """Returns the rows of these PUBLISHes; None if one of them is malformed, or has to be read by itself.

    buffer: bytes in which PUBLISHes begin at `starts`, as `find_publishes` found them, and the last one ends at `end`.
    lander: the lander's name.
    """
    if buffer.find(COLUMN_BATCH.encode(), starts[0], end) >= 0:
        return None
    try:
        return _to_rows(buffer, np.asarray(starts), end, lander)
    except (_Odd, WireError, UnicodeDecodeError, pa.ArrowInvalid):
        return None


def _to_rows(buffer: bytes, starts: np.ndarray, end: int, lander: str) -> Published:
    sections, identifiers = _cut(buffer, starts, end)
    count = len(starts)
    places = np.arange(count) * _FIELDS
    topics, blocks, payloads = (sections.take(pa.array(places + field)) for field in (0, 2, 3))
    own, columns = _read_blocks(blocks, lander)
    constant = {
        "landed_ms": pa.scalar(time.time_ns() // 1_000_000, pa.int64()),
        "qos": pa.scalar(1, pa.int8()),
        "retain": pa.scalar(False),
        "lander": pa.scalar(lander),
    }
    columns |= {name: pa.repeat(value, count) for name, value in constant.items()}
    columns |= {"topic": _map_distinct(topics, _topic, pa.string()), "payload": payloads}
    rows = pa.table([columns[name] for name in SCHEMA.names], schema=SCHEMA)
    return Published(rows, identifiers.tolist(), np.where(own, identifiers, 0).astype(np.uint16))


def _cut(buffer: bytes, starts: np.ndarray, end: int) -> tuple[pa.Array, np.ndarray]:
    """Returns _FIELDS sections of each packet, one behind the other, and the packet identifiers."""
    data = np.frombuffer(buffer, np.uint8).astype(np.int64)[: end + 1]
    ends = np.append(starts[1:], end)
    lengths_at = starts + 2 + (data[starts + 1] >= 0x80)
    _check(ends - lengths_at >= 5)
    topics = lengths_at + 2
    identifiers_at = topics + (data[lengths_at] << 8 | data[lengths_at + 1])
    _check(ends - identifiers_at >= 3)
    identifiers = data[identifiers_at] << 8 | data[identifiers_at + 1]
    _check(identifiers > 0)
    sizes = data[identifiers_at + 2]
    is_long = sizes >= 0x80
    _check(~is_long | (ends - identifiers_at >= 4))
    more = np.where(is_long, data[np.where(is_long, identifiers_at + 3, 0)], 0)
    _check(~is_long | ((more > 0) & (more < 0x80)))
    blocks = identifiers_at + 3 + is_long
    payloads = blocks + (sizes & 0x7F | more << 7)
    _check(payloads <= ends)
    bounds = np.stack((topics, identifiers_at, blocks, payloads, ends), axis=1).astype(np.int32)
    offsets = pa.py_buffer(np.ascontiguousarray(bounds))
    return pa.Array.from_buffers(pa.binary(), bounds.size - 1, [None, offsets, pa.py_buffer(buffer)]), identifiers


def _read_blocks(blocks: pa.Array, lander: str) -> tuple[np.ndarray, dict[str, pa.Array]]:
    """Returns which messages bring no identity, and the columns that are in properties."""
    encoded = blocks.dictionary_encode()
    distinct, indices = encoded.dictionary, encoded.indices
    found = pc.extract_regex(distinct, _BLOCK)
    brings = found.is_valid()
    part = {field.name: found.field(place).filter(brings) for place, field in enumerate(found.type)}
    length = {name: pc.binary_length(column).to_numpy() for name, column in part.items()}
    _check(_sizes(part["size"]) == 10 + length["seq"] + length["origin"])
    received = length["received_size"] > 0
    received_sizes = _sizes(part["received_size"].filter(pa.array(received)))
    _check(received_sizes == (length["ms"] + 1 + length["gateway"])[received])
    numbered = length["via_size"] > 0
    via_sizes = _sizes(part["via_size"].filter(pa.array(numbered)))
    _check(via_sizes == (10 + length["number"] + length["link"])[numbered])
    common = pc.if_else(brings, found.field(0), distinct)
    times = pc.if_else(pa.array(received), part["ms"], pa.scalar(None, pa.binary()))
    gateways = pc.if_else(pa.array(received), part["gateway"], pa.scalar(None, pa.binary()))
    columns = {
        "origin": pc.fill_null(_spread(_map_distinct(part["origin"], _name, pa.string()), brings), lander),
        "epoch": pc.fill_null(_spread(_map_distinct(part["epoch"], _epoch, pa.int64()), brings), 0),
        "seq": pc.fill_null(_spread(part["seq"].cast(pa.string()).cast(pa.int64()), brings), 0),
        "received_ms": _spread(times.cast(pa.string()).cast(pa.int64()), brings),
        "gateway": _spread(_map_distinct(gateways, _name, pa.string()), brings),
        "content_type": _map_distinct(common, _content_type, pa.string()),
        "via": _links(part, numbered, brings),
    }
    own = pc.invert(brings).take(indices).to_numpy(zero_copy_only=False)
    return own, {name: column.take(indices) for name, column in columns.items()}


def _links(part: dict[str, pa.Array], numbered: np.ndarray, brings: pa.Array) -> pa.Array:
    """Returns the column `via` of all blocks: one route number, or none."""
    some = {name: part[name].filter(pa.array(numbered)) for name in ("link_epoch", "number", "link")}
    names = some["link"].dictionary_encode()
    links = [_link(name) for name in names.dictionary.to_pylist()]
    fields = [
        _map_distinct(some["link_epoch"], _epoch, pa.int64()),
        some["number"].cast(pa.string()).cast(pa.int64()),
        pa.array([link.gateway for link in links], pa.string()).take(names.indices),
        pa.array([link.route for link in links], pa.string()).take(names.indices),
    ]
    has_one = np.zeros(len(brings), np.int32)
    has_one[np.flatnonzero(brings.to_numpy(zero_copy_only=False))[numbered]] = 1
    offsets = pa.array(np.concatenate(([0], np.cumsum(has_one))), pa.int32())
    return pa.ListArray.from_arrays(offsets, pa.StructArray.from_arrays(fields, fields=list(LINK)))


def _spread(values: pa.Array, where: pa.Array) -> pa.Array:
    """Returns the values at the places that are true, and null elsewhere."""
    flags = where.to_numpy(zero_copy_only=False)
    return values.take(pa.array(np.cumsum(flags) - 1, pa.int64(), mask=~flags))


def _map_distinct(column: pa.Array, function: Callable[[bytes], object], kind: pa.DataType) -> pa.Array:
    """Returns a column with the function of each value, which is called once for each distinct one."""
    encoded = column.dictionary_encode()
    values = [None if one is None else function(one) for one in encoded.dictionary.to_pylist()]
    return pa.array(values, kind).take(encoded.indices)


def _sizes(column: pa.Array) -> np.ndarray:
    """Returns the numbers in a column of two bytes each."""
    fixed = column.cast(pa.binary(2))
    return np.frombuffer(b"".join(fixed.to_pylist()), ">u2").astype(np.int64)


def _check(holds: np.ndarray) -> None:
    if not np.all(holds):
        raise _Odd


@lru_cache(maxsize=_REMEMBERED)
def _topic(name: bytes) -> str:
    topic = name.decode()
    check_topic_name(topic)
    return topic


@lru_cache(maxsize=_REMEMBERED)
def _name(name: bytes) -> str:
    if len(name) > NAME_BYTES_MAX:
        raise _Odd
    return name.decode()


@lru_cache(maxsize=_REMEMBERED)
def _link(names: bytes) -> Via:
    """Returns the gateway and the route in the end of a value of `hf-via`."""
    try:
        return decode_via(f"00000000/1/{names.decode()}")
    except ValueError:
        raise _Odd from None


@lru_cache(maxsize=_REMEMBERED)
def _epoch(digits: bytes) -> int:
    return int(digits, 16)


@lru_cache(maxsize=_REMEMBERED)
def _content_type(block: bytes) -> str | None:
    """Returns the content type in properties without identity and provenance."""
    properties = decode_properties(Reader(encode_varint(len(block)) + block), PUBLISH)
    names = {name for name, _ in properties.get(USER_PROPERTY, ())}
    if TOPIC_ALIAS in properties or names & {IDENTITY_PROPERTY, RECEIVED_PROPERTY, VIA_PROPERTY}:
        raise _Odd
    found: str | None = properties.get(CONTENT_TYPE)
    return found
