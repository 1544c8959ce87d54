"""Plain JSON into records: a record for each value, with the keys that lead to it as its name."""

from collections.abc import Iterator
from typing import Any

import msgspec

from cloud.transforms import senml
from cloud.transforms.places import Place, place_of_fields, place_of_value
from cloud.transforms.record import Allowance, Message, Record, Undecodable, find_time, read_time, value_record

DEPTH_MAX = 16
"""How deep objects and arrays may be nested."""


def decode_json(message: Message) -> list[Record]:
    """Returns the records of a SenML pack, or of each value in any other JSON. Raises Undecodable."""
    if message.payload.lstrip()[:1] != b"[":
        return decode_plain_json(message)
    try:
        return senml.resolve(message.payload)
    except senml.NotSenml as refused:
        try:
            value = msgspec.json.decode(message.payload)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            raise refused from None
        if _is_pack(value):
            raise
    return _flatten_message(message, value)


def decode_plain_json(message: Message) -> list[Record]:
    """Returns a record for each value. Raises Undecodable."""
    try:
        value = msgspec.json.decode(message.payload)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise Undecodable(f"it is not JSON: {error}") from None
    return _flatten_message(message, value)


def _is_pack(value: Any) -> bool:
    """Whether a record of the array has a name as SenML has it: then the array is meant as a pack."""
    return any(isinstance(item, dict) and (isinstance(item.get("n"), str) or "bn" in item) for item in value)


def _flatten_message(message: Message, value: Any) -> list[Record]:
    many = isinstance(value, dict | list)
    place = place_of_fields(message.topic) if many else place_of_value(message.topic)
    time_us, used = _find_time(value)
    allowance = Allowance(len(message.payload) + len(message.topic))
    records = []
    for path, item in _values(value, (), DEPTH_MAX):
        if path != used:
            records.append(_record(place, path, item, time_us))
            allowance.take(records[-1])
    if not records:
        raise Undecodable("it has no value")
    if len({record.metric for record in records}) != len(records):
        raise Undecodable("two values have the same name")
    return records


def _record(place: Place, path: tuple[str, ...], item: object, time_us: int | None) -> Record:
    return value_record(place.device, place.metric_of(*path), item, time_us=time_us)


def _values(value: Any, path: tuple[str, ...], depth: int) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yields each value and the keys that lead to it. There is no value in null and in what is empty."""
    if isinstance(value, dict | list):
        if depth == 0:
            raise Undecodable(f"nested deeper than {DEPTH_MAX}")
        pairs = value.items() if isinstance(value, dict) else ((str(place), item) for place, item in enumerate(value))
        for key, item in pairs:
            yield from _values(item, (*path, key), depth - 1)
    elif value is not None:
        yield path, value


def _find_time(value: Any) -> tuple[int | None, tuple[str, ...] | None]:
    """Returns the time of all values (µs since 1970), and the keys that lead to it."""
    if not isinstance(value, dict):
        return None, None
    name, time_us = find_time(value)
    if name is not None:
        return time_us, (name,)
    params = value.get("params")  # Shelly's notifications are requests of JSON-RPC
    if isinstance(params, dict) and (time_us := read_time(params.get("ts"))) is not None:
        return time_us, ("params", "ts")
    return None, None
