"""The packets that answer a PUBLISH and end its flow: PUBACK, PUBREC, PUBREL, PUBCOMP (sections 3.4 to 3.7)."""

from wire.codec import (
    MQTT_5,
    Packet,
    check_packet_identifier,
    decode_reason,
    encode_packet_identifier,
    encode_reason,
    frame,
)
from wire.packet_types import PUBACK, PUBCOMP, PUBREC, PUBREL
from wire.primitives import Reader
from wire.reasons import SUCCESS


class Acknowledgement(Packet):
    """The base class of the four; `ALLOWED` has the reason codes of the packet's table in the standard."""

    FLAGS = 0
    ALLOWED = b"\x00\x10\x80\x83\x87\x90\x91\x97\x99"
    __slots__ = FIELDS = ("packet_identifier", "reason_code", "properties")

    def __init__(self, packet_identifier: int, reason_code: int = SUCCESS, properties: dict | None = None) -> None:
        self.packet_identifier = packet_identifier
        self.reason_code = reason_code
        self.properties = {} if properties is None else properties

    def encode(self, level: int = MQTT_5) -> bytes:
        body = encode_packet_identifier(self.packet_identifier) + encode_reason(self, level)
        return frame(self.TYPE << 4 | self.FLAGS, body)

    @classmethod
    def decode(cls, flags: int, body: bytes, level: int):
        reader = Reader(body)
        packet_identifier = check_packet_identifier(reader.u16())
        reason_code, properties = decode_reason(reader, cls, level)
        return cls(packet_identifier, reason_code, properties)


class Puback(Acknowledgement):
    TYPE = PUBACK
    __slots__ = ()


class Pubrec(Acknowledgement):
    TYPE = PUBREC
    __slots__ = ()


class Pubrel(Acknowledgement):
    TYPE = PUBREL
    FLAGS = 2  # a repeated PUBREL has the same flags, without DUP [MQTT-3.6.1-1]
    ALLOWED = b"\x00\x92"
    __slots__ = ()


class Pubcomp(Acknowledgement):
    TYPE = PUBCOMP
    ALLOWED = b"\x00\x92"
    __slots__ = ()
