"""Times, durations and amounts as people read them. All times are UTC."""

import math
import time

MINUTE_S, HOUR_S, DAY_S = 60, 3600, 86_400
LONG_DAYS = 365
THOUSAND = 1000


def clock_of(unix_ms: float) -> str:
    """Returns a time as in "2026-11-27 23:42:05"."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(max(0.0, unix_ms / 1000)))


def moment_of(unix_ms: float, now_ms: float) -> str:
    """Returns a time without its date if that is today's."""
    text, today = clock_of(unix_ms), clock_of(now_ms)
    return text.removeprefix(today[: today.index(" ") + 1])


def duration_of(seconds: float) -> str:
    """Returns a duration in its largest two units, as in "3 d 4 h"; "for ever" for an infinite one."""
    if math.isinf(seconds) or seconds > LONG_DAYS * DAY_S:
        return "for ever" if math.isinf(seconds) else "over a year"
    whole = int(max(0.0, seconds))
    if whole < MINUTE_S:
        return f"{whole} s"
    for unit_s, unit, below_s, below in (
        (DAY_S, "d", HOUR_S, "h"),
        (HOUR_S, "h", MINUTE_S, "min"),
        (MINUTE_S, "min", 1, "s"),
    ):
        if whole >= unit_s:
            rest = whole % unit_s // below_s
            return f"{whole // unit_s} {unit}" + (f" {rest} {below}" if rest else "")
    raise AssertionError


def bytes_of(size: float) -> str:
    """Returns a number of bytes, as in "1.5 GB"."""
    for unit in ("B", "kB", "MB", "GB"):
        if size < THOUSAND:
            return f"{size:.0f} {unit}" if unit == "B" or size >= THOUSAND / 10 else f"{size:.1f} {unit}"
        size /= THOUSAND
    return f"{size:,.1f} TB"


def rate_of(per_s: float) -> str:
    """Returns a rate, as in "1,200/s", "0.25/s" or "3/min"; "0/s" only for none at all."""
    if not per_s:
        return "0/s"
    if per_s >= THOUSAND / 100:
        return f"{per_s:,.0f}/s"
    return f"{per_s:.1f}/s" if per_s >= 1 else f"{per_s * MINUTE_S:.1f}/min"
