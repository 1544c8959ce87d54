"""Plain JSON and plain CBOR into records: a record for each value, with the keys that lead to it as its name."""

import math
from typing import Any

import msgspec

from cloud.transforms import senml
from cloud.transforms.places import Place, known_place, place_of_value, plain_place
from cloud.transforms.record import Allowance, Message, Record, Undecodable, value_record
from cloud.transforms.sender.forms import DEPTH_MAX, Path, Told, device_of, values_of
from cloud.transforms.sender.times import find_time
from cloud.transforms.sender.unique_keys import check_unique
from cloud.transforms.text_values import strip_text
from host import cbor

_OF_SENML = ("v", "vs", "vb", "vd", "s")
_BASE_NAME, _NAME = -2, 0  # the labels of SenML in CBOR


def decode_json(message: Message) -> list[Record]:
    """Returns the records of a SenML pack, or of each value in any other JSON. Raises Undecodable."""
    payload = strip_text(message.payload)
    if payload[:1] != b"[":
        return decode_plain_json(message)
    try:
        return senml.resolve(payload)
    except senml.NotSenml as refused:
        try:
            value = msgspec.json.decode(payload)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            raise refused from None
        if _is_pack(value):
            raise
    check_unique(payload, value)
    return flatten(message, value)


def decode_plain_json(message: Message) -> list[Record]:
    """Returns a record for each value. Raises Undecodable."""
    payload = strip_text(message.payload)
    try:
        value = msgspec.json.decode(payload)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise Undecodable(f"it is not JSON: {error}") from None
    check_unique(payload, value)
    return flatten(message, value)


def decode_cbor(message: Message) -> list[Record]:
    """Returns the records of a SenML pack, or of each value in any other item of CBOR. Raises Undecodable."""
    try:
        return senml.resolve_cbor(message.payload)
    except senml.NotSenml as refused:
        try:
            item = cbor.decode(message.payload)
        except cbor.NotCbor as error:
            raise Undecodable(f"it is not CBOR: {error}") from None
        if isinstance(item, list) and any(isinstance(one, dict) and {_BASE_NAME, _NAME} & one.keys() for one in item):
            raise refused from None
        return flatten(message, _as_json(item))


def _as_json(item: Any) -> Any:
    """Returns an item of CBOR with texts as keys, and the names of numbers that are none, so that they spoil no sum."""
    match item:
        case dict():
            fields = {_key(key): _as_json(inner) for key, inner in item.items()}
            if len(fields) != len(item):
                raise Undecodable("a map has a key twice, as a number or as bytes, and as a text")
            return fields
        case list():
            return [_as_json(inner) for inner in item]
        case float() if not math.isfinite(item):
            return str(item)
    return item


def _key(key: str | int | bytes) -> str:
    return key.hex() if isinstance(key, bytes) else str(key)


def _is_pack(value: Any) -> bool:
    """Whether a record of the array has a name and a value as SenML has them: then the array is meant as a pack."""
    return any(
        isinstance(item, dict)
        and ("bn" in item or (isinstance(item.get("n"), str) and any(label in item for label in _OF_SENML)))
        for item in value
    )


def flatten(message: Message, value: Any) -> list[Record]:
    """Returns a record for each value in objects and arrays; none where there is no value. Raises Undecodable."""
    place = _place_of(message, value)
    time_us, used = _find_time(value, message)
    allowance = Allowance(len(message.payload) + len(message.topic))
    records = []
    for path, item, told in values_of(value, message, Told(place.device, time_us), used):
        device, name = told.device, place.metric_of(*path)
        if place.by_key:
            device, name = path[0], place.metric_of(*path[1:])
        record = value_record(device, name, item, unit=told.unit, time_us=told.time_us)
        if told.quality is not None:
            record = record._replace(quality=told.quality)
        records.append(record)
        allowance.take(record)
    if len({(record.device, record.metric, record.time_us) for record in records}) != len(records):
        raise Undecodable("two values have the same name")
    return records


def _place_of(message: Message, value: Any) -> Place:
    """Returns the place that the topic names, if it is of a known kind; else the payload's, else the topic's."""
    if not isinstance(value, dict | list):
        return place_of_value(message.topic)
    if known := known_place(message.topic, value):
        return known
    if (device := device_of(value, message.topic)) is not None:
        return Place(device, "")
    return plain_place(message.topic)


def _find_time(value: Any, message: Message) -> tuple[int | None, Path | None]:
    """Returns the time of all values (µs since 1970), and the keys that lead to it.

    It is in the outermost object; in the only one within it, as in shadows of devices; or in Shelly's `params`.
    """
    path: Path = ()
    while isinstance(value, dict) and len(path) < DEPTH_MAX:
        name, time_us = find_time(value, message)
        if name is not None:
            return time_us, (*path, name)
        key = next(iter(value), "") if len(value) == 1 else "params"  # notifications are requests of JSON-RPC
        value, path = value.get(key), (*path, key)
    return None, None
