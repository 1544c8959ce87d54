"""AUTH (section 3.15), which MQTT 5 alone has."""

from wire.codec.control import Disconnect
from wire.packet_types import AUTH


class Auth(Disconnect):
    """In the form of a DISCONNECT."""

    TYPE = AUTH
    ALLOWED = b"\x00\x18\x19"
    __slots__ = ()
