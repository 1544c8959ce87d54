"""The properties of a PUBLISH as bytes: the part that many messages have in common is decoded once.

::

    block = common part, then perhaps the hf-id property with the identity of this one message
"""

import re
import sys
from collections.abc import Container, Sequence
from functools import lru_cache
from typing import Any

from wire.errors import RemoteProtocolError
from wire.hops import HOPS_PROPERTY
from wire.identity import IDENTITY_PROPERTY, RECEIVED_PROPERTY, SEQ_MAX, encode_identity, encode_received
from wire.link_numbers import VIA_PROPERTY, encode_via
from wire.packet_types import PUBLISH
from wire.primitives import Reader, decode_varint, encode_string, encode_varint
from wire.properties import (
    CONTENT_TYPE,
    CORRELATION_DATA,
    MESSAGE_EXPIRY_INTERVAL,
    TOPIC_ALIAS,
    USER_PROPERTY,
    decode_properties,
    encode_properties,
)
from wire.reserved import STREAM_PROPERTY

SIZE_MAX = 512  # bytes of an ordinary block; a longer one is rare, and remembering many costs memory
PAIR_OVERHEAD = 160  # bytes of memory of a user property besides its text, roughly: it may be five bytes in a packet
COMMON_REMEMBERED = 4096

_IDENTITY_HEAD = bytes((USER_PROPERTY,)) + encode_string(IDENTITY_PROPERTY)
_RECEIVED_HEAD = bytes((USER_PROPERTY,)) + encode_string(RECEIVED_PROPERTY)
_VIA_HEAD = bytes((USER_PROPERTY,)) + encode_string(VIA_PROPERTY)
_STREAM_HEAD = bytes((USER_PROPERTY,)) + encode_string(STREAM_PROPERTY)
_TEXT_AT = len(_IDENTITY_HEAD) + 2
_OUR_NAMES = (IDENTITY_PROPERTY, RECEIVED_PROPERTY, HOPS_PROPERTY)
_IDENTITY = re.compile(rb"([0-9a-f]{8})/([1-9][0-9]{0,17})/([ -~]+)")
_ORDINARY = {CONTENT_TYPE, CORRELATION_DATA, MESSAGE_EXPIRY_INTERVAL, USER_PROPERTY}
"""A message with these properties alone needs no check and leaves no state behind."""

Identity = tuple[str, int, int]
"""(origin, epoch, seq)."""
EncodedIdentity = tuple[bytes, bytes, bytes]
"""Epoch, seq and origin of an identity, in the bytes in which it came."""


class Common:
    """The common part, decoded: properties, their `memory_size`, and the Message Expiry Interval in ms (0: none)."""

    __slots__ = ("expiry_ms", "properties", "size")

    def __init__(self, properties: dict[int, Any]) -> None:
        self.properties = properties
        self.size = memory_size(properties)
        self.expiry_ms: int = 1000 * properties.get(MESSAGE_EXPIRY_INTERVAL, 0)


def memory_size(properties: dict[int, Any]) -> int:
    """Returns about how many bytes of memory the values of properties take."""
    return sum(map(_size_of, properties.values()))


def find_block(buffer: bytes, at: int) -> tuple[int, int]:
    """Returns where the block begins and ends whose length stands at `at`.

    The end is sys.maxsize where the length has more than two digits. Raises IndexError where the buffer ends before.
    """
    length = buffer[at]
    if length < 0x80:
        return at + 1, at + 1 + length
    more = buffer[at + 1]
    if not 0 < more < 0x80:
        return at + 2, sys.maxsize
    return at + 2, at + 2 + (length & 0x7F | more << 7)


def check_block(block: bytes, origins: Container[bytes]) -> tuple[Common | None, EncodedIdentity | None]:
    """Returns the common part of an ordinary block, and the identity that the block brings, None without one.

    The common part is None for a block that is not ordinary, not well-formed, or brings an identity of an origin that
    is none of `origins`.
    """
    if len(block) > SIZE_MAX or _VIA_HEAD in block or _STREAM_HEAD in block:  # these depend on client and stream
        return None, None
    at = _find_identity(block)
    if at < 0:
        return decode_common(block), None
    found = _IDENTITY.fullmatch(block, at + _TEXT_AT)
    if found is None:
        return None, None
    epoch, seq, origin = found.groups()
    return (decode_common(block[:at]) if origin in origins else None), (epoch, seq, origin)


def read_block(block: bytes) -> tuple[Common, Identity | None]:
    """Returns the common part and the identity of a block that `check_block` has found ordinary."""
    own, identity = split_block(block)
    common = decode_common(own)
    assert common is not None
    return common, identity


def split_block(block: bytes) -> tuple[bytes, Identity | None]:
    """Returns the same with the common part as bytes."""
    at = _find_identity(block)
    if at < 0:
        return block, None
    found = _IDENTITY.fullmatch(block, at + _TEXT_AT)
    assert found is not None
    epoch, seq, origin = found.groups()
    return block[:at], (_decode_origin(origin), int(epoch, 16), int(seq))


@lru_cache(maxsize=COMMON_REMEMBERED)
def decode_common(block: bytes) -> Common | None:
    """Returns a common part decoded, None where a message with it has to be read by itself."""
    try:
        properties = decode_properties(Reader(encode_varint(len(block)) + block), PUBLISH)
    except RemoteProtocolError:
        return None
    if not properties.keys() <= _ORDINARY or properties.get(MESSAGE_EXPIRY_INTERVAL) == 0:
        return None
    if any(name in _OUR_NAMES for name, _ in properties.get(USER_PROPERTY, ())):
        return None
    return Common(dict(sorted(properties.items())))


def encode_block(properties: dict[int, Any], alias: int = 0) -> bytes:
    """Returns the properties of a PUBLISH with their length.

    Args:
        properties: those that travel with the message.
        alias: the topic alias, 0 for none.
    """
    block = encode_contents(properties, alias)
    return encode_length(len(block)) + block


def encode_identified_block(
    properties: dict[int, Any],
    origin: str,
    epoch: int,
    seq: int,
    received_ms: int,
    received_by: str,
    alias: int = 0,
    hop: str = "",
    via: bytes = b"",
) -> bytes:
    """Returns the same with identity and provenance, and behind them the number of the link.

    Args:
        properties: those that travel with the message.
        origin, epoch, seq: the identity; none is written where the origin is empty.
        received_ms, received_by: the provenance.
        alias: the topic alias, 0 for none.
        hop: the hop that a route adds, empty for none; it comes before the identity.
        via: the property with the number of the link, empty for none.
    """
    block = encode_contents(properties, alias) if properties or alias else b""
    if hop:
        block += _encode_hop(hop)
    if origin:
        before, behind = _split_identity(origin, epoch)
        text = b"%b%d%b" % (before, seq, behind)
        block += _IDENTITY_HEAD + len(text).to_bytes(2, "big") + text
    block += _encode_received(received_ms, received_by) + via
    return encode_length(len(block)) + block


def split_identified_contents(
    contents: bytes, origin: str, epoch: int, seq_size: int, received_ms: int, received_by: str, hop: str = ""
) -> tuple[bytes, bytes]:
    """Returns what comes before and behind the number of the identity in such a block, without its length.

    Args:
        contents: the properties that travel with the message.
        origin, epoch: the identity.
        seq_size: how many digits its number has.
        received_ms, received_by, hop: as in `encode_identified_block`.
    """
    before, behind = _split_identity(origin, epoch)
    size = len(before) + seq_size + len(behind)
    head = contents + (_encode_hop(hop) if hop else b"") + _IDENTITY_HEAD
    return head + size.to_bytes(2, "big") + before, behind + _encode_received(received_ms, received_by)


def encode_via_property(text: str) -> bytes:
    """Returns the property `hf-via` with this value."""
    return _VIA_HEAD + encode_string(text)


def encode_vias(epoch: int, numbers: Sequence[int], gateway: str, route: str) -> list[bytes]:
    """Returns the property `hf-via` of each message.

    Args:
        epoch: that of the route's numbering.
        numbers: the messages' numbers of the link, from 1 on.
        gateway, route: their names.
    """
    heads, behind = split_via(epoch, gateway, route)
    digits = len(str(numbers[0]))
    if digits == len(str(numbers[-1])) and min(numbers) == numbers[0] and max(numbers) == numbers[-1]:
        head = heads[digits]
        return [b"%b%d%b" % (head, number, behind) for number in numbers]
    return [b"%b%d%b" % (heads[len(str(number))], number, behind) for number in numbers]


encode_length = lru_cache(maxsize=1024)(encode_varint)  # most PUBLISHes have one of a few lengths


def encode_contents(properties: dict[int, Any], alias: int = 0) -> bytes:
    """Returns the properties of a PUBLISH without their length; see `encode_block`."""
    own = b""
    if properties:
        encoded = encode_properties(properties, PUBLISH)
        own = encoded[decode_varint(encoded, 0)[1] :]
    return _encode_alias(alias) + own if alias else own


@lru_cache(maxsize=64)
def _encode_alias(alias: int) -> bytes:
    return bytes((TOPIC_ALIAS, alias >> 8, alias & 0xFF))


@lru_cache(maxsize=1024)
def _split_identity(origin: str, epoch: int) -> tuple[bytes, bytes]:
    """Returns what comes before and behind the number in the identities of one store."""
    before, _, behind = encode_identity(origin, epoch, SEQ_MAX).partition(str(SEQ_MAX))
    return before.encode(), behind.encode()


@lru_cache(maxsize=64)
def split_via(epoch: int, gateway: str, route: str) -> tuple[list[bytes], bytes]:
    """Returns what comes before a number with so many digits in the property `hf-via`, and what comes behind it."""
    before, _, behind = encode_via(epoch, [(SEQ_MAX, SEQ_MAX)], gateway, route).encode().partition(b"%d" % SEQ_MAX)
    size = len(before) + len(behind)
    digits = range(len(str(SEQ_MAX)) + 1)
    return [_VIA_HEAD + (size + more).to_bytes(2, "big") + before for more in digits], behind


@lru_cache(maxsize=8)
def _encode_hop(hop: str) -> bytes:
    return bytes((USER_PROPERTY,)) + encode_string(HOPS_PROPERTY) + encode_string(hop)


@lru_cache(maxsize=64)
def _encode_received(received_ms: int, received_by: str) -> bytes:
    return _RECEIVED_HEAD + encode_string(encode_received(received_ms, received_by))


def _size_of(value: Any) -> int:
    if isinstance(value, list):
        return sum(len(name) + len(text) + PAIR_OVERHEAD for name, text in value)
    return len(value) if isinstance(value, str | bytes) else 0


def _find_identity(block: bytes) -> int:
    """Returns where the identity's property begins if the block ends with one, otherwise -1."""
    at = block.rfind(_IDENTITY_HEAD)
    text = at + _TEXT_AT
    if at < 0 or text > len(block) or block[text - 2] << 8 | block[text - 1] != len(block) - text:
        return -1
    return at


@lru_cache(maxsize=1024)
def _decode_origin(encoded: bytes) -> str:
    return encoded.decode()
