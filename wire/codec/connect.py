"""CONNECT (section 3.1), and how a client encodes it; a server decodes it with `wire.codec.requests`."""

from wire.codec import MQTT_3_1_1, MQTT_5, Packet, frame, write_properties
from wire.errors import LocalProtocolError
from wire.packet_types import CONNECT, WILL
from wire.primitives import encode_binary, encode_integer, encode_string
from wire.properties import SESSION_EXPIRY_INTERVAL
from wire.topics import check_topic_name

CLEAN_START, HAS_WILL, WILL_QOS, WILL_RETAIN, HAS_PASSWORD, HAS_USERNAME = 0x02, 0x04, 0x18, 0x20, 0x40, 0x80
FOR_EVER_S = 0xFFFF_FFFF


class Will(Packet):
    """The message that the server publishes when the client's connection ends without a DISCONNECT."""

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
        if not 0 <= self.qos <= 2:
            raise LocalProtocolError(f"a will has QoS {self.qos} [MQTT-3.1.2-12]")
        return HAS_WILL | self.qos << 3 | (WILL_RETAIN if self.retain else 0)

    def encode(self, level: int = MQTT_5) -> bytes:
        check_topic_name(self.topic)
        properties = write_properties(self.properties, WILL, level)
        return properties + encode_string(self.topic) + encode_binary(self.payload)


class Connect(Packet):
    """A CONNECT. `will` is a Will or None, `username` a str or None, `password` bytes or None.

    `protocol_level` is the version of the whole connection, which `encode` uses. `level_byte` is the level byte of a
    received CONNECT if it came from a client of MQTT 3.1 or from a bridge; otherwise it is 0.
    """

    TYPE = CONNECT
    __slots__ = FIELDS = (
        "client_id",
        "clean_start",
        "keep_alive_s",
        "username",
        "password",
        "will",
        "properties",
        "protocol_level",
        "level_byte",
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
        protocol_level: int = MQTT_5,
    ) -> None:
        self.client_id = client_id
        self.clean_start = clean_start
        self.keep_alive_s = keep_alive_s
        self.username = username
        self.password = password
        self.will = will
        self.properties = {} if properties is None else properties
        self.protocol_level = protocol_level
        self.level_byte = 0

    @property
    def session_expiry_s(self) -> int:
        """Seconds that the server keeps the session after the connection; over MQTT 3.1.1 0 or FOR_EVER_S."""
        if self.protocol_level == MQTT_3_1_1:
            return 0 if self.clean_start else FOR_EVER_S
        return self.properties.get(SESSION_EXPIRY_INTERVAL, 0)

    def encode(self, level: int = MQTT_5) -> bytes:
        level = self.protocol_level
        self._check_for_3_1_1()
        flags = CLEAN_START if self.clean_start else 0
        payload = encode_string(self.client_id)
        if self.will is not None:
            flags |= self.will.flags()
            payload += self.will.encode(level)
        if self.username is not None:
            flags |= HAS_USERNAME
            payload += encode_string(self.username)
        if self.password is not None:
            flags |= HAS_PASSWORD
            payload += encode_binary(self.password)
        head = encode_string("MQTT") + bytes((level, flags)) + encode_integer(self.keep_alive_s, 2)
        return frame(CONNECT << 4, head + write_properties(self.properties, CONNECT, level) + payload)

    def _check_for_3_1_1(self) -> None:
        if self.protocol_level == MQTT_5:
            return
        if self.password is not None and self.username is None:
            raise LocalProtocolError("MQTT 3.1.1 has no password without a user name [MQTT-3.1.2-22]")
        if not self.client_id and not self.clean_start:
            raise LocalProtocolError("MQTT 3.1.1 keeps no session without a client identifier [MQTT-3.1.3-7]")
