"""The fields of a message that a selector may name, and how each of them is found."""

import re
from collections.abc import Callable
from typing import Any

import msgspec

from gateway.message import Message
from gateway.selectors.senml import moments_of
from gateway.selectors.values import Value
from wire.properties import CONTENT_TYPE, USER_PROPERTY

PAYLOAD_MAX = 64 * 1024
"""Bytes of the largest payload that is looked into. JSON takes up to 0.3 µs a byte, and other clients wait."""
_LEVEL = re.compile(r"[1-9][0-9]{0,4}", re.ASCII)
_INDEX = re.compile(r"[0-9]{1,9}", re.ASCII)
NAMESPACES = ("topic", "json", "reading", "mqtt", "id")

Find = Callable[["Fields"], Value]
_FOUND_BY: dict[str, Find] = {
    "mqtt.qos": lambda fields: fields.message.qos,
    "mqtt.retain": lambda fields: fields.message.retain,
    "mqtt.content_type": lambda fields: fields.message.properties.get(CONTENT_TYPE),
    "id.origin": lambda fields: fields.message.origin or None,
    "id.seq": lambda fields: fields.message.seq if fields.message.origin else None,
}


class Fields:
    """The fields of one message, each found when it is asked for.

    ``moment`` has the values of the readings that ``reading.`` names, by their names.
    """

    __slots__ = ("_json", "_levels", "message", "moment")
    message: Message

    def __init__(self, message: Message) -> None:
        self.message = message
        self.moment: dict[str, Value] = {}
        self._json: list[Any] = []  # the decoded payload, once it is decoded
        self._levels: list[str] = []

    @property
    def levels(self) -> list[str]:
        """The levels of the topic name."""
        if not self._levels:
            self._levels = self.message.topic.split("/")
        return self._levels

    @property
    def json(self) -> Any:
        """The payload as JSON; None if it is no JSON or larger than PAYLOAD_MAX."""
        if not self._json:
            self._json.append(_decode(self.message.payload))
        return self._json[0]

    def at(self, moment: dict[str, Value]) -> "Fields":
        """Returns itself with the readings of another moment."""
        self.moment = moment
        return self

    def moments(self) -> list[dict[str, Value]]:
        """Returns the readings of a SenML payload, those of each time together; no reading is one empty moment."""
        return moments_of(self.message.payload) if len(self.message.payload) <= PAYLOAD_MAX else [{}]


def user_property(name: str) -> Find:
    """Returns what finds the first user property of a name."""

    def find(fields: Fields) -> Value:
        for key, value in fields.message.properties.get(USER_PROPERTY, ()):
            if key == name:
                return str(value)
        return None

    return find


def field(parts: tuple[str, ...]) -> Find:
    """Returns what finds the field ``NAMESPACE.NAME...``. Raises ValueError with what was expected."""
    namespace, *names = parts
    if namespace == "topic":
        return _topic(names)
    if namespace == "json":
        return _json(tuple(names))
    if namespace == "reading":
        if not names:
            raise ValueError("expected the name of a reading, such as reading.temperature")
        return _reading(".".join(names))
    known = [name for name in _FOUND_BY if name.startswith(f"{namespace}.")]
    name = ".".join(parts)
    if name not in known:
        raise ValueError(f"expected {' or '.join(known)}")
    return _FOUND_BY[name]


def _topic(names: list[str]) -> Find:
    if not names:
        return lambda fields: fields.message.topic
    if len(names) > 1 or not _LEVEL.fullmatch(names[0]):
        raise ValueError("expected the number of a level, such as topic.2, or topic alone")
    place = int(names[0]) - 1
    return lambda fields: fields.levels[place] if place < len(fields.levels) else None


def _json(names: tuple[str, ...]) -> Find:
    def find(fields: Fields) -> Value:
        value = fields.json
        for name in names:
            if isinstance(value, dict):
                value = value.get(name)
            elif isinstance(value, list) and _INDEX.fullmatch(name) and int(name) < len(value):
                value = value[int(name)]
            else:
                return None
        return value if isinstance(value, str | int | float) else None

    return find


def _reading(name: str) -> Find:
    return lambda fields: fields.moment.get(name)


def _decode(payload: bytes) -> Any:
    if len(payload) > PAYLOAD_MAX:
        return None
    try:
        return msgspec.json.decode(payload)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
