"""SUBSCRIBE and UNSUBSCRIBE (sections 3.8 and 3.10), and how a client encodes them.

A server decodes them with `wire.codec.requests`.
"""

from wire.codec import MQTT_5, Packet, encode_packet_identifier, frame, write_properties
from wire.errors import LocalProtocolError
from wire.packet_types import SUBSCRIBE, UNSUBSCRIBE
from wire.primitives import encode_string
from wire.properties import (
    SHARED_SUBSCRIPTION_AVAILABLE,
    SUBSCRIPTION_IDENTIFIER,
    SUBSCRIPTION_IDENTIFIERS_AVAILABLE,
    WILDCARD_SUBSCRIPTION_AVAILABLE,
)
from wire.topics import check_topic_filter

NO_LOCAL = 0x04
RETAIN_AS_PUBLISHED = 0x08
RETAIN_IF_NEW = 0x10  # retained messages are sent only if the subscription is new
RETAIN_NEVER = 0x20


class Subscribe(Packet):
    """A SUBSCRIBE; `filters` is a list of (topic filter, options byte): the QoS, or'ed with the options above."""

    TYPE = SUBSCRIBE
    __slots__ = FIELDS = ("packet_identifier", "filters", "properties")

    def __init__(self, packet_identifier: int, filters: list, properties: dict | None = None) -> None:
        self.packet_identifier = packet_identifier
        self.filters = filters
        self.properties = {} if properties is None else properties

    def encode(self, level: int = MQTT_5) -> bytes:
        body = _encode_head(self, level)
        for topic_filter, options in self.filters:
            check_topic_filter(topic_filter)
            fault = options_fault(topic_filter, options)
            if fault or options & reserved_options(level):
                raise LocalProtocolError(fault or f"subscription options 0x{options:02x} [MQTT-3.8.3-5]")
            body += encode_string(topic_filter) + bytes((options,))
        return frame(SUBSCRIBE << 4 | 2, body)


class Unsubscribe(Packet):
    """An UNSUBSCRIBE; `filters` is a list of topic filters."""

    TYPE = UNSUBSCRIBE
    __slots__ = FIELDS = ("packet_identifier", "filters", "properties")

    def __init__(self, packet_identifier: int, filters: list, properties: dict | None = None) -> None:
        self.packet_identifier = packet_identifier
        self.filters = filters
        self.properties = {} if properties is None else properties

    def encode(self, level: int = MQTT_5) -> bytes:
        body = _encode_head(self, level)
        for topic_filter in self.filters:
            check_topic_filter(topic_filter)
            body += encode_string(topic_filter)
        return frame(UNSUBSCRIBE << 4 | 2, body)


def _encode_head(packet: Subscribe | Unsubscribe, level: int) -> bytes:
    if not packet.filters:
        raise LocalProtocolError("no topic filter [MQTT-3.8.3-2, MQTT-3.10.3-2]")
    identifier = encode_packet_identifier(packet.packet_identifier)
    return identifier + write_properties(packet.properties, packet.TYPE, level)


def not_granted(packet: Subscribe, granted: dict):
    """Returns what `granted`, the properties of a CONNACK, rules out: (the property, what the SUBSCRIBE asks for).

    None if they grant all of the SUBSCRIBE.
    """
    if SUBSCRIPTION_IDENTIFIER in packet.properties and not granted.get(SUBSCRIPTION_IDENTIFIERS_AVAILABLE, 1):
        return SUBSCRIPTION_IDENTIFIERS_AVAILABLE, "a subscription identifier"
    for topic_filter, _ in packet.filters:
        if topic_filter.startswith("$share/") and not granted.get(SHARED_SUBSCRIPTION_AVAILABLE, 1):
            return SHARED_SUBSCRIPTION_AVAILABLE, f"{topic_filter!r}"
        if ("+" in topic_filter or "#" in topic_filter) and not granted.get(WILDCARD_SUBSCRIPTION_AVAILABLE, 1):
            return WILDCARD_SUBSCRIPTION_AVAILABLE, f"{topic_filter!r}"
    return None


def reserved_options(level: int) -> int:
    """Returns the bits of an options byte that must be 0; over MQTT 3.1.1 the byte has only the QoS."""
    return 0xC0 if level == MQTT_5 else 0xFC


def options_fault(topic_filter: str, options: int) -> str | None:
    """Returns a text about the fault of these options; None if the standard allows them."""
    if options & 3 == 3:
        return f"{topic_filter!r} asks for QoS 3 [section 3.8.3.1]"
    if options & 0x30 == 0x30:
        return f"{topic_filter!r} asks for retain handling 3 [section 3.8.3.1]"
    if options & NO_LOCAL and topic_filter.startswith("$share/"):
        return f"{topic_filter!r} asks a shared subscription for no local [MQTT-3.8.3-4]"
    return None
