"""The packets of the broker's benchmarks, built before anything is timed."""

import functools
import hashlib
from typing import Any

from wire.codec.packets import MQTT_5, Connect, Publish
from wire.codec.subscribe import Subscribe
from wire.identity import IDENTITY_PROPERTY, encode_identity
from wire.properties import CONTENT_TYPE, SESSION_EXPIRY_INTERVAL, USER_PROPERTY

IDENTIFIERS = 32_000
"""How many packet identifiers a publisher uses in turn: far more than a window, so that each is free again."""
FIRST_SEQ = 1_000_000


@functools.cache  # all publishers send the same packets
def payload(number: int, size: int) -> bytes:
    """Returns a reading of ``size`` bytes, at least 40, with random hexadecimal digits, which compress badly."""
    text = f'{{"t":{1_700_000_000_000 + 977 * number},"v":{20 + number * 7919 % 10_007 / 1000:.3f},"u":"Cel","n":"'
    digits = hashlib.shake_128(number.to_bytes(4, "big")).hexdigest(size)
    return (text + digits).encode()[: size - 2] + b'"}'


def device_properties(client_id: str, number: int) -> dict[int, Any]:
    """Returns a name whose length is the same for all numbers."""
    identity = encode_identity(client_id, 0xA3F1, FIRST_SEQ + number)
    return {CONTENT_TYPE: "application/senml+cbor", USER_PROPERTY: [(IDENTITY_PROPERTY, identity)]}


def connect(client_id: str, level: int = MQTT_5, expiry_s: int = 0) -> bytes:
    """Returns a CONNECT; over MQTT 3.1.1 an expiry only decides whether the session outlives the connection."""
    properties = {SESSION_EXPIRY_INTERVAL: expiry_s} if expiry_s and level == MQTT_5 else {}
    return Connect(client_id, not expiry_s, properties=properties, protocol_level=level).encode(level)


def subscribe(*topic_filters: str, qos: int = 1, level: int = MQTT_5) -> bytes:
    return Subscribe(1, [(topic_filter, qos) for topic_filter in topic_filters]).encode(level)


class Publishes:
    """PUBLISHes of equal length, one for each packet identifier, all of them twice; at QoS 0 they have no identifier.
    Each payload has ``size`` bytes. With the client identifier of a ``device`` they have the properties of a device's
    messages."""

    def __init__(self, topic: str, qos: int, size: int, level: int = MQTT_5, device: str = "") -> None:
        packets = [
            Publish(
                topic,
                payload(number, size),
                qos,
                packet_identifier=number if qos else None,
                properties=device_properties(device, number) if device else None,
            ).encode(level)
            for number in range(1, IDENTIFIERS + 1)
        ]
        self.length = len(packets[0])
        self._packets = memoryview(b"".join(packets) * 2)
        identifiers = [number.to_bytes(2, "big") for number in range(1, IDENTIFIERS + 1)] * 2
        self._answers = {kind: answers(kind, identifiers) for kind in (0x40, 0x50, 0x70)}

    def cut(self, first: int, count: int) -> memoryview:
        """Returns the bytes of ``count`` PUBLISHes from index ``first`` on; the index may exceed the ring."""
        start = first % IDENTIFIERS * self.length
        return self._packets[start : start + count * self.length]

    def answers(self, kind: int, first: int, count: int) -> bytes:
        """Returns the bytes of their PUBACKs (0x40), PUBRECs (0x50) or PUBCOMPs (0x70), all with success."""
        start = first % IDENTIFIERS * 4
        return self._answers[kind][start : start + count * 4]


def answers(kind: int, identifiers: list[bytes]) -> bytes:
    head = bytes((kind, 2))
    return head + head.join(identifiers)
