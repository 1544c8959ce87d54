"""Finds a key that an object of JSON has twice. Parsers keep the last of its values, and the others would vanish."""

import json
from collections.abc import Sequence
from typing import Any

import msgspec

from cloud.transforms.record import Undecodable

_encode = msgspec.json.Encoder().encode


def check_unique(payload: bytes, value: Any) -> None:
    """Raises Undecodable if an object has a key twice.

    payload: JSON in UTF-8 without a fault.
    value: what a parser made of it.
    """
    if is_whole(payload, value):
        return
    try:
        json.loads(payload, object_pairs_hook=_check_object, parse_int=_ignore, parse_float=_ignore)
    except RecursionError:
        raise Undecodable("it is nested too deeply") from None


def is_whole(payload: bytes, value: Any) -> bool:
    """Whether a payload surely has no more keys than what was parsed from it. False says nothing.

    Each key has a colon behind it, and other colons are in texts, which are the same when they are encoded again: a
    payload with a key more has a colon more. Escapes may stand for colons.
    """
    if b"\\" in payload:
        return False
    try:
        return payload.count(b":") == _encode(value).count(b":")
    except (msgspec.MsgspecError, OverflowError, RecursionError):  # a number of more than 64 bits
        return False


def _check_object(pairs: Sequence[tuple[str, Any]]) -> None:
    seen = set()
    for key, _ in pairs:
        if key in seen:
            raise Undecodable(f"an object has the key {key[:64]!r} twice")
        seen.add(key)


def _ignore(_: str) -> None:
    return None
