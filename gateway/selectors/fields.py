"""The fields of a message that a selector may name, and how each of them is found."""

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import msgspec

from gateway.message import Message
from gateway.selectors.senml import moments_of
from gateway.selectors.values import Value
from wire.properties import CONTENT_TYPE, USER_PROPERTY

PAYLOAD_MAX = 64 * 1024
"""Bytes of the largest payload that is looked into. JSON takes up to 0.3 µs a byte, and other clients wait."""
REMEMBERED = 2  # decoded payloads: many selectors look at one message, one after the other
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

    __slots__ = ("_levels", "_pairs", "message", "moment")
    message: Message

    def __init__(self, message: Message) -> None:
        self.message = message
        self.moment: dict[str, Value] = {}
        self._levels: list[str] = []
        self._pairs: dict[str, str] | None = None

    @property
    def levels(self) -> list[str]:
        """The levels of the topic name."""
        if not self._levels:
            self._levels = self.message.topic.split("/")
        return self._levels

    @property
    def json(self) -> Any:
        """The payload as JSON; None if it is no JSON or larger than PAYLOAD_MAX."""
        payload = self.message.payload
        return _decode(payload) if len(payload) <= PAYLOAD_MAX else None

    @property
    def pairs(self) -> dict[str, str]:
        """The user properties; of several with one name the first."""
        if self._pairs is None:
            found = self.message.properties.get(USER_PROPERTY, ())
            self._pairs = {name: str(value) for name, value in reversed(found)}
        return self._pairs

    def at(self, moment: dict[str, Value]) -> "Fields":
        """Returns itself with the readings of another moment."""
        self.moment = moment
        return self

    def moments(self) -> list[dict[str, Value]]:
        """Returns the readings of a SenML payload, one moment for each time; without a reading one empty moment."""
        payload = self.message.payload
        return _moments_of(payload) if len(payload) <= PAYLOAD_MAX else [{}]


def user_property(name: str) -> Find:
    """Returns what finds the first user property of a name."""
    return lambda fields: fields.pairs.get(name)


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


_moments_of = lru_cache(REMEMBERED)(moments_of)


@lru_cache(REMEMBERED)
def _decode(payload: bytes) -> Any:
    try:
        return msgspec.json.decode(payload)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
