"""Forms of JSON that name things inside the payload, where the topic and the place of a value do not.

| form | as by | device or metric |
|---|---|---|
| objects in an array with a name beside a value | Kepware, Advantech, OPC Publisher | the name, for the index |
| objects in an array with an id of their own | scans, lists of sensors | the id, for the index |
| `values` beside a time | ThingsBoard | the keys of `values`, with that time |
| `fields` and `tags` beside a `name` | Telegraf | the name and the tags, as in InfluxDB's line protocol |
| `model` and `id` in the outermost object | rtl_433 | the device |
"""

from collections.abc import Iterator
from typing import Any, NamedTuple, TypeAlias

from cloud.transforms.record import Message, Undecodable
from cloud.transforms.sender import quality
from cloud.transforms.sender.times import find_time, read_time

DEPTH_MAX = 16
"""How deep objects and arrays may be nested."""
_NAMES = ("n", "name", "Name", "tag", "Tag", "tagName", "TagName", "NodeId", "nodeId", "id", "Id", "ID", "DisplayName")
_VALUES = ("v", "value", "Value", "val", "Val")
_DEVICES = ("ApplicationUri", "device", "deviceName", "device_name", "deviceId", "device_id")
_UNITS = ("u", "unit", "Unit", "units")
_QUALITIES = {"q": quality.of_field, "quality": quality.of_field, "Quality": quality.of_field}
_STATUSES = {"StatusCode": quality.of_status, "statusCode": quality.of_status}
_IDS = ("id", "Id", "ID", "mac", "MAC", "serial", "sn", "NodeId", "tag", "name", "Name")
_PLAIN_CONTAINERS = ("values", "d")  # Kepware's and Advantech's arrays, and ThingsBoard's object
_SENSOR = ("model", "subtype", "channel", "id")  # the order in rtl_433's own topics
_ID_MIN = 6  # an id that is shorter may be in a topic by chance

Path = tuple[str, ...]


class Told(NamedTuple):
    """What an object tells of all values within it: each None if it tells nothing."""

    device: str | None = None
    time_us: int | None = None
    unit: str | None = None
    quality: str | None = None


Found: TypeAlias = tuple[Path, Any, Told]
"""The keys and names that lead to a value, the value, and what is told of it."""


def values_of(value: Any, message: Message, told: Told, used: Path | None) -> Iterator[Found]:
    """Yields each value of a payload. There is none in null and in what is empty.

    used: the keys that lead to the time of all values, which is no value.
    Raises Undecodable for what is nested too deeply.
    """
    walk = _Walk(message, used)
    if isinstance(value, dict) and (name := _name_of(value, alone=True)) is not None:
        return walk.named(name, value, (), told, DEPTH_MAX)
    return walk.values(value, (), told, DEPTH_MAX)


def device_of(value: Any, topic: str) -> str | None:
    """Returns the device that the outermost object names by `model` and `id`, unless the topic has the id already."""
    if not (isinstance(value, dict) and isinstance(value.get("model"), str) and _is_name(value.get("id"))):
        return None
    plain = _plain(str(value["id"]))
    if len(plain) >= _ID_MIN and plain in _plain(topic):
        return None
    return "/".join(str(value[key]) for key in _SENSOR if _is_name(value.get(key)))


class _Walk:
    """Goes through a payload once: each object and array is looked at by itself, and by the one around it."""

    def __init__(self, message: Message, used: Path | None) -> None:
        self._message = message
        self._used = used

    def values(self, value: Any, path: Path, told: Told, depth: int) -> Iterator[Found]:
        if isinstance(value, dict):
            yield from self._object(value, path, told, _less(depth))
        elif isinstance(value, list):
            yield from self._array(value, path, told, _less(depth))
        elif value is not None and path != self._used:
            yield path, value, told

    def _object(self, fields: dict[str, Any], path: Path, told: Told, depth: int) -> Iterator[Found]:
        skipped: tuple[str | None, ...] = ()
        if isinstance(fields.get("values"), dict) or _is_series(fields):
            time_name, time_us = find_time(fields, self._message)
            if time_us is not None:
                told, skipped = told._replace(time_us=time_us), (time_name,)
                if _is_series(fields):
                    series = ",".join((fields["name"], *(f"{key}={tag}" for key, tag in fields["tags"].items())))
                    yield from self.values(fields["fields"], (*path, series), told, depth)
                    skipped = (time_name, "fields", "name", "tags")
                else:
                    yield from self.values(fields["values"], path, told, depth)
                    skipped = (time_name, "values")
        for key, item in fields.items():
            if key in skipped:
                continue
            if not isinstance(item, dict | list):  # most items, without a generator of their own
                if item is not None and (*path, key) != self._used:
                    yield (*path, key), item, told
            elif key in _PLAIN_CONTAINERS and isinstance(item, list) and _names_of(item):
                yield from self._array(item, path, told, _less(depth))
            else:
                yield from self.values(item, (*path, key), told, depth)

    def _array(self, items: list[Any], path: Path, told: Told, depth: int) -> Iterator[Found]:
        if names := _names_of(items):
            for name, item in zip(names, items, strict=True):
                yield from self.named(name, item, path, told, depth)
        elif key := _id_key_of(items):
            for item in items:
                rest = {other: inner for other, inner in item.items() if other != key}
                yield from self.values(rest, (*path, str(item[key])), told, depth)
        elif items and all(_has_values(item) and find_time(item, self._message)[0] for item in items):
            for item in items:
                yield from self.values(item, path, told, depth)
        else:
            for place, item in enumerate(items):
                yield from self.values(item, (*path, str(place)), told, depth)

    def named(self, key: str, item: dict[str, Any], path: Path, told: Told, depth: int) -> Iterator[Found]:
        """Yields the value of an object that has a name beside it, and its other fields below the name.

        key: the field with the name.
        """
        value_key = next(name for name in _VALUES if name in item)
        value, rest = item[value_key], {name: inner for name, inner in item.items() if name not in (key, value_key)}
        told = self._tell(rest, told)
        if isinstance(value, dict) and (inner_key := next((name for name in _VALUES if name in value), None)):
            inner = dict(value)
            told = self._tell(inner, told)
            value = inner.pop(inner_key)
            rest.update(inner)
        path = (*path, str(item[key]))
        yield from self.values(value, path, told, depth)
        for name, inner in rest.items():
            yield from self.values(inner, (*path, name), told, depth)

    def _tell(self, rest: dict[str, Any], told: Told) -> Told:
        """Returns what the fields beside a value tell of it, and takes these fields away."""
        time_name, time_us = find_time(rest, self._message)
        if time_name is None and (time_us := read_time(rest.get("t"), self._message)) is not None:
            time_name = "t"
        if time_name is not None:
            del rest[time_name]
            told = told._replace(time_us=time_us)
        for name in _DEVICES:
            if isinstance(device := rest.get(name), str) and device:
                told = told._replace(device=rest.pop(name))
                break
        for name in _UNITS:
            if isinstance(rest.get(name), str):
                told = told._replace(unit=rest.pop(name) or None)
                break
        for name, read in (_QUALITIES | _STATUSES).items():
            if name in rest and (said := read(rest[name])) is not None:
                del rest[name]
                told = told._replace(quality=said)
        return told


def _less(depth: int) -> int:
    if depth == 0:
        raise Undecodable(f"nested deeper than {DEPTH_MAX}")
    return depth - 1


def _is_name(value: object) -> bool:
    return (isinstance(value, str) and value != "") or type(value) is int


def _name_of(item: Any, alone: bool = False) -> str | None:
    """Returns the field with the name of an object that has a name beside a value; None for any other.

    alone: whether it is the outermost object. An `id` there may be that of the message.
    """
    if isinstance(item, dict) and any(name in item for name in _VALUES):
        for name in _NAMES:
            if _is_name(item.get(name)):
                return None if alone and (name.lower() == "id" or not isinstance(item[name], str)) else name
    return None


def _names_of(items: list[Any]) -> list[str] | None:
    """Returns the fields with the names if each object of an array has a name beside a value."""
    names = []
    for item in items:
        if (name := _name_of(item)) is None:
            return None
        names.append(name)
    return names or None


def _id_key_of(items: list[Any]) -> str | None:
    """Returns the field that names each object of an array, none of them twice."""
    if items and isinstance(items[0], dict):
        for key in _IDS:
            if _is_name(items[0].get(key)):
                ids = {str(item[key]) for item in items if isinstance(item, dict) and _is_name(item.get(key))}
                return key if len(ids) == len(items) else None
    return None


def _has_values(item: Any) -> bool:
    return isinstance(item, dict) and (isinstance(item.get("values"), dict) or _is_series(item))


def _is_series(fields: dict[str, Any]) -> bool:
    """Whether it is a metric of Telegraf."""
    return (
        isinstance(fields.get("fields"), dict)
        and isinstance(fields.get("tags"), dict)
        and isinstance(fields.get("name"), str)
    )


def _plain(text: str) -> str:
    return "".join(filter(str.isalnum, text)).lower()
