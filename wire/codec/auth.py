"""AUTH (section 3.15), which only MQTT 5 has."""

from wire.codec.control import Disconnect
from wire.packet_types import AUTH


class Auth(Disconnect):
    """An AUTH; it has the same format as a DISCONNECT."""

    TYPE = AUTH
    ALLOWED = b"\x00\x18\x19"
    __slots__ = ()
