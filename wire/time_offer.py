"""The time that a gateway offers to each client, as an MQTT 5 user property of the CONNACK.

`hf-time` = "{unix_ms}": the gateway's clock when it answered. A client without a clock takes this as the time halfway
between its CONNECT and the CONNACK; the error is at most half the time between the two.
"""

from wire.identity import find_user_property

TIME_PROPERTY = "hf-time"
UNIX_MS_MAX = 253_402_300_799_999  # the year 9999
DIGITS = "0123456789"


def encode_time(unix_ms: int) -> str:
    return str(unix_ms)


def offered_time(properties: dict) -> int | None:
    """Returns UTC (ms since 1970) from a CONNACK's properties; None if it is missing or malformed."""
    text = find_user_property(properties, TIME_PROPERTY)
    if not text or len(text) > len(str(UNIX_MS_MAX)) or any(sign not in DIGITS for sign in text):
        return None
    return min(int(text), UNIX_MS_MAX)
