"""The control packets of MQTT 5.0, both directions: classes, `encode` and `Decoder`."""

from wire.packets.connect import Connack, Connect, Will
from wire.packets.control import Auth, Disconnect, Pingreq, Pingresp
from wire.packets.decoder import PACKET_SIZE_MAX, Decoder
from wire.packets.packet import Packet
from wire.packets.publish import Puback, Pubcomp, Publish, Pubrec, Pubrel
from wire.packets.subscribe import NO_LOCAL, RETAIN_AS_PUBLISHED, Suback, Subscribe, Unsuback, Unsubscribe

__all__ = [
    "NO_LOCAL",
    "PACKET_SIZE_MAX",
    "RETAIN_AS_PUBLISHED",
    "Auth",
    "Connack",
    "Connect",
    "Decoder",
    "Disconnect",
    "Packet",
    "Pingreq",
    "Pingresp",
    "Puback",
    "Pubcomp",
    "Publish",
    "Pubrec",
    "Pubrel",
    "Suback",
    "Subscribe",
    "Unsuback",
    "Unsubscribe",
    "Will",
    "encode",
]


def encode(packet: Packet) -> bytes:
    """The packet's bytes. Raises LocalProtocolError for what cannot be sent."""
    return packet.encode()
