"""Lines of text become readings: by a regular expression or by columns, or the whole line is one value.

Regular expressions are matched by RE2, in time in proportion to the line: no line makes one slow, however the
expression is written (R. Cox, "Regular Expression Matching in the Wild", 2010).
"""

import csv
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gateway.config.connectors import LineRule
from gateway.connectors.reading import Reading, Value, number_of

WHOLE = "line"
"""The name of the value that is a whole line, where no rule is configured."""
UNREAD = "unread"
"""The name of the value that is a line which no rule fits."""
FILLED_MAX = 100  # characters of a text that a line puts into a topic name or a device's name
_HOLE = re.compile(r"\{(\w+)\}")
_NOT_IN_TOPICS = re.compile(r"[\x00-\x1f\x7f/+#$]")


@dataclass(frozen=True, slots=True)
class LineReadings:
    """What a line says: the device's name, the topic name, and the values. ``fits``: a rule has read it."""

    device: str
    topic: str
    readings: list[Reading]
    fits: bool = True


class LineReader:
    """Reads lines by rules; the first that fits counts.

    Args:
        device: the name of the device, where the rule has none.
        topic: the topic name; ``{device}`` and other names in braces are filled in.
        rules: the rules; without any a line is one value.
    """

    def __init__(self, device: str, topic: str, rules: Sequence[LineRule]) -> None:
        self._device = device
        self._topic = topic
        self._rules = [_Rule(one) for one in rules]

    def read(self, line: bytes) -> LineReadings:
        """Reads one line, without its separator. Bytes that are no UTF-8 become U+FFFD."""
        text = line.decode(errors="replace").strip("\r\x00")
        for rule in self._rules:
            if (fields := rule.fields_of(text)) is not None:
                device = fill(rule.device, fields) if rule.device else self._device
                return LineReadings(device, fill(self._topic, {**fields, "device": device}), rule.readings(fields))
        name = UNREAD if self._rules else WHOLE
        topic = fill(self._topic, {"device": self._device})
        return LineReadings(self._device, topic, [Reading(name, value_of(text))], not self._rules)


class _Rule:
    def __init__(self, config: LineRule) -> None:
        self._config = config
        self.device = config.device
        self._pattern = compile_pattern(config.pattern) if config.pattern is not None else None
        index = self._pattern.groupindex if self._pattern is not None else {}
        self._groups = sorted(index, key=index.__getitem__)  # RE2 has them by name
        self._in_names = {name for template in (config.device,) for name in _HOLE.findall(template or "")}

    def fields_of(self, text: str) -> dict[str, str] | None:
        """Returns the fields of a line by name, None if the rule does not fit it."""
        if self._pattern is not None:
            found = self._pattern.search(text)
            if found is None:
                return None
            return {name: value for name in self._groups if (value := found.group(name)) is not None}
        return _columns_of(text, self._config)

    def readings(self, fields: dict[str, str]) -> list[Reading]:
        units, texts = self._config.units, self._config.texts
        return [
            Reading(name, value if name in texts else value_of(value), units.get(name, ""))
            for name, value in fields.items()
            if name not in self._in_names and value != ""
        ]


def compile_pattern(pattern: str) -> Any:
    """Returns a compiled expression of RE2. Raises ValueError: it is none; the text says why."""
    import re2  # only these connectors need it

    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        (why,) = error.args
        raise ValueError(why.decode(errors="replace") if isinstance(why, bytes) else str(why)) from None


def value_of(text: str) -> Value:
    """Returns the number that a text is, or the text itself."""
    stripped = text.strip()
    number = number_of(stripped)
    return stripped if number is None else number


def fill(template: str, fields: dict[str, str]) -> str:
    """Returns a topic name, or a device's name, with fields in the place of names in braces.

    A field adds no level and no wildcard: such characters become ``_``.
    """
    return _HOLE.sub(lambda hole: level_of(fields.get(hole[1], "")), template)


def level_of(text: str) -> str:
    """Returns a text as one level of a topic name."""
    return _NOT_IN_TOPICS.sub("_", text.strip()[:FILLED_MAX]) or "_"


def _columns_of(text: str, rule: LineRule) -> dict[str, str] | None:
    try:
        found = next(csv.reader([text], delimiter=rule.delimiter), [])
    except csv.Error:
        return None
    if len(found) != len(rule.columns):
        return None
    return {name: value.strip() for name, value in zip(rule.columns, found, strict=True) if name}
