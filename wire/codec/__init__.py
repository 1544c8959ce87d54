"""The base class of all control packets, and the functions that several packets use."""

from wire.errors import LocalProtocolError, RemoteProtocolError
from wire.primitives import Reader, encode_varint
from wire.properties import decode_properties, encode_properties
from wire.reasons import PROTOCOL_ERROR, SUCCESS

MQTT_3_1_1, MQTT_5 = 4, 5  # the protocol levels in a CONNECT


class Packet:
    """A control packet with plain attributes, which `FIELDS` names; one class serves both versions of MQTT.

    `encode(level)` returns the packet's bytes; it raises LocalProtocolError if the standard does not allow them.
    `decode(flags, body, level)` reads the bytes after the fixed header; it raises RemoteProtocolError for bad ones.
    MQTT 3.1.1 has no properties, and reason codes only in CONNACK and SUBACK. Elsewhere `encode` leaves both out for
    3.1.1, and `decode` gives the packet no properties and reason code 0.
    """

    TYPE = 0
    FIELDS: tuple = ()
    __slots__: tuple = ()

    def encode(self, level: int = MQTT_5) -> bytes:
        raise NotImplementedError

    def field_values(self) -> list:
        """Returns the values of `FIELDS`, in their order."""
        return [getattr(self, name) for name in self.FIELDS]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Packet) and type(self) is type(other) and self.field_values() == other.field_values()

    def __repr__(self) -> str:
        fields = ", ".join([f"{name}={getattr(self, name)!r}" for name in self.FIELDS])
        return f"{type(self).__name__}({fields})"


def frame(first_byte: int, *parts: bytes) -> bytes:
    """Returns the fixed header and the parts; they are joined only once, because a payload may be long."""
    length = sum([len(part) for part in parts])
    return b"".join((bytes((first_byte,)), encode_varint(length)) + parts)


def read_properties(reader: Reader, packet_type: int, level: int) -> dict:
    return decode_properties(reader, packet_type) if level == MQTT_5 else {}


def write_properties(properties: dict | None, packet_type: int, level: int) -> bytes:
    return encode_properties(properties, packet_type) if level == MQTT_5 else b""


def encode_reason(packet, level: int) -> bytes:
    """Returns the reason code and properties as bytes of MQTT 5, without empty properties and a lone success.

    Over MQTT 3.1.1 the result is b"".
    """
    if level != MQTT_5 or not (packet.properties or packet.reason_code):
        return b""
    reason = bytes((packet.reason_code,))
    return reason + encode_properties(packet.properties, packet.TYPE) if packet.properties else reason


def decode_reason(reader: Reader, kind, level: int) -> tuple:
    """Reads (reason code, properties) at the end of a packet; `kind` is its class, with the reason codes ALLOWED."""
    reason_code = SUCCESS
    properties = None
    if level == MQTT_5 and not reader.at_end():
        reason_code = reader.byte()
        check_reason_code(reason_code, kind.ALLOWED, kind.__name__.upper())
        if not reader.at_end():
            properties = decode_properties(reader, kind.TYPE)
    reader.finish()
    return reason_code, properties


def check_reason_code(reason_code: int, allowed: bytes, packet_name: str) -> None:
    """Raises RemoteProtocolError unless the reason code is in `allowed`, the codes of the packet's table."""
    if reason_code not in allowed:
        text = f"reason code 0x{reason_code:02x} may not stand in a {packet_name}"
        raise RemoteProtocolError(PROTOCOL_ERROR, text)


def encode_packet_identifier(packet_identifier: int | None) -> bytes:
    if packet_identifier is None or not 0 < packet_identifier < 65_536:
        text = f"packet identifier {packet_identifier} is not within 1 and 65535 [MQTT-2.2.1-3]"
        raise LocalProtocolError(text)
    return packet_identifier.to_bytes(2, "big")


def check_packet_identifier(packet_identifier: int) -> int:
    if packet_identifier == 0:
        raise RemoteProtocolError(PROTOCOL_ERROR, "packet identifier 0 [MQTT-2.2.1-3]")
    return packet_identifier
