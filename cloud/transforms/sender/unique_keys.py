"""Finds a key that an object of JSON has twice. Parsers keep the last of its values, and the others would vanish."""

import json
from collections.abc import Sequence
from typing import Any

from cloud.transforms.record import Undecodable


def check_unique(payload: bytes, value: Any) -> None:
    """Raises Undecodable if an object has a key twice.

    payload: JSON in UTF-8 without a fault.
    value: what a parser made of it: dicts, lists, texts, numbers, booleans and None.

    Each key has a colon behind it. If the payload has as many colons as the keys and texts of `value` explain, no key
    is lost. Else, and if an escape may stand for a colon, a slower parser looks.
    """
    if b"\\" not in payload and payload.count(b":") == _colons_of(value):
        return
    try:
        json.loads(payload, object_pairs_hook=_check_object, parse_int=_ignore, parse_float=_ignore)
    except RecursionError:
        raise Undecodable("it is nested too deeply") from None


def _colons_of(value: Any) -> int:
    """Returns how many colons JSON without escapes has that becomes this value."""
    colons = 0
    left = [value]
    while left:
        item = left.pop()
        if isinstance(item, str):
            colons += item.count(":")
        elif isinstance(item, dict):
            colons += len(item) + "".join(item).count(":")
            left += item.values()
        elif isinstance(item, list):
            left += item
    return colons


def _check_object(pairs: Sequence[tuple[str, Any]]) -> None:
    seen = set()
    for key, _ in pairs:
        if key in seen:
            raise Undecodable(f"an object has the key {key[:64]!r} twice")
        seen.add(key)


def _ignore(_: str) -> None:
    return None
