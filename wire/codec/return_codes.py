"""How a server of MQTT 3.1.1 says why it refuses a connection (its table 3.1)."""

from wire.codec.connack import RETURN_CODES
from wire.errors import LocalProtocolError
from wire.reasons import (
    BAD_AUTHENTICATION_METHOD,
    BANNED,
    CONNECTION_RATE_EXCEEDED,
    QUOTA_EXCEEDED,
    SERVER_BUSY,
    SERVER_MOVED,
    TOPIC_NAME_INVALID,
    USE_ANOTHER_SERVER,
)

_UNAVAILABLE = (SERVER_BUSY, QUOTA_EXCEEDED, USE_ANOTHER_SERVER, SERVER_MOVED, CONNECTION_RATE_EXCEEDED)
_NOT_AUTHORIZED = (BANNED, BAD_AUTHENTICATION_METHOD, TOPIC_NAME_INVALID)


def return_code(reason_code: int) -> int:
    """The nearest one; raises LocalProtocolError where there is none: then no CONNACK is sent [MQTT-3.2.2-6]."""
    if reason_code in _UNAVAILABLE:
        return 3
    if reason_code in _NOT_AUTHORIZED:
        return 5
    found = RETURN_CODES.find(bytes((reason_code,)))
    if found < 0:
        raise LocalProtocolError(f"MQTT 3.1.1 has no return code for reason code 0x{reason_code:02x}")
    return found
