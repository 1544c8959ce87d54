"""The time that a gateway offers to whoever connects, as an MQTT 5 user property of the CONNACK.

`hf-time` = "{unix_ms}": what the gateway's clock showed when it answered. A client without a clock halves the time
between its CONNECT and the CONNACK, which is also how far it may be off.
"""

from wire.identity import find_user_property

TIME_PROPERTY = "hf-time"
UNIX_MS_MAX = 253_402_300_799_999  # the year 9999
DIGITS = "0123456789"


def encode_time(unix_ms: int) -> str:
    return str(unix_ms)


def offered_time(properties: dict) -> int | None:
    """UTC (ms since 1970) of a CONNACK's properties; None where there is none that can be read."""
    text = find_user_property(properties, TIME_PROPERTY)
    if not text or len(text) > len(str(UNIX_MS_MAX)) or any(sign not in DIGITS for sign in text):
        return None
    return min(int(text), UNIX_MS_MAX)
