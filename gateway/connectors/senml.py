"""Readings become a pack of SenML (RFC 8428), in JSON (section 5) or CBOR (section 6)."""

import struct
from collections.abc import Sequence
from typing import Literal

import msgspec

from gateway.connectors.reading import Reading, Value

CONTENT_TYPES = {"json": "application/senml+json", "cbor": "application/senml+cbor"}
CLOCK_LEAST_MS = 1_577_836_800_000  # 2020: an earlier time is that of a clock which was not set
_LABELS = {"bn": -2, "bt": -3, "n": 0, "u": 1, "v": 2, "vs": 3, "vb": 4}


def encode(device: str, unix_ms: int, readings: Sequence[Reading], form: Literal["json", "cbor"]) -> bytes:
    """Returns the payload of a message.

    Args:
        device: the device's name, the base name of all records.
        unix_ms: when the readings were taken; a time of a clock that was not set is left out.
        readings: one at least.
        form: how the pack is encoded.
    """
    records: list[dict[str, Value]] = []
    for reading in readings:
        record: dict[str, Value] = {} if records else {"bn": f"{device}:"}
        if not records and unix_ms >= CLOCK_LEAST_MS:
            record["bt"] = unix_ms / 1000
        record["n"] = reading.name
        if reading.unit:
            record["u"] = reading.unit
        kind = "vs" if isinstance(reading.value, str) else "vb" if isinstance(reading.value, bool) else "v"
        record[kind] = reading.value
        records.append(record)
    if form == "json":
        return msgspec.json.encode(records)
    return _head(4, len(records)) + b"".join(map(_cbor_map, records))


def _cbor_map(record: dict[str, Value]) -> bytes:
    return _head(5, len(record)) + b"".join(_cbor(_LABELS[key]) + _cbor(value) for key, value in record.items())


def _cbor(value: Value) -> bytes:
    if isinstance(value, bool):
        return b"\xf5" if value else b"\xf4"
    if isinstance(value, int) and -(2**64) <= value < 2**64:
        return _head(0, value) if value >= 0 else _head(1, -1 - value)
    if isinstance(value, str):
        data = value.encode()
        return _head(3, len(data)) + data
    return b"\xfb" + struct.pack(">d", value)


def _head(major: int, number: int) -> bytes:
    """The first bytes of an item of CBOR (RFC 8949, section 3)."""
    if number < 24:
        return bytes((major << 5 | number,))
    size = next(power for power in range(4) if number < 1 << (8 << power))
    return bytes((major << 5 | 24 + size,)) + number.to_bytes(1 << size, "big")
