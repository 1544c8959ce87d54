"""PUBLISH (section 3.3) and its acknowledgements PUBACK, PUBREC, PUBREL, PUBCOMP (sections 3.4 to 3.7)."""

from wire.errors import LocalProtocolError, RemoteProtocolError
from wire.packet_types import PUBACK, PUBCOMP, PUBLISH, PUBREC, PUBREL
from wire.packets.packet import (
    Packet,
    check_packet_identifier,
    check_reason_code,
    encode_packet_identifier,
    frame,
)
from wire.primitives import Reader, encode_string, malformed
from wire.properties import TOPIC_ALIAS, decode_properties, encode_properties
from wire.reasons import PROTOCOL_ERROR, SUCCESS


class Publish(Packet):
    """`packet_identifier` is None at QoS 0."""

    TYPE = PUBLISH
    __slots__ = FIELDS = ("topic", "payload", "qos", "retain", "dup", "packet_identifier", "properties")

    def __init__(
        self,
        topic: str,
        payload: bytes,
        qos: int = 0,
        retain: bool = False,
        dup: bool = False,
        packet_identifier: int | None = None,
        properties: dict | None = None,
    ) -> None:
        self.topic = topic
        self.payload = payload
        self.qos = qos
        self.retain = retain
        self.dup = dup
        self.packet_identifier = packet_identifier
        self.properties = {} if properties is None else properties

    def encode(self) -> bytes:
        first_byte = PUBLISH << 4 | self.qos << 1
        if self.qos:
            if self.qos > 2:
                raise LocalProtocolError(f"QoS {self.qos} [MQTT-3.3.1-4]")
            identifier = encode_packet_identifier(self.packet_identifier)
        elif self.dup or self.packet_identifier is not None:
            text = "a QoS 0 PUBLISH has neither DUP nor packet identifier [MQTT-3.3.1-2, MQTT-2.2.1-2]"
            raise LocalProtocolError(text)
        else:
            identifier = b""
        if self.dup:
            first_byte |= 8
        if self.retain:
            first_byte |= 1
        properties = encode_properties(self.properties, PUBLISH)
        return frame(first_byte, b"".join((encode_string(self.topic), identifier, properties, self.payload)))

    @classmethod
    def decode(cls, flags: int, body: bytes) -> "Publish":
        qos = flags >> 1 & 3
        if qos == 3:
            raise malformed("a PUBLISH has QoS 3 [MQTT-3.3.1-4]")
        dup = flags & 8 != 0
        if dup and qos == 0:
            raise malformed("a QoS 0 PUBLISH has DUP [MQTT-3.3.1-2]")
        reader = Reader(body)
        topic = reader.string()
        if "+" in topic or "#" in topic:
            raise malformed(f"topic name {topic!r} holds a wildcard [MQTT-3.3.2-2]")
        packet_identifier = check_packet_identifier(reader.u16()) if qos else None
        properties = decode_properties(reader, PUBLISH)
        if not topic and TOPIC_ALIAS not in properties:
            raise RemoteProtocolError(PROTOCOL_ERROR, "a PUBLISH has neither topic name nor topic alias")
        payload = body[reader.offset :]
        return cls(topic, payload, qos, flags & 1 != 0, dup, packet_identifier, properties)


class Acknowledgement(Packet):
    """What PUBACK, PUBREC, PUBREL and PUBCOMP share; `ALLOWED` are the reason codes of the packet's table."""

    FLAGS = 0
    ALLOWED = b"\x00\x10\x80\x83\x87\x90\x91\x97\x99"
    __slots__ = FIELDS = ("packet_identifier", "reason_code", "properties")

    def __init__(self, packet_identifier: int, reason_code: int = SUCCESS, properties: dict | None = None) -> None:
        self.packet_identifier = packet_identifier
        self.reason_code = reason_code
        self.properties = {} if properties is None else properties

    def encode(self) -> bytes:
        body = encode_packet_identifier(self.packet_identifier)
        if self.properties:
            body += bytes((self.reason_code,)) + encode_properties(self.properties, self.TYPE)
        elif self.reason_code != SUCCESS:
            body += bytes((self.reason_code,))
        return frame(self.TYPE << 4 | self.FLAGS, body)

    @classmethod
    def decode(cls, flags: int, body: bytes):
        reader = Reader(body)
        packet_identifier = check_packet_identifier(reader.u16())
        if reader.at_end():
            return cls(packet_identifier)
        reason_code = reader.byte()
        check_reason_code(reason_code, cls.ALLOWED, cls.__name__.upper())
        properties = None if reader.at_end() else decode_properties(reader, cls.TYPE)
        reader.finish()
        return cls(packet_identifier, reason_code, properties)


class Puback(Acknowledgement):
    TYPE = PUBACK
    __slots__ = ()


class Pubrec(Acknowledgement):
    TYPE = PUBREC
    __slots__ = ()


class Pubrel(Acknowledgement):
    TYPE = PUBREL
    FLAGS = 2
    ALLOWED = b"\x00\x92"
    __slots__ = ()


class Pubcomp(Acknowledgement):
    TYPE = PUBCOMP
    ALLOWED = b"\x00\x92"
    __slots__ = ()
