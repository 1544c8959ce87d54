"""The return codes with which a server of MQTT 3.1.1 refuses a connection (its table 3.1)."""

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


def nearest(reason_code: int, return_codes: bytes) -> int:
    """Returns the return code that is nearest to a reason code of MQTT 5.

    Args:
        return_codes: the reason code of MQTT 5 for each return code.

    Raises LocalProtocolError if no return code is near: the server then closes without a CONNACK [MQTT-3.2.2-6].
    """
    if reason_code in _UNAVAILABLE:
        return 3
    if reason_code in _NOT_AUTHORIZED:
        return 5
    found = return_codes.find(bytes((reason_code,)))
    if found < 0:
        raise LocalProtocolError(f"MQTT 3.1.1 has no return code for reason code 0x{reason_code:02x}")
    return found
