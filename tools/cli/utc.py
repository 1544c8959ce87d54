"""UTC as commands print it."""

import time


def utc_of(unix_ms: int) -> str:
    """Returns a unix time to the second, in the form of ISO 8601."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(unix_ms / 1000))
