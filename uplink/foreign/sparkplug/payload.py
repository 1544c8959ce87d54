"""Payloads of Sparkplug B: how an edge node writes its own, and whether one from a host asks for births.

The messages are those of Protocol Buffers, by the field numbers of `host.sparkplug`. An edge node needs a few of them;
the tests read what is written here with the library of Protocol Buffers.
"""

import struct
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from host.sparkplug import BOOLEAN, DOUBLE, INT64, MESSAGES, STRING
from wire.bulk.batch_columns import encode_number

REBIRTH = "Node Control/Rebirth"
EXACT_MAX = 2**53
"""A Double has each integer up to this, and not each one beyond."""
_VARINT, _FIXED64, _TEXT, _FIXED32 = 0, 1, 2, 5  # how a field is written [Protocol Buffers, "Encoding"]
_NUMBER_BYTES_MAX = 10
_BITS = 0xFFFF_FFFF_FFFF_FFFF
_NUMBERS = {message: {name: number for name, number, _ in fields} for message, fields in MESSAGES.items()}
_PAYLOAD, _METRIC = _NUMBERS["Payload"], _NUMBERS["Metric"]
_SET, _PROPERTY = _NUMBERS["PropertySet"], _NUMBERS["PropertyValue"]

Value = bool | int | float | str


class Metric(NamedTuple):
    """A metric. `value` None: it is not known now. `measured_ms` is Unix time, and `unit` "" for none."""

    name: str
    datatype: int
    value: Value | None
    measured_ms: int
    unit: str = ""
    is_historical: bool = False


def datatype_of(value: Value) -> int:
    """Returns the data type of a reading's value: numbers have one, as a device may send 21 and then 21.5.

    An integer that a Double would change has another one.
    """
    if isinstance(value, bool):
        return BOOLEAN
    if isinstance(value, int) and abs(value) > EXACT_MAX:
        return INT64
    return STRING if isinstance(value, str) else DOUBLE


def encode(now_ms: int, seq: int | None, metrics: Iterable[Metric]) -> bytes:
    """Returns a payload. `seq` is None in a death, which has none."""
    parts = [_number(_PAYLOAD["timestamp"], now_ms)]
    parts += [_bytes(_PAYLOAD["metrics"], _metric(one)) for one in metrics]
    if seq is not None:
        parts.append(_number(_PAYLOAD["seq"], seq))
    return b"".join(parts)


def asks_for_births(payload: bytes) -> bool:
    """Whether a command to the node sets its metric `Node Control/Rebirth`. Raises ValueError for what is no payload.

    It looks at each byte once.
    """
    for field, content in _fields(payload):
        if field == _PAYLOAD["metrics"] and isinstance(content, bytes):
            found = dict(_fields(content))
            if found.get(_METRIC["name"]) == REBIRTH.encode() and found.get(_METRIC["boolean_value"]) == 1:
                return True
    return False


def _metric(one: Metric) -> bytes:
    parts = [
        _bytes(_METRIC["name"], one.name.encode(errors="replace")),
        _number(_METRIC["timestamp"], max(0, one.measured_ms)),
        _number(_METRIC["datatype"], one.datatype),
    ]
    if one.is_historical:
        parts.append(_number(_METRIC["is_historical"], 1))
    if one.value is None:
        parts.append(_number(_METRIC["is_null"], 1))
    if one.unit:
        value = _bytes(_PROPERTY["string_value"], one.unit.encode(errors="replace"))
        unit = _bytes(_SET["keys"], b"engUnit") + _bytes(_SET["values"], _number(_PROPERTY["type"], STRING) + value)
        parts.append(_bytes(_METRIC["properties"], unit))
    if one.value is not None:
        parts.append(_value(one.datatype, one.value))
    return b"".join(parts)


def _value(datatype: int, value: Value) -> bytes:
    if datatype == BOOLEAN:
        return _number(_METRIC["boolean_value"], int(bool(value)))
    if datatype == STRING:
        return _bytes(_METRIC["string_value"], str(value).encode(errors="replace"))
    if datatype == INT64:
        return _number(_METRIC["long_value"], int(value) & _BITS)  # two's complement
    return _key(_METRIC["double_value"], _FIXED64) + struct.pack("<d", float(value))


def _key(field: int, form: int) -> bytes:
    return encode_number(field << 3 | form)


def _number(field: int, value: int) -> bytes:
    return _key(field, _VARINT) + encode_number(value)


def _bytes(field: int, content: bytes) -> bytes:
    return _key(field, _TEXT) + encode_number(len(content)) + content


def _fields(content: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yields the fields of a message: its number, and a number or bytes. Raises ValueError."""
    at = 0
    while at < len(content):
        key, at = _read_varint(content, at)
        form = key & 7
        if form == _VARINT:
            value, at = _read_varint(content, at)
            yield key >> 3, value
            continue
        if form == _TEXT:
            size, at = _read_varint(content, at)
        elif form in (_FIXED64, _FIXED32):
            size = 8 if form == _FIXED64 else 4
        else:
            raise ValueError(f"a field is written in form {form}, which Protocol Buffers do not have")
        if at + size > len(content):
            raise ValueError("a field is longer than what it is in")
        yield key >> 3, content[at : at + size]
        at += size


def _read_varint(content: bytes, at: int) -> tuple[int, int]:
    value = 0
    for place in range(_NUMBER_BYTES_MAX):
        if at + place >= len(content):
            break
        octet = content[at + place]
        value |= (octet & 0x7F) << 7 * place
        if octet < 0x80:
            return value, at + place + 1
    raise ValueError("a number has no end")
