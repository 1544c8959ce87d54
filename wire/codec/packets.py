"""All control packets of MQTT 3.1.1 and 5.0, both directions: classes, `encode` and `Decoder`.

A device does not import this module: it imports only the modules of `wire.codec` that it uses.
"""

from wire.codec import MQTT_3_1_1, MQTT_5, Packet
from wire.codec.acknowledge import Puback, Pubcomp, Pubrec, Pubrel
from wire.codec.auth import Auth
from wire.codec.connack import Connack
from wire.codec.connect import Connect, Will
from wire.codec.control import Disconnect, Pingreq, Pingresp
from wire.codec.decoder import PACKET_SIZE_MAX, TO_CLIENT, PacketDecoder
from wire.codec.publish import Publish
from wire.codec.requests import TO_SERVER
from wire.codec.suback import Suback, Unsuback
from wire.codec.subscribe import (
    NO_LOCAL,
    RETAIN_AS_PUBLISHED,
    RETAIN_IF_NEW,
    RETAIN_NEVER,
    Subscribe,
    Unsubscribe,
)
from wire.packet_types import SUBACK, UNSUBACK

__all__ = [
    "MQTT_3_1_1",
    "MQTT_5",
    "NO_LOCAL",
    "PACKET_SIZE_MAX",
    "RETAIN_AS_PUBLISHED",
    "RETAIN_IF_NEW",
    "RETAIN_NEVER",
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

_READERS: dict = dict(TO_CLIENT)
_READERS.update(TO_SERVER)
_READERS.update({SUBACK: Suback.decode, UNSUBACK: Unsuback.decode})


class Decoder(PacketDecoder):
    """Decodes every packet, of clients and of servers."""

    def __init__(self, maximum_packet_size: int = PACKET_SIZE_MAX, level: int = MQTT_5) -> None:
        super().__init__(_READERS, maximum_packet_size, level)


def encode(packet: Packet, level: int = MQTT_5) -> bytes:
    """Returns the packet's bytes; a CONNECT uses its own level.

    Raises LocalProtocolError if the standard does not allow the packet.
    """
    return packet.encode(level)
