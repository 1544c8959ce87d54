"""Conditions on JSON payloads: ``value.temperature > 30 and unit == "C"``.

::

    condition  = comparison *("and" comparison)
    comparison = path ("==" / "!=" / "<" / "<=" / ">" / ">=") literal
    path       = "$" / name *("." name)         ; a name of digits counts in a list, from 0
    literal    = number / text in double quotes / "true" / "false" / "null", as in JSON
"""

import operator
import re
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import msgspec

OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<=": operator.le,
    ">=": operator.ge,
    "<": operator.lt,
    ">": operator.gt,
}
TOKEN = re.compile(r'\s*("(?:[^"\\]|\\.)*"|[=!<>]+|[^\s=!<>"]+)')
NAME = re.compile(r'[^\s.=!<>"$]+')
PAYLOAD_MAX = 64 * 1024
"""Bytes of the largest payload that is looked into. A list of numbers takes 0.3 µs a byte, and other clients wait."""

MISSING = object()
"""Stands for a field that a payload does not have."""

Path = tuple[str, ...]
"""The names from the payload to a field; () is the payload itself."""


def parse_path(text: str) -> Path:
    """Returns the path of a field. Raises ValueError."""
    if text == "$":
        return ()
    names = text.split(".")
    if not all(NAME.fullmatch(name) for name in names):
        raise ValueError(f"{text!r}, expected names joined by dots such as value.temperature, or $ for the payload")
    return tuple(names)


def find(value: Any, path: Path) -> Any:
    """Returns what is at a path in a JSON value, MISSING if there is nothing."""
    for name in path:
        if isinstance(value, dict):
            value = value.get(name, MISSING)
        elif isinstance(value, list) and name.isdecimal() and len(name) < 10 and int(name) < len(value):
            value = value[int(name)]
        else:
            return MISSING
    return value


def elements_of(payload: bytes) -> list[Any] | None:
    """Returns the elements of a payload that is a JSON list, or another JSON payload as the only one.

    None: it is no JSON, or larger than PAYLOAD_MAX.
    """
    if len(payload) > PAYLOAD_MAX:
        return None
    try:
        value = msgspec.json.decode(payload)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    return value if isinstance(value, list) else [value]


class Comparison(NamedTuple):
    """One comparison of a field with a literal of the same kind."""

    path: Path
    operator: str
    literal: Any

    def fits(self, element: Any) -> bool:
        """Whether a JSON value fulfils it."""
        value = find(element, self.path)
        if value is MISSING:
            return False
        if _kind(value) is not _kind(self.literal):
            return self.operator == "!="
        return OPERATORS[self.operator](value, self.literal)


class Condition(NamedTuple):
    """All of several comparisons."""

    comparisons: tuple[Comparison, ...]

    def fits(self, elements: Iterable[Any]) -> bool:
        """Whether one of the elements fulfils all comparisons."""
        return any(all(one.fits(element) for one in self.comparisons) for element in elements)


def parse_condition(text: str) -> Condition:
    """Returns the condition that a text says. Raises ValueError."""
    tokens, position = [], 0
    while position < len(text.rstrip()):
        found = TOKEN.match(text, position)
        if found is None:
            raise ValueError(f'{text!r}, the text at {text[position:]!r} has no second "')
        tokens.append(found[1])
        position = found.end()
    comparisons = [_parse_comparison(tokens[at : at + 3]) for at in range(0, len(tokens) + 1, 4)]
    for joint in tokens[3::4]:
        if joint != "and":
            raise ValueError(f"{joint!r}, expected `and` between two comparisons")
    return Condition(tuple(comparisons))


def _parse_comparison(tokens: list[str]) -> Comparison:
    if len(tokens) < 3 or tokens[1] not in OPERATORS:
        raise ValueError(f'{" ".join(tokens)!r}, expected a comparison such as value > 30 or n == "temperature"')
    try:
        literal = msgspec.json.decode(tokens[2])
    except (msgspec.MsgspecError, ValueError):
        literal = []
    if isinstance(literal, dict | list):
        raise ValueError(f"{tokens[2]!r}, expected a number, a text in double quotes, true, false or null")
    if tokens[1] not in ("==", "!=") and _kind(literal) not in (float, str):
        raise ValueError(f"{tokens[1]!r} compares numbers and texts alone, not {tokens[2]}")
    return Comparison(parse_path(tokens[0]), tokens[1], literal)


def _kind(value: Any) -> type:
    """Returns the JSON type of a value: 1 and 1.0 are of one type, 1 and true are not."""
    return float if type(value) is int else type(value)
