"""PINGREQ, PINGRESP, DISCONNECT (sections 3.12 to 3.14)."""

from wire.codec import MQTT_5, Packet, decode_reason, encode_reason, frame
from wire.packet_types import DISCONNECT, PINGREQ, PINGRESP
from wire.primitives import Reader
from wire.reasons import SUCCESS


class Pingreq(Packet):
    """A PINGREQ; like PINGRESP it has no content."""

    TYPE = PINGREQ
    __slots__ = ()

    def encode(self, level: int = MQTT_5) -> bytes:
        return frame(self.TYPE << 4, b"")

    @classmethod
    def decode(cls, flags: int, body: bytes, level: int):
        Reader(body).finish()
        return cls()


class Pingresp(Pingreq):
    TYPE = PINGRESP
    __slots__ = ()


class Disconnect(Packet):
    """A DISCONNECT; over MQTT 3.1.1 only a client sends it, without a reason code."""

    TYPE = DISCONNECT
    ALLOWED = (
        b"\x00\x04\x80\x81\x82\x83\x87\x89\x8b\x8d\x8e\x8f\x90\x93\x94\x95\x96\x97\x98\x99"
        b"\x9a\x9b\x9c\x9d\x9e\x9f\xa0\xa1\xa2"
    )
    __slots__ = FIELDS = ("reason_code", "properties")

    def __init__(self, reason_code: int = SUCCESS, properties: dict | None = None) -> None:
        self.reason_code = reason_code
        self.properties = {} if properties is None else properties

    def encode(self, level: int = MQTT_5) -> bytes:
        return frame(self.TYPE << 4, encode_reason(self, level))

    @classmethod
    def decode(cls, flags: int, body: bytes, level: int):
        return cls(*decode_reason(Reader(body), cls, level))
