"""A message as the gateway keeps it, and how it comes from and goes into a PUBLISH."""

from dataclasses import dataclass, field
from typing import Any

from wire import identity, properties
from wire.packets import Publish

TRAVELLING_PROPERTIES = (
    properties.PAYLOAD_FORMAT_INDICATOR,
    properties.MESSAGE_EXPIRY_INTERVAL,
    properties.CONTENT_TYPE,
    properties.RESPONSE_TOPIC,
    properties.CORRELATION_DATA,
)
"""What a Server passes on unaltered, besides user properties [MQTT-3.3.2-4, -15, -16, -17, -20]."""

OUR_PROPERTIES = (identity.IDENTITY_PROPERTY, identity.RECEIVED_PROPERTY)
REJECTED_SUFFIX = "-rejected"


@dataclass(slots=True)
class Message:
    """One publish.

    ``properties`` are those that travel on, without the identity and the provenance, which have fields here.
    ``origin`` is empty until the message has an identity. ``received_ms`` (unix time) and ``received_by`` tell
    when and where the first gateway accepted it; ``publisher`` is the client identifier it came from here.
    """

    topic: str
    payload: bytes
    qos: int = 1
    retain: bool = False
    properties: dict[int, Any] = field(default_factory=dict)
    origin: str = ""
    epoch: int = 0
    seq: int = 0
    received_ms: int = 0
    received_by: str = ""
    publisher: str = ""

    @property
    def size(self) -> int:
        """Bytes it takes up in memory, roughly."""
        return len(self.payload) + len(self.topic) + 500


def message_from(packet: Publish, publisher: str, gateway_name: str, unix_ms: int) -> Message:
    """Returns the message of a PUBLISH, with the identity and the provenance it brings, or with ours.

    A user property of ours that cannot be read travels on untouched, under its name + ``-rejected``.
    """
    message = Message(
        packet.topic,
        bytes(packet.payload),
        packet.qos,
        packet.retain,
        {key: packet.properties[key] for key in TRAVELLING_PROPERTIES if key in packet.properties},
        publisher=publisher,
    )
    user_properties = [
        (name + REJECTED_SUFFIX if name in OUR_PROPERTIES else name, value)
        for name, value in packet.properties.get(properties.USER_PROPERTY, ())
        if not _take(message, name, value)
    ]
    if user_properties:
        message.properties[properties.USER_PROPERTY] = user_properties
    if not message.received_by:
        message.received_ms, message.received_by = unix_ms, gateway_name
    return message


def publish_properties(message: Message) -> dict[int, Any]:
    """Returns the properties of the PUBLISH that takes a message on: its own, identity and provenance last."""
    user_properties = [*message.properties.get(properties.USER_PROPERTY, ())]
    if message.origin:
        text = identity.encode_identity(message.origin, message.epoch, message.seq)
        user_properties.append((identity.IDENTITY_PROPERTY, text))
    received = identity.encode_received(message.received_ms, message.received_by)
    user_properties.append((identity.RECEIVED_PROPERTY, received))
    return {**message.properties, properties.USER_PROPERTY: user_properties}


def _take(message: Message, name: str, value: str) -> bool:
    """Takes a user property of ours into the message's own fields, if it can be read and is the first."""
    try:
        if name == identity.IDENTITY_PROPERTY and not message.origin:
            message.origin, message.epoch, message.seq = identity.decode_identity(value)
            return True
        if name == identity.RECEIVED_PROPERTY and not message.received_by:
            message.received_ms, message.received_by = identity.decode_received(value)
            return True
    except ValueError:
        pass
    return False
