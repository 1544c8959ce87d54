"""What a decoder gets and gives: a message, and the records that become rows of `readings`."""

from typing import NamedTuple

ABSOLUTE_TIME_S = 2**28
"""RFC 8428, section 4.5.3: smaller times are relative to "now", and a stored message does not tell when that was."""
TIME_MIN_S = -62_135_596_800
"""The beginning of the year 1, where timestamps begin."""
TIME_MAX_S = 253_402_300_800
"""The end of the year 9999, where timestamps end."""
PAYLOAD_MAX = 8 * 1024 * 1024
"""The longest payload (bytes) that is decoded: in memory, a parsed payload takes up to a hundred times its size."""
RECORDS_MAX = 100_000
"""The most records that a message may resolve to."""
TEXT_FACTOR = 32
TEXT_SLACK = 65_536
"""A message of n bytes, topic included, may resolve to TEXT_FACTOR · n + TEXT_SLACK bytes of names, units, values."""


class Undecodable(Exception):
    """A decoder refuses a payload. The text says why; it is the `reason` in `quarantine`."""


class Message(NamedTuple):
    """What a decoder gets. `content_type` is the MQTT property as it was published; None without it.

    received_us, landed_us: when the first gateway accepted the message, and when it landed (µs since 1970, UTC), if
        that is known.
    """

    topic: str
    content_type: str | None
    payload: bytes
    received_us: int | None = None
    landed_us: int | None = None


class Record(NamedTuple):
    """A reading. `time_us` counts µs since 1970 (UTC). `device` is None when the payload and the topic name none.

    At most one of `value`, `value_string`, `value_bool` and `value_data` is there; `sum` may stand beside it.
    quality: what the sender says of the value; None if it says nothing.
    historical: whether the sender says that it stored the value and sent it later; None if it says nothing.
    relative_us: µs from the moment when the message was accepted to that of the reading, in the place of `time_us`.
    """

    device: str | None = None
    metric: str = ""
    unit: str | None = None
    time_us: int | None = None
    boot_id: int | None = None
    uptime_ms: int | None = None
    value: float | None = None
    value_string: str | None = None
    value_bool: bool | None = None
    value_data: bytes | None = None
    sum: float | None = None
    quality: str | None = None
    historical: bool | None = None
    relative_us: int | None = None


class Allowance:
    """How much a message may still resolve to: a name that is repeated can make it a thousand times larger."""

    def __init__(self, message_bytes: int) -> None:
        self.text_max = TEXT_SLACK + TEXT_FACTOR * message_bytes
        self._text = self.text_max
        self._records = RECORDS_MAX

    def take(self, record: Record) -> None:
        """Counts a record. Raises Undecodable when the message has resolved to more than it may."""
        self._records -= 1
        text = record.value_string if record.value_data is None else record.value_data
        self._text -= len(record.metric) + len(record.device or "") + len(record.unit or "") + len(text or "")
        if self._records < 0:
            raise Undecodable(f"it resolves to more than {RECORDS_MAX} records")
        if self._text < 0:
            raise Undecodable(f"it resolves to more than {self.text_max} bytes, far more than its size")


def value_record(
    device: str | None, metric: str, value: object, *, unit: str | None = None, time_us: int | None = None
) -> Record:
    """Returns a record with the value in the column of its kind. Raises Undecodable if there is no such column."""
    if not metric:
        raise Undecodable("a value has no name")
    match value:
        case bool():
            return Record(device, metric, unit, time_us, value_bool=value)
        case int() | float():
            return Record(device, metric, unit, time_us, value=_as_float(value))
        case str():
            return Record(device, metric, unit, time_us, value_string=value)
        case bytes():
            return Record(device, metric, unit, time_us, value_data=value)
    raise Undecodable(f"a value is a {type(value).__name__}")


def _as_float(value: float) -> float:
    try:
        return float(value)
    except OverflowError:
        raise Undecodable("a number is beyond what a double carries") from None
