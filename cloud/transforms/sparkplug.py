"""Sparkplug B (specification 3.0): payloads into records, with names and data types from the births.

A DATA message may name its metrics by numbers, aliases, that the last BIRTH of the same node or device explains. The
birth may be in another batch, or land later. So a decoder gets all births that are known, and takes the last one whose
timestamp is not after that of the message: edge nodes stamp both by one clock. Neither the order of landing nor the
batches matter.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from cloud.transforms.places import SEPARATOR
from cloud.transforms.record import (
    ABSOLUTE_TIME_S,
    PAYLOAD_MAX,
    TIME_MAX_S,
    Allowance,
    Message,
    Record,
    Undecodable,
    value_record,
)
from cloud.transforms.sparkplug_payload import parse, quality_of, unit_of, values_of

NAMESPACE = "spBv1.0"
BIRTHS = ("NBIRTH", "DBIRTH")
TEMPLATES_MAX = 8
"""How deep templates may be nested."""
DEFINITIONS_MAX = 1_000_000
"""The most metrics, by name and by alias, of the births that stay read, some 200 MB, unless one birth has more."""
_DATA = ("NDATA", "DDATA", "NDEATH", "DDEATH")
_COMMANDS = ("NCMD", "DCMD")

Source = tuple[str, ...]
"""Group, edge node and, for a device of the node, the device."""


class Definition(NamedTuple):
    """What a birth tells of a metric."""

    name: str
    datatype: int
    unit: str | None


class Birth(NamedTuple):
    """What a birth tells of all metrics of its source."""

    by_name: dict[str, Definition]
    by_alias: dict[int, Definition]


class Births:
    """All births that are known, by their source. A birth that cannot be decoded explains nothing.

    They are kept as payloads, and read when they explain a message: what is read takes thirty times as much memory.
    """

    def __init__(self, messages: Iterable[tuple[str, bytes]] = ()) -> None:
        """messages: topic and payload of each BIRTH message, in any order."""
        self._births: dict[Source, list[tuple[int, bytes]]] = {}
        self._read: dict[bytes, Birth] = {}
        self._definitions = 0
        # In an order that depends on the messages alone, for births of the same millisecond.
        for topic, payload in sorted(set(messages)):
            source, kind = _address(topic)
            if kind in BIRTHS and len(payload) <= PAYLOAD_MAX:
                try:
                    self._births.setdefault(source, []).append((parse(payload).timestamp, payload))
                except (Undecodable, ValueError):
                    continue
        for births in self._births.values():
            births.sort(key=_timestamp)

    def at(self, source: Source, timestamp_ms: int) -> Birth | None:
        """Returns the birth that explains a message of this time."""
        births = self._births.get(source, [])
        place = bisect_right(births, timestamp_ms, key=_timestamp)
        return self._explain(births[place - 1][1]) if place else None

    def _explain(self, payload: bytes) -> Birth:
        """Returns what a birth tells. As many births stay read as have DEFINITIONS_MAX metrics together."""
        if (birth := self._read.get(payload)) is None:
            birth = _read_birth(parse(payload))
            self._definitions += len(birth.by_name) + len(birth.by_alias)
            if self._definitions > DEFINITIONS_MAX:
                self._read.clear()
                self._definitions = len(birth.by_name) + len(birth.by_alias)
            self._read[payload] = birth
        return birth


def is_sparkplug(topic: str) -> bool:
    """Whether a topic belongs to a BIRTH, DATA, DEATH or CMD message; STATE is JSON."""
    return topic.startswith(NAMESPACE + "/") and _address(topic)[1] in (*BIRTHS, *_DATA, *_COMMANDS)


def birth_topic(topic: str) -> str | None:
    """Returns the topic of the births that explain messages of this one; None if none does."""
    if not is_sparkplug(topic):
        return None
    source, kind = _address(topic)
    group, *rest = source
    return "/".join((NAMESPACE, group, f"{kind[0]}BIRTH", *rest))


def decode_sparkplug(message: Message, births: Births) -> list[Record]:
    """Returns a record for each value of the message's metrics; none for a command. Raises Undecodable."""
    source, kind = _address(message.topic)
    payload = parse(message.payload)
    if kind in _COMMANDS:
        return []
    if kind in BIRTHS:
        birth: Birth | None = _read_birth(payload)
    else:
        birth = births.at(source, payload.timestamp) if payload.HasField("timestamp") else None
    allowance = Allowance(max(len(message.payload), payload.ByteSize()) + len(message.topic))
    reader = _Reader("/".join(source), birth, allowance)
    own = payload.timestamp if payload.HasField("timestamp") else None
    return [record for metric in payload.metrics for record in reader.records(metric, "", own, TEMPLATES_MAX)]


class _Reader:
    """Turns the metrics of a message into records."""

    def __init__(self, device: str, birth: Birth | None, allowance: Allowance) -> None:
        self._device = device
        self._birth = birth
        self._allowance = allowance

    def records(
        self, metric: Any, above: str, timestamp_ms: int | None, depth: int, quality: str | None = None
    ) -> Iterator[Record]:
        """Yields a record for each value. `above` is the name of the template that has the metric, `quality` is its."""
        if metric.is_null:
            return
        known = self._define(metric)
        name = SEPARATOR.join(filter(None, (above, known.name)))
        if metric.HasField("timestamp"):
            timestamp_ms = metric.timestamp
        if metric.HasField("properties"):
            quality = quality_of(metric) or quality
        if metric.WhichOneof("value") == "template_value":
            if metric.template_value.is_definition:  # it is no measurement
                return
            if depth == 0:
                raise Undecodable(f"templates are nested deeper than {TEMPLATES_MAX}")
            for inner in metric.template_value.metrics:
                yield from self.records(inner, name, timestamp_ms, depth - 1, quality)
            return
        time_us = _time_us(timestamp_ms)
        historical = metric.is_historical if metric.HasField("is_historical") else None
        for path, value in values_of(metric, known.datatype):
            part = SEPARATOR.join((name, *path)) if path else name
            record = value_record(self._device, part, value, unit=known.unit, time_us=time_us)
            if quality is not None or historical is not None:
                record = record._replace(quality=quality, historical=historical)
            self._allowance.take(record)
            yield record

    def _define(self, metric: Any) -> Definition:
        """Returns name, data type and unit of a metric, by itself and by its birth."""
        birth = self._birth
        if metric.name:
            told = birth.by_name.get(metric.name) if birth else None
        elif not metric.HasField("alias"):
            raise Undecodable("a metric has neither a name nor an alias")
        elif birth is None:
            raise Undecodable(f"no birth of {self._device} is known that explains alias {metric.alias}")
        elif (told := birth.by_alias.get(metric.alias)) is None:
            raise Undecodable(f"the birth of {self._device} does not explain alias {metric.alias}")
        unit = unit_of(metric) or (told.unit if told else None)
        datatype = metric.datatype or (told.datatype if told else 0)
        if not datatype and metric.WhichOneof("value") in ("int_value", "long_value"):
            raise Undecodable(f"no birth of {self._device} is known that tells the data type of {metric.name!r}")
        return Definition(metric.name or (told.name if told else ""), datatype, unit)


def _address(topic: str) -> tuple[Source, str]:
    """Returns the source and the kind of message: namespace/group/kind/node[/device]. The kind is "" for others."""
    match topic.split("/"):
        case [_, group, kind, node] if kind.startswith("N"):
            return (group, node), kind
        case [_, group, kind, node, device] if kind.startswith("D"):
            return (group, node, device), kind
    return (), ""


def _read_birth(payload: Any) -> Birth:
    by_name, by_alias = {}, {}
    for metric in payload.metrics:
        by_name[metric.name] = definition = Definition(metric.name, metric.datatype, unit_of(metric))
        if metric.HasField("alias"):
            by_alias[metric.alias] = definition
    return Birth(by_name, by_alias)


def _timestamp(birth: tuple[int, bytes]) -> int:
    return birth[0]


def _time_us(timestamp_ms: int | None) -> int | None:
    """Returns µs since 1970; None for what a clock counts that has not been set."""
    if timestamp_ms is None or timestamp_ms < ABSOLUTE_TIME_S * 1000:
        return None
    if timestamp_ms >= TIME_MAX_S * 1000:
        raise Undecodable(f"timestamp {timestamp_ms} is beyond the year 9999; Sparkplug counts milliseconds")
    return timestamp_ms * 1000
