"""What a payload says that others can show: plain values, JSON objects, CBOR maps, and SenML (RFC 8428)."""

import math
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from host import cbor

PAYLOAD_MAX = 4096
"""Bytes of the largest payload that is looked into: CBOR takes up to 1 µs a byte, and other clients wait."""
TEXT_MAX = 255
"""The characters of the longest text: the longest state that Home Assistant keeps."""
_CBOR_LEAST = 0x80  # the first byte of an array or map of CBOR, and of no text in UTF-8
_RELATIVE_BELOW_S = 2**28  # a smaller time is relative to now (RFC 8428, section 4.5.3)
_LABELS = {-2: "bn", -3: "bt", -4: "bu", -5: "bv", 0: "n", 1: "u", 2: "v", 3: "vs", 4: "vb", 6: "t"}  # section 6

Value = bool | int | float | str


class Measured(NamedTuple):
    """A value with its name and unit ("": none), and when it was measured, in ms of Unix time."""

    name: str
    unit: str
    value: Value
    measured_ms: int


def measured_in(payload: bytes, came_ms: int) -> tuple[str, list[Measured]]:
    """Returns the base name of a pack of SenML ("" without one) and the values of a payload.

    A payload that cannot be read, or is larger than PAYLOAD_MAX, has no values. Values that cannot be shown are left
    out: numbers that are not finite, and texts that are empty or longer than TEXT_MAX.

    Args:
        payload: the message's.
        came_ms: when it came, in ms of Unix time: the time of values that have no other.
    """
    if not payload or len(payload) > PAYLOAD_MAX:
        return "", []
    try:
        content = cbor.decode(payload) if payload[0] >= _CBOR_LEAST else msgspec.json.decode(payload)
        if isinstance(content, list):
            return _base_of(content), [one for one in _resolved(content, came_ms) if _can_be_shown(one.value)]
    except (cbor.NotCbor, msgspec.MsgspecError, ValueError, RecursionError, TypeError, OverflowError):
        return "", []
    pairs = content.items() if isinstance(content, dict) else [("", content)]
    found = [Measured(name, "", value, came_ms) for name, value in pairs if isinstance(name, str)]
    return "", [one for one in found if _can_be_shown(one.value)]


def _base_of(pack: list[Any]) -> str:
    return str(_named(pack[0]).get("bn", "")) if pack else ""


def _named(record: Mapping[Any, Any]) -> dict[Any, Any]:
    """Returns a record with the names of JSON, whichever form it had. Raises TypeError: it is no record."""
    if not isinstance(record, dict):
        raise TypeError(record)
    return {_LABELS.get(key, key) if isinstance(key, int) else key: value for key, value in record.items()}


def _resolved(pack: list[Any], came_ms: int) -> Iterator[Measured]:
    """Yields the readings of a pack (section 4.6). Raises TypeError or ValueError for a field of another type."""
    base_name, base_unit, base_time_s, base_value = "", "", 0.0, 0.0
    for record in map(_named, pack):
        base_name, base_unit = record.get("bn", base_name), record.get("bu", base_unit)
        base_time_s, base_value = record.get("bt", base_time_s), record.get("bv", base_value)
        if not isinstance(base_name, str):
            raise TypeError(record)
        time_s = base_time_s + record.get("t", 0)
        if not math.isfinite(time_s):
            raise ValueError(time_s)
        name = record.get("n", "") or base_name.rstrip(":/").replace("/", ":").rpartition(":")[2]
        unit = record.get("u", base_unit)
        if not isinstance(name, str) or not isinstance(unit, str):
            raise TypeError(record)
        measured_ms = int(time_s * 1000) + (came_ms if time_s < _RELATIVE_BELOW_S else 0)
        if (number := record.get("v")) is not None:
            yield Measured(name, unit, number + base_value, measured_ms)
        elif (value := record.get("vs", record.get("vb"))) is not None:
            yield Measured(name, unit, value, measured_ms)


def _can_be_shown(value: object) -> bool:
    if isinstance(value, bool):
        return True
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, int):
        return abs(value) < 2**63
    return isinstance(value, str) and 0 < len(value) <= TEXT_MAX and value.isprintable()
