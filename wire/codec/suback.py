"""SUBACK and UNSUBACK (sections 3.9 and 3.11)."""

from wire.codec import (
    MQTT_5,
    Packet,
    check_packet_identifier,
    check_reason_code,
    encode_packet_identifier,
    frame,
    read_properties,
    write_properties,
)
from wire.errors import RemoteProtocolError
from wire.packet_types import SUBACK, UNSUBACK
from wire.primitives import Reader
from wire.reasons import PROTOCOL_ERROR, UNSPECIFIED_ERROR


class RequestAcknowledgement(Packet):
    """The base class of SUBACK and UNSUBACK, which have one reason code for each filter of the request, in order."""

    ALLOWED = b""
    __slots__ = FIELDS = ("packet_identifier", "reason_codes", "properties")

    def __init__(self, packet_identifier: int, reason_codes: list, properties: dict | None = None) -> None:
        self.packet_identifier = packet_identifier
        self.reason_codes = reason_codes
        self.properties = {} if properties is None else properties

    def encode(self, level: int = MQTT_5) -> bytes:
        head = encode_packet_identifier(self.packet_identifier) + write_properties(self.properties, self.TYPE, level)
        return frame(self.TYPE << 4, head + self._encode_codes(level))

    def _encode_codes(self, level: int) -> bytes:
        return bytes(self.reason_codes)

    @classmethod
    def decode(cls, flags: int, body: bytes, level: int):
        reader = Reader(body)
        packet_identifier = check_packet_identifier(reader.u16())
        properties = read_properties(reader, cls.TYPE, level)
        reason_codes = list(body[reader.offset :])
        for reason_code in reason_codes:
            check_reason_code(reason_code, cls.ALLOWED, cls.__name__.upper())
        if not reason_codes:
            raise RemoteProtocolError(PROTOCOL_ERROR, f"a {cls.__name__.upper()} has no reason code")
        return cls(packet_identifier, reason_codes, properties)


class Suback(RequestAcknowledgement):
    """A SUBACK. MQTT 3.1.1 has only one code for a failure, 0x80, so `encode` uses it for all failures."""

    TYPE = SUBACK
    ALLOWED = b"\x00\x01\x02\x80\x83\x87\x8f\x91\x97\x9e\xa1\xa2"
    __slots__ = ()

    def _encode_codes(self, level: int) -> bytes:
        if level == MQTT_5:
            return bytes(self.reason_codes)
        return bytes([min(code, UNSPECIFIED_ERROR) for code in self.reason_codes])

    @classmethod
    def decode(cls, flags: int, body: bytes, level: int):
        packet = super().decode(flags, body, level)
        if level != MQTT_5 and max(packet.reason_codes) > UNSPECIFIED_ERROR:
            raise RemoteProtocolError(PROTOCOL_ERROR, "a SUBACK has a reserved return code [3.1.1 MQTT-3.9.3-2]")
        return packet


class Unsuback(RequestAcknowledgement):
    """An UNSUBACK. Over MQTT 3.1.1 it has no reason codes, and `reason_codes` is empty."""

    TYPE = UNSUBACK
    ALLOWED = b"\x00\x11\x80\x83\x87\x8f\x91"
    __slots__ = ()

    def _encode_codes(self, level: int) -> bytes:
        return bytes(self.reason_codes) if level == MQTT_5 else b""

    @classmethod
    def decode(cls, flags: int, body: bytes, level: int):
        if level == MQTT_5:
            return super().decode(flags, body, level)
        reader = Reader(body)
        packet_identifier = check_packet_identifier(reader.u16())
        reader.finish()
        return cls(packet_identifier, [])
