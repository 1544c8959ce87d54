"""Sentences of NMEA 0183 become readings.

The sentences' fields are public in many receivers' manuals (u-blox "Receiver Description", chapter "NMEA Protocol"),
and in E. Raymond, "NMEA Revealed". A sentence begins with ``$`` or ``!``, and ends with ``*`` and two hexadecimal
digits: the exclusive or of all bytes between.
"""

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from gateway.connectors.reading import Reading, Unreadable, Value, number_of

_SENTENCE = re.compile(rb"[$!]([A-Za-z0-9]{3,15})((?:,[^*$!\r\n]*)*)(?:\*([0-9A-Fa-f]{2}))?\s*")
_PLACE = re.compile(r"(\d{1,3})(\d\d(?:\.\d+)?)")
_CLOCK = re.compile(r"(\d\d)(\d\d)(\d\d)(?:\.\d+)?")
_DATE = re.compile(r"(\d\d)(\d\d)(\d\d)")

SPEEDS = {"K": 1 / 3.6, "N": 1852 / 3600, "M": 1.0, "S": 0.44704}
"""Metres a second, by the letters of units."""

Field = tuple[str, str, Callable[[Sequence[str], int], Value | None]]
"""The name of a value, its unit, and what makes it of the fields from an index on; None if the field is empty."""


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence whose checksum holds: the talker, such as GP, its kind, such as GGA, and its fields as they came."""

    talker: str
    kind: str
    fields: list[str]


def sentence_of(line: bytes, *, needs_checksum: bool) -> Sentence:
    """Returns the sentence of a line.

    Raises Unreadable: it is no sentence, its checksum is wrong, or it has none although it needs one.
    """
    start = max(line.rfind(b"$"), line.rfind(b"!"))  # what is before it was cut off
    found = _SENTENCE.fullmatch(line[start:]) if start >= 0 else None
    if found is None:
        raise Unreadable("no sentence of NMEA 0183")
    address, fields, given = found.groups()
    if given is None:
        if needs_checksum:
            raise Unreadable("a sentence without a checksum")
    elif (expected := checksum_of(address + fields)) != int(given, 16):
        raise Unreadable(f"a wrong checksum: {given.decode().upper()}, expected {expected:02X}")
    name = address.decode()
    talker, kind = ("P", name[1:]) if name.startswith("P") else (name[:-3], name[-3:])
    return Sentence(talker, kind, fields.decode("latin-1").split(",")[1:])


def checksum_of(body: bytes) -> int:
    """Returns the exclusive or of the bytes between ``$`` and ``*``."""
    checksum = 0
    for byte in body:
        checksum ^= byte
    return checksum


class NmeaReader:
    """Reads lines as sentences.

    Args:
        needs_checksum: whether a sentence without a checksum is refused; a wrong one always is.
        talkers: the talkers whose sentences are read; all if there are none.
        kinds: the kinds of sentences that are read; all if there are none.
    """

    def __init__(self, *, needs_checksum: bool, talkers: Collection[str] = (), kinds: Collection[str] = ()) -> None:
        self._needs_checksum = needs_checksum
        self._talkers = frozenset(talkers)
        self._kinds = frozenset(kinds)

    def read(self, line: bytes) -> list[Reading]:
        """Returns the readings of a line; none if the filters leave its sentence out, or all its fields are empty.

        The names begin with the kind of the sentence: ``gga.latitude``. Fields of kinds that are not known are
        ``NAME.1``, ``NAME.2`` and so on. Raises Unreadable.
        """
        sentence = sentence_of(line, needs_checksum=self._needs_checksum)
        if (self._talkers and sentence.talker not in self._talkers) or (
            self._kinds and sentence.kind not in self._kinds
        ):
            return []
        if sentence.kind == "XDR" and sentence.talker != "P":
            return list(_transducers(sentence.fields))
        known = None if sentence.talker == "P" else KINDS.get(sentence.kind)
        if known is None:
            return [
                Reading(f"{sentence.kind.lower()}.{number}", _text_or_number(text))
                for number, text in enumerate(sentence.fields, 1)
                if text
            ]
        found = []
        for index, (name, unit, make) in known.items():
            value = make(sentence.fields, index) if index < len(sentence.fields) else None
            if value is not None:
                found.append(Reading(f"{sentence.kind.lower()}.{name}", value, unit))
        return found


def _text_or_number(text: str) -> Value:
    number = number_of(text)
    return text if number is None else number


def _number(fields: Sequence[str], index: int) -> Value | None:
    return number_of(fields[index])


def _text(fields: Sequence[str], index: int) -> Value | None:
    return fields[index] or None


def _angle(fields: Sequence[str], index: int) -> Value | None:
    """Degrees and minutes, and in the next field the hemisphere."""
    found = _PLACE.fullmatch(fields[index])
    side = fields[index + 1] if index + 1 < len(fields) else ""
    if found is None or side not in ("N", "S", "E", "W"):
        return None
    degrees = round(int(found[1]) + float(found[2]) / 60, 9)
    if degrees > (90 if side in "NS" else 180):
        return None
    return -degrees if side in "SW" else degrees


def _signed(negative: str) -> Callable[[Sequence[str], int], Value | None]:
    """Returns what makes a number negative if the next field says so."""

    def make(fields: Sequence[str], index: int) -> Value | None:
        number = number_of(fields[index])
        if number is None:
            return None
        return -number if index + 1 < len(fields) and fields[index + 1] == negative else number

    return make


def _is(letter: str) -> Callable[[Sequence[str], int], Value | None]:
    return lambda fields, index: fields[index] == letter if fields[index] else None


def _scaled(factors: dict[str, float]) -> Callable[[Sequence[str], int], Value | None]:
    """Returns what multiplies a number by the factor of the unit in the next field."""

    def make(fields: Sequence[str], index: int) -> Value | None:
        number = number_of(fields[index])
        factor = factors.get(fields[index + 1]) if index + 1 < len(fields) else None
        return None if number is None or factor is None else round(number * factor, 9)

    return make


def _clock(fields: Sequence[str], index: int) -> Value | None:
    found = _CLOCK.fullmatch(fields[index])
    return f"{found[1]}:{found[2]}:{fields[index][4:]}" if found else None


def _moment(date: int) -> Callable[[Sequence[str], int], Value | None]:
    """Returns what makes a time of a clock field and the field with its date, as ``YYYY-MM-DDTHH:MM:SSZ``."""

    def make(fields: Sequence[str], index: int) -> Value | None:
        day = _DATE.fullmatch(fields[date]) if date < len(fields) else None
        clock = _CLOCK.fullmatch(fields[index])
        return _utc(f"20{day[3]}", day[2], day[1], clock) if day and clock else None

    return make


def _zda(fields: Sequence[str], index: int) -> Value | None:
    clock = _CLOCK.fullmatch(fields[index])
    if clock is None or len(fields) < index + 4:
        return None
    return _utc(fields[index + 3], fields[index + 2], fields[index + 1], clock)


def _utc(year: str, month: str, day: str, clock: re.Match[str]) -> str | None:
    try:
        moment = datetime(int(year), int(month), int(day), int(clock[1]), int(clock[2]), int(clock[3]), tzinfo=UTC)
    except ValueError:
        return None
    return moment.isoformat().replace("+00:00", "Z")


_KNOTS: Callable[[Sequence[str], int], Value | None] = lambda fields, index: (  # noqa: E731
    None if (number := number_of(fields[index])) is None else round(number * 1852 / 3600, 9)
)

KINDS: dict[str, dict[int, Field]] = {
    "GGA": {
        0: ("time", "", _clock),
        1: ("latitude", "lat", _angle),
        3: ("longitude", "lon", _angle),
        5: ("quality", "", _number),
        6: ("satellites", "count", _number),
        7: ("hdop", "", _number),
        8: ("altitude", "m", _number),
        10: ("geoid", "m", _number),
        12: ("correction_age", "s", _number),
        13: ("station", "", _text),
    },
    "GLL": {
        0: ("latitude", "lat", _angle),
        2: ("longitude", "lon", _angle),
        4: ("time", "", _clock),
        5: ("valid", "", _is("A")),
    },
    "RMC": {
        0: ("time", "", _moment(8)),
        1: ("valid", "", _is("A")),
        2: ("latitude", "lat", _angle),
        4: ("longitude", "lon", _angle),
        6: ("speed", "m/s", _KNOTS),
        7: ("course", "deg", _number),
        9: ("variation", "deg", _signed("W")),
    },
    "GSA": {1: ("fix", "", _number), 14: ("pdop", "", _number), 15: ("hdop", "", _number), 16: ("vdop", "", _number)},
    "VTG": {0: ("course", "deg", _number), 2: ("course_magnetic", "deg", _number), 4: ("speed", "m/s", _KNOTS)},
    "ZDA": {0: ("time", "", _zda)},
    "HDT": {0: ("heading", "deg", _number)},
    "HDM": {0: ("heading_magnetic", "deg", _number)},
    "HDG": {
        0: ("heading_magnetic", "deg", _number),
        1: ("deviation", "deg", _signed("W")),
        3: ("variation", "deg", _signed("W")),
    },
    "ROT": {0: ("turn", "deg/min", _number), 1: ("valid", "", _is("A"))},
    "MWV": {
        0: ("wind_angle", "deg", _number),
        1: ("reference", "", _text),
        2: ("wind_speed", "m/s", _scaled(SPEEDS)),
        4: ("valid", "", _is("A")),
    },
    "MWD": {
        0: ("wind_direction", "deg", _number),
        2: ("wind_direction_magnetic", "deg", _number),
        6: ("wind_speed", "m/s", _number),
    },
    "VHW": {0: ("heading", "deg", _number), 2: ("heading_magnetic", "deg", _number), 4: ("speed", "m/s", _KNOTS)},
    "DBT": {2: ("depth", "m", _number)},
    "DBS": {2: ("depth", "m", _number)},
    "DBK": {2: ("depth", "m", _number)},
    "DPT": {0: ("depth", "m", _number), 1: ("offset", "m", _number)},
    "MTW": {0: ("temperature", "Cel", _number)},
}
"""The sentences whose fields have names: by the index of each field."""


def _transducers(fields: Sequence[str]) -> list[Reading]:
    """Groups of four: kind, value, unit, and the name of the transducer."""
    found = []
    for start in range(0, len(fields) - 3, 4):
        kind, text, unit, name = fields[start : start + 4]
        number = number_of(text)
        if number is not None:
            found.append(Reading(f"xdr.{name or kind or start // 4}", number, {"C": "Cel", "B": "bar"}.get(unit, unit)))
    return found
