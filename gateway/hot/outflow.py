"""PUBLISHes to subscribers, joined from what they all have in common and the packet identifiers, which differ."""

from collections.abc import Sequence
from functools import lru_cache
from itertools import chain

from gateway.message import Message, publish_properties
from gateway.store.cursor import Delivery
from wire.codec.packet import write_properties
from wire.packet_types import PUBLISH
from wire.packets import MQTT_5
from wire.primitives import encode_string, encode_varint

FIRST_BYTE = b"\x32"  # a PUBLISH of QoS 1
IDENTIFIER_SIZE = 2

_encode_topic = lru_cache(maxsize=4096)(encode_string)


def is_plain(delivery: Delivery) -> bool:
    """Whether it looks the same to everybody who gets it: at QoS 1, for the first time, as an ordinary message."""
    _, _, message, dup, qos, retain, identifiers = delivery
    return qos == 1 and not (dup or retain or identifiers or message.retain or message.expires_ms)


def encode_publishes(messages: Sequence[Message], identifiers: Sequence[int], level: int) -> tuple[bytes, int]:
    """Returns the QoS 1 PUBLISHes of plain messages, and the length of the longest."""
    halves = [(message.halves or {}).get(level) or split(message, level) for message in messages]
    longest = max(len(head) + len(tail) for head, tail in halves) + 2
    parts = ((head, number.to_bytes(2, "big"), tail) for (head, tail), number in zip(halves, identifiers, strict=True))
    return b"".join(chain.from_iterable(parts)), longest


def split(message: Message, level: int) -> tuple[bytes, bytes]:
    """Returns what is before and behind the packet identifier in a message's PUBLISH; the message remembers it."""
    topic = _encode_topic(message.topic)
    properties = write_properties(publish_properties(message), PUBLISH, level) if level == MQTT_5 else b""
    length = encode_varint(len(topic) + IDENTIFIER_SIZE + len(properties) + len(message.payload))
    halves = FIRST_BYTE + length + topic, properties + message.payload
    message.halves = {**message.halves, level: halves} if message.halves else {level: halves}
    return halves
