"""Payloads of Sparkplug B: how an edge node writes its own, and whether one from a host asks for births.

The messages are those of Protocol Buffers, by the field numbers of the Sparkplug specification 3.0, section 6.4. An
edge node needs a few of them; the tests read what is written here with the library of Protocol Buffers.
"""

import struct
from collections.abc import Iterable, Iterator
from typing import NamedTuple

REBIRTH = "Node Control/Rebirth"
INT64, DOUBLE, BOOLEAN, STRING = 4, 10, 11, 12  # data types [section 6.4.16]
_VARINT, _FIXED64, _TEXT, _FIXED32 = 0, 1, 2, 5  # how a field is written [Protocol Buffers, "Encoding"]
_NUMBER_BYTES_MAX = 10

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
    """Returns the data type of a reading's value: all numbers have one, as a device may send 21 and then 21.5."""
    if isinstance(value, bool):
        return BOOLEAN
    return STRING if isinstance(value, str) else DOUBLE


def encode(now_ms: int, seq: int | None, metrics: Iterable[Metric]) -> bytes:
    """Returns a payload. `seq` is None in a death, which has none."""
    parts = [_number(1, now_ms)]
    parts += [_bytes(2, _metric(one)) for one in metrics]
    if seq is not None:
        parts.append(_number(3, seq))
    return b"".join(parts)


def asks_for_births(payload: bytes) -> bool:
    """Whether a command to the node sets its metric `Node Control/Rebirth`. Raises ValueError for what is no payload.

    It looks at each byte once.
    """
    for field, content in _fields(payload):
        if field == 2 and isinstance(content, bytes):
            found = dict(_fields(content))
            if found.get(1) == REBIRTH.encode() and found.get(14) == 1:
                return True
    return False


def _metric(one: Metric) -> bytes:
    parts = [
        _bytes(1, one.name.encode(errors="replace")),
        _number(3, max(0, one.measured_ms)),
        _number(4, one.datatype),
    ]
    if one.is_historical:
        parts.append(_number(5, 1))
    if one.value is None:
        parts.append(_number(7, 1))
    if one.unit:
        value = _number(1, STRING) + _bytes(8, one.unit.encode(errors="replace"))
        parts.append(_bytes(9, _bytes(1, b"engUnit") + _bytes(2, value)))
    if one.value is not None:
        parts.append(_value(one.datatype, one.value))
    return b"".join(parts)


def _value(datatype: int, value: Value) -> bytes:
    if datatype == BOOLEAN:
        return _number(14, int(bool(value)))
    if datatype == STRING:
        return _bytes(15, str(value).encode(errors="replace"))
    return _number(11, int(value)) if datatype == INT64 else _key(13, _FIXED64) + struct.pack("<d", float(value))


def _key(field: int, form: int) -> bytes:
    return _varint(field << 3 | form)


def _number(field: int, value: int) -> bytes:
    return _key(field, _VARINT) + _varint(value)


def _bytes(field: int, content: bytes) -> bytes:
    return _key(field, _TEXT) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    octets = bytearray()
    while value > 0x7F:
        octets.append(value & 0x7F | 0x80)
        value >>= 7
    octets.append(value)
    return bytes(octets)


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
