"""PUBLISH (section 3.3)."""

from wire.codec import (
    MQTT_5,
    Packet,
    check_packet_identifier,
    encode_packet_identifier,
    frame,
    read_properties,
    write_properties,
)
from wire.errors import LocalProtocolError, RemoteProtocolError
from wire.packet_types import PUBLISH
from wire.primitives import Reader, encode_string, malformed
from wire.properties import TOPIC_ALIAS
from wire.reasons import PROTOCOL_ERROR


class Publish(Packet):
    """A PUBLISH; `packet_identifier` is None at QoS 0."""

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

    def encode(self, level: int = MQTT_5) -> bytes:
        first_byte = PUBLISH << 4 | self.qos << 1
        if self.qos:
            if self.qos > 2:
                raise LocalProtocolError(f"a PUBLISH has QoS {self.qos} [MQTT-3.3.1-4]")
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
        properties = write_properties(self.properties, PUBLISH, level)
        return frame(first_byte, encode_string(self.topic), identifier, properties, self.payload)

    @classmethod
    def decode(cls, flags: int, body: bytes, level: int) -> "Publish":
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
        properties = read_properties(reader, PUBLISH, level)
        if not topic and TOPIC_ALIAS not in properties:
            raise RemoteProtocolError(PROTOCOL_ERROR, "a PUBLISH has neither topic name nor topic alias")
        payload = body[reader.offset :]
        return cls(topic, payload, qos, flags & 1 != 0, dup, packet_identifier, properties)
