"""The properties of a PUBLISH, as the bytes they come in: what many messages have in common is read once.

::

    block = common part, hf-id property that says which message it is (or nothing)
"""

import re
import sys
from collections.abc import Container
from functools import lru_cache
from typing import Any

from gateway.message import OUR_PROPERTIES, message_from
from wire.errors import RemoteProtocolError
from wire.identity import IDENTITY_PROPERTY
from wire.packet_types import PUBLISH
from wire.packets import Publish
from wire.primitives import Reader, encode_string, encode_varint
from wire.properties import (
    CONTENT_TYPE,
    CORRELATION_DATA,
    MESSAGE_EXPIRY_INTERVAL,
    USER_PROPERTY,
    decode_properties,
)

SIZE_MAX = 512  # bytes of an ordinary block; a longer one is rare, and remembering many costs memory
COMMON_REMEMBERED = 4096

_MARK = bytes((USER_PROPERTY,)) + encode_string(IDENTITY_PROPERTY)
_TEXT_AT = len(_MARK) + 2
_IDENTITY = re.compile(rb"([0-9a-f]{8})/([1-9][0-9]{0,17})/([ -~]+)")
_ORDINARY = {CONTENT_TYPE, CORRELATION_DATA, MESSAGE_EXPIRY_INTERVAL, USER_PROPERTY}
"""Of which a message may have any, with nothing to be asked or remembered."""

Identity = tuple[str, int, int]
"""(origin, epoch, seq)."""


class Common:
    """What the common part says: a message's properties, and for how many ms it is good (0: for ever)."""

    __slots__ = ("expiry_ms", "properties")

    def __init__(self, properties: dict[int, Any], expiry_ms: int) -> None:
        self.properties = properties
        self.expiry_ms = expiry_ms


def find(buffer: bytes, at: int) -> tuple[int, int]:
    """Returns where the block begins and ends whose length is at a place; an end that cannot be where that is too long.

    Raises IndexError where the buffer ends before.
    """
    length = buffer[at]
    if length < 0x80:
        return at + 1, at + 1 + length
    more = buffer[at + 1]
    if not 0 < more < 0x80:
        return at + 2, sys.maxsize
    return at + 2, at + 2 + (length & 0x7F | more << 7)


def check(block: bytes, origins: Container[bytes]) -> bool | None:
    """Returns whether an ordinary block brings an identity of one of some origins.

    None for one that is not ordinary, not well-formed, or brings one of another origin.
    """
    if len(block) > SIZE_MAX:
        return None
    identity = _find_identity(block)
    if identity < 0:
        return None if read_common(block) is None else False
    found = _IDENTITY.fullmatch(block, identity + _TEXT_AT)
    return True if found and found[3] in origins and read_common(block[:identity]) is not None else None


def read(block: bytes) -> tuple[Common, Identity | None]:
    """Returns what an ordinary block says."""
    at = _find_identity(block)
    if at < 0:
        return _common(block), None
    found = _IDENTITY.fullmatch(block, at + _TEXT_AT)
    assert found is not None
    epoch, seq, origin = found.groups()
    return _common(block[:at]), (_decode_origin(origin), int(epoch, 16), int(seq))


@lru_cache(maxsize=COMMON_REMEMBERED)
def read_common(block: bytes) -> Common | None:
    """Returns what a common part says, None where each message that has it has to be looked at by itself."""
    try:
        properties = decode_properties(Reader(encode_varint(len(block)) + block), PUBLISH)
    except RemoteProtocolError:
        return None
    if not properties.keys() <= _ORDINARY or properties.get(MESSAGE_EXPIRY_INTERVAL) == 0:
        return None
    if any(name in OUR_PROPERTIES for name, _ in properties.get(USER_PROPERTY, ())):
        return None
    message = message_from(Publish("", b"", properties=properties), "", "", 0)
    return Common(message.properties, message.expires_ms)


def _common(block: bytes) -> Common:
    common = read_common(block)
    assert common is not None
    return common


def _find_identity(block: bytes) -> int:
    """Where the identity's property begins, if the block ends with one; else -1."""
    at = block.rfind(_MARK)
    text = at + _TEXT_AT
    if at < 0 or text > len(block) or block[text - 2] << 8 | block[text - 1] != len(block) - text:
        return -1
    return at


@lru_cache(maxsize=1024)
def _decode_origin(encoded: bytes) -> str:
    return encoded.decode()
