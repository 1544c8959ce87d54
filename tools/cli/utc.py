"""Times as commands print them."""

import time
from datetime import UTC, datetime


def utc_of(unix_ms: int) -> str:
    """Returns a unix time to the second, in the form of ISO 8601."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(unix_ms / 1000))


def duration_of(seconds: float) -> str:
    """Returns a duration in its two largest units, such as ``3 h 5 min``."""
    minutes, left_s = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {left_s} s" if minutes else f"{left_s} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours < 24 else f"{hours // 24} d {hours % 24} h"


def moment_of(unix_ms: int) -> datetime:
    """Returns a unix time to the second."""
    return datetime.fromtimestamp(unix_ms // 1000, UTC)
