"""The payload of Sparkplug B: its Protocol Buffers messages, and its data types.

`host.sparkplug` describes the messages, with all fields of the specification, so that what is left over is content that
no decoder would read.
"""

import math
import struct
import zlib
from collections.abc import Iterator
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError
from google.protobuf.unknown_fields import UnknownFieldSet

from cloud.transforms.record import PAYLOAD_MAX, RECORDS_MAX, Undecodable
from cloud.transforms.sender.quality import of_code
from host.sparkplug import BOOLEAN, BYTES, COMPRESSED, DOUBLE, MESSAGES, STRING

INFLATED_FACTOR, INFLATED_SLACK = 32, 65_536
"""A compressed payload of n bytes may inflate to INFLATED_FACTOR · n + INFLATED_SLACK bytes, and to PAYLOAD_MAX."""

_TYPES = {"uint32": 13, "uint64": 4, "float": 2, "double": 1, "bool": 8, "string": 9, "bytes": 12, "message": 11}
_OPTIONAL, _REPEATED = 1, 3
_ONEOF = "value"
_PACKAGE = "holdfast.sparkplug"

_SIGNED_BITS = {1: 8, 2: 16, 3: 32, 4: 64}
_PLAIN = {5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 17, 18}
DATA_SET, TEMPLATE = 16, 19
# Arrays of numbers: data type → how `struct` writes an element
_ARRAYS = dict(zip((*range(22, 32), 34), "bhiqBHIQfdQ", strict=True))
_BOOLEAN_ARRAY, _STRING_ARRAY = 32, 33
_BY_FIELD = {
    "float_value": 9,
    "double_value": DOUBLE,
    "boolean_value": BOOLEAN,
    "string_value": STRING,
    "bytes_value": BYTES,
}
"""The data types that a value's field tells. `int_value` and `long_value` may be signed or unsigned."""


def _build_payload_class() -> Any:
    file = descriptor_pb2.FileDescriptorProto(name="sparkplug_payload", package=_PACKAGE, syntax="editions")
    file.edition = descriptor_pb2.EDITION_2023  # it tells 0 from a field that is not there, and refuses bad UTF-8
    for name, fields in MESSAGES.items():
        message = file.message_type.add(name=name)
        message.oneof_decl.add(name=_ONEOF)
        for field, number, kind in fields:
            described = message.field.add(name=field, number=number)
            described.label = _REPEATED if kind.startswith("*") else _OPTIONAL
            described.type = _TYPES.get(kind.lstrip("*"), _TYPES["message"])
            if described.type == _TYPES["message"]:
                described.type_name = f".{_PACKAGE}.{kind.lstrip('*')}"
            if field.endswith("_value"):
                described.oneof_index = 0
        if not any(field.HasField("oneof_index") for field in message.field):
            del message.oneof_decl[:]
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.Payload"))


Payload = _build_payload_class()


def parse(content: bytes) -> Any:
    """Returns the Payload, inflated if it is compressed (section 6.4.25 and Tahu's `CompressedPayloadEncoder`).

    Raises Undecodable for what is no payload, and for one with content that no decoder reads.
    """
    outer = _parse(content)
    if outer.uuid != COMPRESSED:
        return outer
    payload = _parse(_inflate(outer.body, INFLATED_SLACK + INFLATED_FACTOR * len(content)))
    if payload.uuid == COMPRESSED:
        raise Undecodable("a compressed payload is in a compressed payload")
    if outer.HasField("timestamp") and not payload.HasField("timestamp"):
        payload.timestamp = outer.timestamp
    return payload


def _parse(content: bytes) -> Any:
    try:
        payload = Payload.FromString(content)
    except DecodeError as error:
        raise Undecodable(f"it is no payload of Sparkplug B: {error}") from None
    if len(payload.metrics) > RECORDS_MAX:
        raise Undecodable(f"it has more than {RECORDS_MAX} metrics")
    if payload.body and payload.uuid != COMPRESSED:
        kind = f"uuid {payload.uuid[:64]!r}" if payload.uuid else "no uuid"
        raise Undecodable(f"it has a body of {len(payload.body)} bytes with {kind}; only {COMPRESSED!r} is known")
    if len(UnknownFieldSet(payload)):
        raise Undecodable("it has fields that are not in Sparkplug B 3.0, and they may carry values")
    return payload


def _inflate(body: bytes, most: int) -> bytes:
    """Returns the content of zlib, of gzip, or of deflate without a header, whatever the metric `algorithm` says."""
    if not body:
        raise Undecodable("a compressed payload has no body")
    for window in (zlib.MAX_WBITS | 32, -zlib.MAX_WBITS):  # 32: the header tells zlib from gzip
        inflater = zlib.decompressobj(window)
        try:
            content = inflater.decompress(body, min(most, PAYLOAD_MAX) + 1)
        except zlib.error:
            continue
        if len(content) > min(most, PAYLOAD_MAX):
            raise Undecodable(f"it inflates to more than {min(most, PAYLOAD_MAX)} bytes")
        if not inflater.eof:
            raise Undecodable("its compressed body ends too early")
        return content
    raise Undecodable("its body is compressed by neither DEFLATE nor GZIP")


def quality_of(metric: Any) -> str | None:
    """Returns the quality of a metric, by its property `Quality`; None without it."""
    for key, value in zip(metric.properties.keys, metric.properties.values, strict=False):
        if key == "Quality" and value.WhichOneof(_ONEOF) in ("int_value", "long_value"):
            return of_code(value.int_value or value.long_value)
    return None


def unit_of(metric: Any) -> str | None:
    """Returns the unit of a metric in a birth: its property `engUnit`."""
    for key, value in zip(metric.properties.keys, metric.properties.values, strict=False):
        if key == "engUnit" and value.string_value:
            return str(value.string_value)
    return None


def values_of(metric: Any, datatype: int) -> Iterator[tuple[tuple[str, ...], object]]:
    """Yields a metric's values, each with its path below the metric's name: a place in an array, a row and a column.

    metric: a Metric or an Element that is neither null nor a Template.
    datatype: as the metric or its birth tells it; 0 if neither does.
    Raises Undecodable.
    """
    field = metric.WhichOneof(_ONEOF)
    if field is None:
        if len(UnknownFieldSet(metric)):
            raise Undecodable("a metric has an extension_value, which nothing here decodes")
        return
    if datatype == 0:
        datatype = _BY_FIELD.get(field, 0)
    content = getattr(metric, field)
    if field == "dataset_value":
        yield from _cells(content)
    elif field == "bytes_value" and (datatype in _ARRAYS or datatype in (_BOOLEAN_ARRAY, _STRING_ARRAY)):
        for place, item in enumerate(_items(content, datatype)):
            yield (str(place),), _finite(item)
    elif datatype == BOOLEAN and isinstance(content, int):
        yield (), content != 0
    elif datatype in _SIGNED_BITS and isinstance(content, int):
        yield (), _signed(content, _SIGNED_BITS[datatype])
    elif datatype in _PLAIN:
        yield (), _finite(content)
    else:
        raise Undecodable(f"a metric has data type {datatype} and its value in {field}")


def _cells(dataset: Any) -> Iterator[tuple[tuple[str, ...], object]]:
    for number, row in enumerate(dataset.rows):
        if not len(dataset.columns) == len(dataset.types) == len(row.elements):
            raise Undecodable("a row of a data set does not fit its columns")
        for column, datatype, element in zip(dataset.columns, dataset.types, row.elements, strict=True):
            for path, value in values_of(element, datatype):
                yield (str(number), column, *path), value


def _items(content: bytes, datatype: int) -> Iterator[object]:
    """Yields the elements of an array, which is one byte string (little-endian)."""
    if datatype == _STRING_ARRAY:
        if content and not content.endswith(b"\0"):
            raise Undecodable("an array of strings does not end with a zero")
        for text in content.split(b"\0")[:-1]:
            yield text.decode()
    elif datatype == _BOOLEAN_ARRAY:
        count = int.from_bytes(content[:4], "little")
        if len(content) < 4 or len(content) - 4 != -(-count // 8):
            raise Undecodable("an array of booleans has another length than it says")
        for place in range(count):
            yield bool(content[4 + place // 8] & 0x80 >> place % 8)
    else:
        element = struct.Struct("<" + _ARRAYS[datatype])
        if len(content) % element.size:
            raise Undecodable("an array ends within an element")
        for (number,) in element.iter_unpack(content):
            yield number


def _signed(content: int, bits: int) -> int:
    """Returns the number whose two's complement the low bits are: encoders fill the higher ones differently."""
    low = content & (1 << bits) - 1
    return low - (1 << bits) if low >> bits - 1 else low


def _finite(value: object) -> object:
    """Returns a float that is no number as its name, so that it spoils no sum and no average."""
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
