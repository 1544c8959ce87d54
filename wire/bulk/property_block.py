"""The properties of a PUBLISH as bytes: the part that many messages have in common is decoded once.

::

    block = common part, then perhaps the hf-id property with the identity of this one message
          / common part, then the trail of this one message: hf-hops, hf-id, hf-received and hf-via of its routes
"""

import re
import sys
from collections.abc import Container, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from wire.errors import RemoteProtocolError
from wire.hops import HOPS_PROPERTY
from wire.identity import (
    IDENTITY_PROPERTY,
    NAME_BYTES_MAX,
    RECEIVED_PROPERTY,
    SEQ_MAX,
    encode_identity,
    encode_received,
)
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
from wire.route_numbers import VIA_PROPERTY, encode_via

SIZE_MAX = 512  # bytes of an ordinary block; a longer one is rare, and remembering many costs memory
PAIR_OVERHEAD = 160  # bytes of memory of a user property besides its text, roughly: it may be five bytes in a packet
COMMON_REMEMBERED = 4096

_IDENTITY_HEAD = bytes((USER_PROPERTY,)) + encode_string(IDENTITY_PROPERTY)
_RECEIVED_HEAD = bytes((USER_PROPERTY,)) + encode_string(RECEIVED_PROPERTY)
_VIA_HEAD = bytes((USER_PROPERTY,)) + encode_string(VIA_PROPERTY)
_HOPS_HEAD = bytes((USER_PROPERTY,)) + encode_string(HOPS_PROPERTY)
_TEXT_AT = len(_IDENTITY_HEAD) + 2
_OUR_NAMES = (IDENTITY_PROPERTY, RECEIVED_PROPERTY, HOPS_PROPERTY, VIA_PROPERTY, STREAM_PROPERTY)
_IDENTITY = re.compile(rb"([0-9a-f]{8})/([1-9][0-9]{0,17})/([ -~]+)")
_HOP = re.compile(rb"[0-9a-f]{8}")
_RECEIVED = re.compile(rb"(0|[1-9][0-9]{0,17})/([ -~]{1,%d})" % NAME_BYTES_MAX)
_VIA = re.compile(rb"[0-9a-f]{8}/[0-9][0-9,-]*/([ -$&-.0-~]+)/[ -~]+")  # a gateway's name without / and %
_HOPS_NAME, _VIA_NAME = HOPS_PROPERTY.encode(), VIA_PROPERTY.encode()
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


class Trail(NamedTuple):
    """What routes have added to one message, as bytes but for the time.

    ``received_ms`` and ``received_by`` are the provenance. ``pairs`` are the user properties `hf-hops` and `hf-via` in
    their order, which travel on. ``gateways`` are the names in the route numbers.
    """

    identity: EncodedIdentity
    received_ms: int
    received_by: bytes
    pairs: tuple[tuple[bytes, bytes], ...]
    gateways: tuple[bytes, ...]

    @property
    def size(self) -> int:
        """About how many bytes of memory the pairs take, as `memory_size` counts them."""
        return sum([len(name) + len(value) + PAIR_OVERHEAD for name, value in self.pairs])

    def add_to(self, properties: dict[int, Any]) -> dict[int, Any]:
        """Returns properties with the pairs behind their user properties."""
        pairs = [(name.decode(), value.decode()) for name, value in self.pairs]
        return {**properties, USER_PROPERTY: [*properties.get(USER_PROPERTY, ()), *pairs]}


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


COLUMN_BATCH = "application/vnd.holdfast.batch"
"""The content type of a column batch."""
GATEWAY_MARK = b"\0"
"""Before the name of a gateway among `origins`: to bring the messages of an origin is not to vouch for a gateway."""
_COLUMN_BATCH = COLUMN_BATCH.encode()


def check_block(block: bytes, origins: Container[bytes]) -> tuple[Common | None, EncodedIdentity | None, int]:
    """Returns the common part of an ordinary block, the identity that the block brings, None without one, and the
    `memory_size` of all properties that travel on.

    The common part is None for a block that is not ordinary, not well-formed, or that of a column batch. So it is if
    the block names an origin that is not among `origins`, or a gateway that is not there behind GATEWAY_MARK.
    """
    if _COLUMN_BATCH in block:
        return None, None, 0
    at = block.find(_HOPS_HEAD)
    if at >= 0:
        return _check_trail(block, at, origins)
    if len(block) > SIZE_MAX:
        return None, None, 0
    at = _find_identity(block)
    if at < 0:
        common, identity = decode_common(block), None
    else:
        found = _IDENTITY.fullmatch(block, at + _TEXT_AT)
        if found is None:
            return None, None, 0
        epoch, seq, origin = found.groups()
        common, identity = decode_common(block[:at]) if origin in origins else None, (epoch, seq, origin)
    return common, identity, common.size if common else 0


def read_block(block: bytes) -> tuple[Common, Identity | None, Trail | None]:
    """Returns the common part, the identity and the trail of a block that `check_block` has found ordinary."""
    at = block.find(_HOPS_HEAD)
    trail = _read_trail(block, at) if at >= 0 else None
    own, encoded = (block[:at], trail.identity) if trail else _split_identified(block)
    common = decode_common(own)
    assert common is not None
    return common, _decode_identity(encoded) if encoded else None, trail


def split_block(block: bytes) -> tuple[bytes, Identity | None]:
    """Returns the properties that travel on, as bytes, and the identity of such a block."""
    at = block.find(_HOPS_HEAD)
    if at < 0:
        own, encoded = _split_identified(block)
    else:
        trail = _read_trail(block, at)
        assert trail is not None
        own, encoded = block[:at] + b"".join(map(_encode_pair, trail.pairs)), trail.identity
    return own, _decode_identity(encoded) if encoded else None


def brings_trails(packets: bytes) -> bool:
    """Whether some of the PUBLISHes with ordinary blocks may have trails; none has if the result is False."""
    return _HOPS_HEAD in packets


def marker_of(hop: str) -> bytes:
    """Returns the bytes that the trail of a message has which the gateway of a hop has handed on."""
    return _HOPS_HEAD + encode_string(hop)


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
        properties: the properties that travel with the message.
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
    """Returns the same with identity and provenance, and behind them the route number.

    Args:
        properties: the properties that travel with the message.
        origin, epoch, seq: the identity; none is written where the origin is empty.
        received_ms, received_by: the provenance.
        alias: the topic alias, 0 for none.
        hop: the hop that a route adds, empty for none; it comes before the identity.
        via: the property with the route number, empty for none.
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
        epoch: the epoch of the route's numbering.
        numbers: the messages' route numbers, from 1 on.
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
    """Returns what comes before a number in the property `hf-via`, by its count of digits, and what comes behind it."""
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


def _check_trail(block: bytes, at: int, origins: Container[bytes]) -> tuple[Common | None, EncodedIdentity | None, int]:
    trail = _read_trail(block, at) if at <= SIZE_MAX and len(block) - at <= SIZE_MAX else None
    if trail is None or trail.identity[2] not in origins:
        return None, None, 0
    if not all(GATEWAY_MARK + name in origins for name in (trail.received_by, *trail.gateways)):
        return None, None, 0
    common = decode_common(block[:at])
    return common, trail.identity, common.size + trail.size if common else 0


def _read_trail(block: bytes, at: int) -> Trail | None:
    """Returns the trail that begins at a place, None if what is there is anything else than routes write."""
    identity_at = block.find(_IDENTITY_HEAD, at)
    text, end = _text_behind(block, identity_at + len(_IDENTITY_HEAD))
    identity = _IDENTITY.fullmatch(block, text, end)
    if identity_at < 0 or identity is None or not block.startswith(_RECEIVED_HEAD, end):
        return None
    text, end = _text_behind(block, end + len(_RECEIVED_HEAD))
    received = _RECEIVED.fullmatch(block, text, end)
    earlier, own = _read_earlier_pairs(block[at:identity_at]), _read_pairs(block[end:])
    if received is None or end > len(block) or earlier is None or own is None:
        return None
    epoch, seq, origin = identity.groups()
    return Trail((epoch, seq, origin), int(received[1]), received[2], earlier[0] + own[0], earlier[1] + own[1])


def _read_pairs(part: bytes) -> tuple[tuple[tuple[bytes, bytes], ...], tuple[bytes, ...]] | None:
    """Returns the pairs of a trail and the gateways that they name, None if something else is among them."""
    pairs: list[tuple[bytes, bytes]] = []
    gateways: list[bytes] = []
    at = 0
    while at < len(part):
        name = _VIA_NAME if part.startswith(_VIA_HEAD, at) else _HOPS_NAME
        head = _VIA_HEAD if name is _VIA_NAME else _HOPS_HEAD
        text, end = _text_behind(part, at + len(head))
        found = (_VIA if name is _VIA_NAME else _HOP).fullmatch(part, text, end)
        if found is None or end > len(part) or not part.startswith(head, at):
            return None
        pairs.append((name, found[0]))
        if name is _VIA_NAME:
            gateways.append(found[1])
        at = end
    return tuple(pairs), tuple(gateways)


_read_earlier_pairs = lru_cache(maxsize=1024)(_read_pairs)  # before the identity one hop alone is the usual


def _text_behind(block: bytes, at: int) -> tuple[int, int]:
    """Returns where a text begins and ends whose length stands at a place."""
    return at + 2, at + 2 + int.from_bytes(block[at : at + 2], "big")


def _encode_pair(pair: tuple[bytes, bytes]) -> bytes:
    name, value = pair
    return b"%c%b%b%b%b" % (USER_PROPERTY, len(name).to_bytes(2, "big"), name, len(value).to_bytes(2, "big"), value)


def _split_identified(block: bytes) -> tuple[bytes, EncodedIdentity | None]:
    at = _find_identity(block)
    if at < 0:
        return block, None
    found = _IDENTITY.fullmatch(block, at + _TEXT_AT)
    assert found is not None
    epoch, seq, origin = found.groups()
    return block[:at], (epoch, seq, origin)


def _decode_identity(encoded: EncodedIdentity) -> Identity:
    epoch, seq, origin = encoded
    return _decode_origin(origin), int(epoch, 16), int(seq)


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
