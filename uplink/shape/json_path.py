"""Where a number is in a JSON payload: ``value.temperature``, or ``$`` for the payload itself.

::

    path = "$" / name *("." name)         ; a name of digits counts in a list, from 0
"""

import re
from typing import Any

import msgspec

NAME = re.compile(r'[^\s.=!<>"$\[\]]+')
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
