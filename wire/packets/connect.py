"""CONNECT and CONNACK (sections 3.1 and 3.2)."""

from wire.errors import RemoteProtocolError, UnsupportedVersionError, WireError
from wire.packet_types import CONNACK, CONNECT, WILL
from wire.packets.packet import Packet, check_reason_code, frame
from wire.primitives import Reader, encode_binary, encode_integer, encode_string, malformed
from wire.properties import decode_properties, encode_properties
from wire.reasons import PROTOCOL_ERROR, SUCCESS
from wire.topics import check_topic_name

PROTOCOL_LEVEL = 5
PROTOCOL_NAMES = ("MQTT", "MQIsdp")  # the second is that of MQTT 3.1

_CLEAN_START, _WILL, _WILL_QOS, _WILL_RETAIN, _PASSWORD, _USERNAME = 0x02, 0x04, 0x18, 0x20, 0x40, 0x80


class Will(Packet):
    """The message a server publishes for a client that is gone."""

    __slots__ = FIELDS = ("topic", "payload", "qos", "retain", "properties")

    def __init__(
        self, topic: str, payload: bytes, qos: int = 0, retain: bool = False, properties: dict | None = None
    ) -> None:
        self.topic = topic
        self.payload = payload
        self.qos = qos
        self.retain = retain
        self.properties = {} if properties is None else properties

    def flags(self) -> int:
        return _WILL | self.qos << 3 | (_WILL_RETAIN if self.retain else 0)

    def encode(self) -> bytes:
        check_topic_name(self.topic)
        properties = encode_properties(self.properties, WILL)
        return properties + encode_string(self.topic) + encode_binary(self.payload)


class Connect(Packet):
    """`will` is a Will or None; `username` a str, `password` bytes, or None."""

    TYPE = CONNECT
    __slots__ = FIELDS = (
        "client_id",
        "clean_start",
        "keep_alive_s",
        "username",
        "password",
        "will",
        "properties",
    )

    def __init__(
        self,
        client_id: str,
        clean_start: bool = False,
        keep_alive_s: int = 0,
        username: str | None = None,
        password: bytes | None = None,
        will: Will | None = None,
        properties: dict | None = None,
    ) -> None:
        self.client_id = client_id
        self.clean_start = clean_start
        self.keep_alive_s = keep_alive_s
        self.username = username
        self.password = password
        self.will = will
        self.properties = {} if properties is None else properties

    def encode(self) -> bytes:
        flags = _CLEAN_START if self.clean_start else 0
        payload = encode_string(self.client_id)
        if self.will is not None:
            flags |= self.will.flags()
            payload += self.will.encode()
        if self.username is not None:
            flags |= _USERNAME
            payload += encode_string(self.username)
        if self.password is not None:
            flags |= _PASSWORD
            payload += encode_binary(self.password)
        head = encode_string("MQTT") + bytes((PROTOCOL_LEVEL, flags)) + encode_integer(self.keep_alive_s, 2)
        return frame(CONNECT << 4, head + encode_properties(self.properties, CONNECT) + payload)

    @classmethod
    def decode(cls, flags: int, body: bytes) -> "Connect":
        reader = Reader(body)
        _check_protocol(reader)
        flags = reader.byte()
        if flags & 1:
            raise malformed("a CONNECT has its reserved flag set [MQTT-3.1.2-3]")
        keep_alive_s = reader.u16()
        properties = decode_properties(reader, CONNECT)
        client_id = reader.string()
        will = _decode_will(reader, flags)
        username = reader.string() if flags & _USERNAME else None
        password = reader.binary() if flags & _PASSWORD else None
        reader.finish()
        return cls(client_id, flags & _CLEAN_START != 0, keep_alive_s, username, password, will, properties)


def _check_protocol(reader: Reader) -> None:
    name = reader.string()
    if name not in PROTOCOL_NAMES:
        raise malformed(f"protocol name {name!r} is not MQTT [MQTT-3.1.2-1]")
    level = reader.byte()
    if level != PROTOCOL_LEVEL or name != "MQTT":
        raise UnsupportedVersionError(level)


def _decode_will(reader: Reader, flags: int) -> Will | None:
    qos = (flags & _WILL_QOS) >> 3
    retain = flags & _WILL_RETAIN != 0
    if not flags & _WILL:
        if qos or retain:
            raise malformed("a CONNECT without a will has will flags [MQTT-3.1.2-11, MQTT-3.1.2-13]")
        return None
    if qos == 3:
        raise malformed("a will has QoS 3 [MQTT-3.1.2-12]")
    properties = decode_properties(reader, WILL)
    topic = reader.string()
    try:
        check_topic_name(topic)
    except WireError as error:
        raise malformed(f"will: {error}")
    return Will(topic, reader.binary(), qos, retain, properties)


class Connack(Packet):
    TYPE = CONNACK
    __slots__ = FIELDS = ("session_present", "reason_code", "properties")

    _ALLOWED = b"\x00\x80\x81\x82\x83\x84\x85\x86\x87\x88\x89\x8a\x8c\x90\x95\x97\x99\x9a\x9b\x9c\x9d\x9f"

    def __init__(self, session_present: bool, reason_code: int = SUCCESS, properties: dict | None = None) -> None:
        self.session_present = session_present
        self.reason_code = reason_code
        self.properties = {} if properties is None else properties

    def encode(self) -> bytes:
        head = bytes((1 if self.session_present else 0, self.reason_code))
        return frame(CONNACK << 4, head + encode_properties(self.properties, CONNACK))

    @classmethod
    def decode(cls, flags: int, body: bytes) -> "Connack":
        reader = Reader(body)
        acknowledge_flags = reader.byte()
        if acknowledge_flags > 1:
            raise malformed("a CONNACK has reserved flags set [MQTT-3.2.2-1]")
        reason_code = reader.byte()
        check_reason_code(reason_code, cls._ALLOWED, "CONNACK")
        if acknowledge_flags and reason_code != SUCCESS:
            text = "a CONNACK that refuses has a session present [MQTT-3.2.2-6]"
            raise RemoteProtocolError(PROTOCOL_ERROR, text)
        properties = decode_properties(reader, CONNACK)
        reader.finish()
        return cls(acknowledge_flags == 1, reason_code, properties)
