"""SUBSCRIBE, SUBACK, UNSUBSCRIBE, UNSUBACK (sections 3.8 to 3.11)."""

from wire.errors import LocalProtocolError, RemoteProtocolError, WireError
from wire.packet_types import SUBACK, SUBSCRIBE, UNSUBACK, UNSUBSCRIBE
from wire.packets.packet import (
    Packet,
    check_packet_identifier,
    check_reason_code,
    encode_packet_identifier,
    frame,
)
from wire.primitives import Reader, encode_string, malformed
from wire.properties import decode_properties, encode_properties
from wire.reasons import PROTOCOL_ERROR
from wire.topics import check_topic_filter

NO_LOCAL = 0x04
RETAIN_AS_PUBLISHED = 0x08


class Subscribe(Packet):
    """`filters` is a list of (topic filter, options byte); the byte's lowest two bits are the maximum QoS."""

    TYPE = SUBSCRIBE
    __slots__ = FIELDS = ("packet_identifier", "filters", "properties")

    def __init__(self, packet_identifier: int, filters: list, properties: dict | None = None) -> None:
        self.packet_identifier = packet_identifier
        self.filters = filters
        self.properties = {} if properties is None else properties

    def encode(self) -> bytes:
        body = _encode_head(self)
        for topic_filter, options in self.filters:
            check_topic_filter(topic_filter)
            fault = _options_fault(topic_filter, options)
            if fault or options & 0xC0:
                raise LocalProtocolError(fault or f"subscription options 0x{options:02x} [MQTT-3.8.3-5]")
            body += encode_string(topic_filter) + bytes((options,))
        return frame(SUBSCRIBE << 4 | 2, body)

    @classmethod
    def decode(cls, flags: int, body: bytes) -> "Subscribe":
        reader = Reader(body)
        packet_identifier = check_packet_identifier(reader.u16())
        properties = decode_properties(reader, SUBSCRIBE)
        filters = []
        while not reader.at_end():
            topic_filter = _read_filter(reader)
            options = reader.byte()
            if options & 0xC0:
                raise malformed("subscription options have reserved bits set [MQTT-3.8.3-5]")
            fault = _options_fault(topic_filter, options)
            if fault:
                raise RemoteProtocolError(PROTOCOL_ERROR, fault)
            filters.append((topic_filter, options))
        if not filters:
            raise RemoteProtocolError(PROTOCOL_ERROR, "a SUBSCRIBE has no filter [MQTT-3.8.3-2]")
        return cls(packet_identifier, filters, properties)


class Unsubscribe(Packet):
    """`filters` is a list of topic filters."""

    TYPE = UNSUBSCRIBE
    __slots__ = FIELDS = ("packet_identifier", "filters", "properties")

    def __init__(self, packet_identifier: int, filters: list, properties: dict | None = None) -> None:
        self.packet_identifier = packet_identifier
        self.filters = filters
        self.properties = {} if properties is None else properties

    def encode(self) -> bytes:
        body = _encode_head(self)
        for topic_filter in self.filters:
            check_topic_filter(topic_filter)
            body += encode_string(topic_filter)
        return frame(UNSUBSCRIBE << 4 | 2, body)

    @classmethod
    def decode(cls, flags: int, body: bytes) -> "Unsubscribe":
        reader = Reader(body)
        packet_identifier = check_packet_identifier(reader.u16())
        properties = decode_properties(reader, UNSUBSCRIBE)
        filters = []
        while not reader.at_end():
            filters.append(_read_filter(reader))
        if not filters:
            raise RemoteProtocolError(PROTOCOL_ERROR, "an UNSUBSCRIBE has no filter [MQTT-3.10.3-2]")
        return cls(packet_identifier, filters, properties)


class RequestAcknowledgement(Packet):
    """What SUBACK and UNSUBACK share: one reason code for each filter asked for, in order."""

    ALLOWED = b""
    __slots__ = FIELDS = ("packet_identifier", "reason_codes", "properties")

    def __init__(self, packet_identifier: int, reason_codes: list, properties: dict | None = None) -> None:
        self.packet_identifier = packet_identifier
        self.reason_codes = reason_codes
        self.properties = {} if properties is None else properties

    def encode(self) -> bytes:
        head = encode_packet_identifier(self.packet_identifier) + encode_properties(self.properties, self.TYPE)
        return frame(self.TYPE << 4, head + bytes(self.reason_codes))

    @classmethod
    def decode(cls, flags: int, body: bytes):
        reader = Reader(body)
        packet_identifier = check_packet_identifier(reader.u16())
        properties = decode_properties(reader, cls.TYPE)
        reason_codes = list(body[reader.offset :])
        for reason_code in reason_codes:
            check_reason_code(reason_code, cls.ALLOWED, cls.__name__.upper())
        if not reason_codes:
            raise RemoteProtocolError(PROTOCOL_ERROR, f"a {cls.__name__.upper()} has no reason code")
        return cls(packet_identifier, reason_codes, properties)


class Suback(RequestAcknowledgement):
    TYPE = SUBACK
    ALLOWED = b"\x00\x01\x02\x80\x83\x87\x8f\x91\x97\x9e\xa1\xa2"
    __slots__ = ()


class Unsuback(RequestAcknowledgement):
    TYPE = UNSUBACK
    ALLOWED = b"\x00\x11\x80\x83\x87\x8f\x91"
    __slots__ = ()


def _encode_head(packet: Subscribe | Unsubscribe) -> bytes:
    if not packet.filters:
        raise LocalProtocolError("no topic filter [MQTT-3.8.3-2, MQTT-3.10.3-2]")
    identifier = encode_packet_identifier(packet.packet_identifier)
    return identifier + encode_properties(packet.properties, packet.TYPE)


def _read_filter(reader: Reader) -> str:
    topic_filter = reader.string()
    try:
        check_topic_filter(topic_filter)
    except WireError as error:
        raise malformed(str(error))
    return topic_filter


def _options_fault(topic_filter: str, options: int) -> str | None:
    if options & 3 == 3:
        return f"{topic_filter!r} asks for QoS 3 [section 3.8.3.1]"
    if options & 0x30 == 0x30:
        return f"{topic_filter!r} asks for retain handling 3 [section 3.8.3.1]"
    if options & NO_LOCAL and topic_filter.startswith("$share/"):
        return f"{topic_filter!r} asks a shared subscription for no local [MQTT-3.8.3-4]"
    return None
