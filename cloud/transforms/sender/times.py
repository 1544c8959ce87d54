"""The time that a payload tells: which field has it, and whether a bare number is a time at all.

A bare number may count anything: seconds since 1970, or milliseconds since the sender's boot. It is a time only if it
lies near the moment when a gateway or the lander got the message, in one of four units. A counter of milliseconds that
began at a boot comes past the seconds since 1970 on its 20th day. The narrower the span, the sooner it is past: 45
minutes for a month, 9 hours for a year.
"""

import re
from collections.abc import Iterable, Mapping
from datetime import datetime

from cloud.transforms.record import ABSOLUTE_TIME_S, TIME_MAX_S, Message

BEFORE_DAYS = 31
"""How many days before the message was got a bare number can still be a time: few senders store for longer."""
AFTER_DAYS = 1
"""How many days after it a bare number can still be a time: the sender's clock may be wrong by its zone."""
_DAY_US = 86_400_000_000
_UNITS_US = (1_000_000, 1_000, 1, 0.001)  # of seconds, ms, µs and ns
_NUMBER_MAX = 1e20
_NUMBER = re.compile(r"\d{9,19}(\.\d{1,9})?", re.ASCII)
# From the time of the measurement to the time when it was passed on. The first field that is a time counts.
_NAMES = (
    *("time", "timestamp", "time_stamp", "ts", "tst", "epoch", "unix_time", "source_timestamp", "last_seen"),
    *("measured_at", "observed_at", "sampled_at", "recorded_at", "event_time", "date_time"),
    *("published_at", "created_at", "sent_at", "received_at"),
)


def _spellings(name: str) -> Iterable[str]:
    first, *others = name.split("_")
    pascal = "".join(word.title() for word in (first, *others))
    joined = "".join((first, *others))
    return name, name.upper(), joined, joined.upper(), joined.title(), first + pascal[len(first) :], pascal


_RANKS = {spelling: rank for rank, name in enumerate(_NAMES) for spelling in _spellings(name)}


def find_time(fields: Mapping[str, object], message: Message) -> tuple[str | None, int | None]:
    """Returns the name of the field that tells the time, and the time (µs since 1970). Both are None without one."""
    ranked = [(rank, name) for name in fields if (rank := _RANKS.get(name)) is not None]
    for _, name in sorted(ranked):
        if (time_us := read_time(fields[name], message)) is not None:
            return name, time_us
    return None, None


def read_time(value: object, message: Message) -> int | None:
    """Returns µs since 1970; None for what is no time in UTC.

    value: a text in ISO 8601 with its offset from UTC, or a number, also as a text, of seconds, ms, µs or ns since 1970
        that lies near the moment when the message was got. A text without an offset is the time of a zone that is not
        known.
    """
    if isinstance(value, str):
        if _NUMBER.fullmatch(value):
            return _near(float(value) if "." in value else int(value), message)
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            return None
        if moment.tzinfo is None:
            return None
        time_us = round(moment.timestamp() * 1_000_000)
        return time_us if ABSOLUTE_TIME_S <= time_us / 1_000_000 < TIME_MAX_S else None
    if type(value) in (int, float):
        assert isinstance(value, int | float)
        return _near(value, message)
    return None


def _near(number: float, message: Message) -> int | None:
    """Returns the time (µs since 1970) that a number is in the one unit in which it is near, if there is one."""
    if not 0 < number < _NUMBER_MAX:
        return None
    for got_us in (message.received_us, message.landed_us):
        if got_us is not None:
            for unit_us in _UNITS_US:
                if -BEFORE_DAYS * _DAY_US <= number * unit_us - got_us <= AFTER_DAYS * _DAY_US:
                    return round(number * unit_us)
    return None
