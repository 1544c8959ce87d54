"""PINGREQ, PINGRESP, DISCONNECT, AUTH (sections 3.12 to 3.15)."""

from wire.packet_types import AUTH, DISCONNECT, PINGREQ, PINGRESP
from wire.packets.packet import Packet, check_reason_code, frame
from wire.primitives import Reader
from wire.properties import decode_properties, encode_properties
from wire.reasons import SUCCESS


class Ping(Packet):
    """What PINGREQ and PINGRESP share: they carry nothing."""

    __slots__ = ()

    def encode(self) -> bytes:
        return frame(self.TYPE << 4, b"")

    @classmethod
    def decode(cls, flags: int, body: bytes):
        Reader(body).finish()
        return cls()


class Pingreq(Ping):
    TYPE = PINGREQ
    __slots__ = ()


class Pingresp(Ping):
    TYPE = PINGRESP
    __slots__ = ()


class Reasoned(Packet):
    """What DISCONNECT and AUTH share: a reason code and properties, both left out where they say nothing."""

    ALLOWED = b""
    __slots__ = FIELDS = ("reason_code", "properties")

    def __init__(self, reason_code: int = SUCCESS, properties: dict | None = None) -> None:
        self.reason_code = reason_code
        self.properties = {} if properties is None else properties

    def encode(self) -> bytes:
        if self.properties:
            body = bytes((self.reason_code,)) + encode_properties(self.properties, self.TYPE)
        else:
            body = bytes((self.reason_code,)) if self.reason_code != SUCCESS else b""
        return frame(self.TYPE << 4, body)

    @classmethod
    def decode(cls, flags: int, body: bytes):
        reader = Reader(body)
        if reader.at_end():
            return cls()
        reason_code = reader.byte()
        check_reason_code(reason_code, cls.ALLOWED, cls.__name__.upper())
        properties = None if reader.at_end() else decode_properties(reader, cls.TYPE)
        reader.finish()
        return cls(reason_code, properties)


class Disconnect(Reasoned):
    TYPE = DISCONNECT
    ALLOWED = (
        b"\x00\x04\x80\x81\x82\x83\x87\x89\x8b\x8d\x8e\x8f\x90\x93\x94\x95\x96\x97\x98\x99"
        b"\x9a\x9b\x9c\x9d\x9e\x9f\xa0\xa1\xa2"
    )
    __slots__ = ()


class Auth(Reasoned):
    TYPE = AUTH
    ALLOWED = b"\x00\x18\x19"
    __slots__ = ()
