"""PUBLISHes to subscribers, joined from what they all have in common and the packet identifiers, which differ."""

from collections.abc import Sequence
from functools import lru_cache
from struct import pack

from gateway.message import Message, form
from gateway.store.delivery import Delivery
from gateway.topic_memory import NAME_SIZE_MAX
from wire.identity import IDENTITY_PROPERTY, RECEIVED_PROPERTY, encode_identity, encode_received
from wire.packet_types import PUBLISH
from wire.packets import MQTT_5
from wire.primitives import decode_varint, encode_string, encode_varint
from wire.properties import USER_PROPERTY, encode_properties

FIRST_BYTES = {1: b"\x32", 2: b"\x34"}  # of a PUBLISH, by its QoS
IDENTIFIER_SIZE = 2
NO_PROPERTIES = b"\0"
IDENTITY_HEAD = bytes((USER_PROPERTY,)) + encode_string(IDENTITY_PROPERTY)
RECEIVED_HEAD = bytes((USER_PROPERTY,)) + encode_string(RECEIVED_PROPERTY)

_encode_topic = lru_cache(maxsize=4096)(encode_string)


def is_plain(wanted_qos: int, delivery: Delivery) -> bool:
    """Whether it looks the same to all who get it at this QoS, 1 or 2: for the first time, as an ordinary message."""
    _, _, message, dup, qos, retain, identifiers = delivery
    return qos == wanted_qos > 0 and not (dup or retain or identifiers or message.retain or message.expires_ms)


def encode_publishes(
    messages: Sequence[Message], identifiers: Sequence[int], level: int, qos: int, has_identity: bool
) -> tuple[bytes, int]:
    """Returns the PUBLISHes of plain messages at QoS 1 or 2, and a length that none is longer than."""
    form_here = form(level, qos, has_identity)
    halves = [(message.halves or {}).get(form_here) or split(message, level, qos, has_identity) for message in messages]
    heads, tails = zip(*halves, strict=True)
    numbers = pack(f">{len(identifiers)}H", *identifiers)
    parts: list[bytes] = [b""] * (3 * len(halves))
    parts[0::3] = heads
    parts[1::3] = [numbers[at : at + 2] for at in range(0, len(numbers), 2)]
    parts[2::3] = tails
    return b"".join(parts), max(map(len, heads)) + IDENTIFIER_SIZE + max(map(len, tails))


def split(message: Message, level: int, qos: int, has_identity: bool) -> tuple[bytes, bytes]:
    """Returns what is before and behind the packet identifier in a message's PUBLISH; the message remembers it."""
    encode_topic = _encode_topic if len(message.topic) <= NAME_SIZE_MAX else encode_string
    topic = encode_topic(message.topic)
    properties = _encode_properties(message, has_identity) if level == MQTT_5 else b""
    length = encode_varint(len(topic) + IDENTIFIER_SIZE + len(properties) + len(message.payload))
    halves = FIRST_BYTES[qos] + length + topic, properties + message.payload
    message.halves = {**(message.halves or {}), form(level, qos, has_identity): halves}
    return halves


def _encode_properties(message: Message, has_identity: bool) -> bytes:
    """The same as `plain_properties` or `identity_properties` encoded: identity and provenance come last of all."""
    encoded = encode_properties(message.properties, PUBLISH) if message.properties else NO_PROPERTIES
    if not has_identity:
        return encoded
    own = encoded[decode_varint(encoded, 0)[1] :]
    if message.origin:
        identity = encode_identity(message.origin, message.epoch, message.seq)
        own += IDENTITY_HEAD + encode_string(identity)
    own += _encode_received(message.received_ms, message.received_by)
    return encode_varint(len(own)) + own


@lru_cache(maxsize=64)
def _encode_received(unix_ms: int, gateway_name: str) -> bytes:
    return RECEIVED_HEAD + encode_string(encode_received(unix_ms, gateway_name))
