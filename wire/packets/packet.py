"""What all control packets share."""

from wire.errors import LocalProtocolError, RemoteProtocolError
from wire.primitives import encode_varint
from wire.reasons import PROTOCOL_ERROR


class Packet:
    """A control packet with plain attributes, named in `FIELDS`.

    `encode()` gives its bytes and raises LocalProtocolError for what cannot be sent; `decode(flags, body)` reads
    what follows the fixed header and raises RemoteProtocolError.
    """

    TYPE = 0
    FIELDS: tuple = ()
    __slots__: tuple = ()

    def encode(self) -> bytes:
        raise NotImplementedError

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and all(getattr(self, name) == getattr(other, name) for name in self.FIELDS)

    def __repr__(self) -> str:
        fields = ", ".join([f"{name}={getattr(self, name)!r}" for name in self.FIELDS])
        return f"{type(self).__name__}({fields})"


def frame(first_byte: int, body: bytes) -> bytes:
    """The fixed header and the rest."""
    length = len(body)
    if length < 0x80:
        return bytes((first_byte, length)) + body
    return bytes((first_byte,)) + encode_varint(length) + body


def check_reason_code(reason_code: int, allowed: bytes, packet_name: str) -> None:
    """`allowed` holds the codes that the packet's table in the standard lists."""
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
