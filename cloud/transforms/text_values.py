"""Payloads that are text: one value, or CSV lines."""

import csv
import io
import math
import re
from collections.abc import Iterator
from typing import NamedTuple

from cloud.transforms.places import place_of_fields, place_of_value
from cloud.transforms.record import RECORDS_MAX, Allowance, Message, Record, Undecodable, value_record
from cloud.transforms.sender.times import find_time

# Each digit has one place in the pattern, so no text takes more time than its length.
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_MEASURE = re.compile(
    r"(?!0[xX])(?P<number>[+-]?\d+([.,]\d+)?)[ \t\xa0]?(?P<unit>(%|‰|°|°?[A-Za-zµμΩ]{1,6}(/[A-Za-z]{1,4})?[23²³]?)?)",
    re.ASCII,
)
"""A number with a comma or with a unit. Each part has a bound, but for the digits, which have one place."""
_WORDS = {"on": True, "true": True, "online": True, "off": False, "false": False, "offline": False}
_NO_VALUE = {"nan", "-nan", "null", "nil", "none", "undefined", "unavailable", "unknown", "n/a"}
"""What ESPHome, Home Assistant, Zigbee2MQTT and others say where there is no value."""
_BOM = b"\xef\xbb\xbf"
_FIRST_PLAIN = 0x21  # the first byte of ASCII behind NUL and blanks
_BLANK = b" \t\r\n\x0b\x0c"
_UNNAMED = "column_{}"
"""The name of a column by its place, from 1, where there is no header row."""


class Measure(NamedTuple):
    """A number that is written as a text, and its unit, if there is one."""

    number: float
    unit: str | None


def decode_value(message: Message) -> list[Record]:
    """Returns the one record of a number, of a word, or of a number with a comma or a unit, which stays a text.

    There is none where the text says that there is no value. Raises Undecodable for any other text, unless it is
    text/plain.
    """
    kind, parameters = content_type_of(message)
    text = _text(message.payload)
    value = read_value(text)
    if value is None or (kind != "text/plain" and text.lower() in _NO_VALUE):
        return []
    if isinstance(value, str) and kind != "text/plain" and read_measure(text) is None:
        raise Undecodable(_reason(text))
    place = place_of_value(message.topic)
    return [value_record(place.device, place.metric, value, unit=parameters.get("unit"))]


def read_measure(text: str) -> Measure | None:
    """Returns the number and the unit that a text says, such as `21,5` or `21.5 C`; None for any other text."""
    text = text.strip()
    if _NUMBER.fullmatch(text):
        found, unit = text, ""
    elif match := _MEASURE.fullmatch(text):
        found, unit = match["number"].replace(",", "."), match["unit"]
    else:
        return None
    number = float(found)
    return Measure(number, unit or None) if math.isfinite(number) else None


def strip_text(payload: bytes) -> bytes:
    """Returns a payload that is text without the blanks and NULs around it, and without a byte order mark."""
    if payload and _FIRST_PLAIN <= payload[0] < _BOM[0] and payload[-1] >= _FIRST_PLAIN:
        return payload
    start = payload.lstrip(_BLANK)
    return start.removeprefix(_BOM).lstrip(_BLANK).rstrip(_BLANK + b"\0")


def decode_csv(message: Message) -> list[Record]:
    """Returns a record for each cell of CSV lines (RFC 4180) that is not empty; none without one. Raises Undecodable.

    The first row is a header if the content type says `header=present`, and without this parameter if no cell of it is
    empty, a number or a word such as ON.
    """
    _, parameters = content_type_of(message)
    place = place_of_fields(message.topic)
    allowance = Allowance(len(message.payload) + len(message.topic))
    records = []
    names: list[str] | None = None
    for row in _rows(message.payload):
        if len(row) > RECORDS_MAX:
            raise Undecodable(f"it has more than {RECORDS_MAX} columns")
        if names is None:
            has_header = _has_header(row, parameters.get("header"))
            names = row if has_header else [_UNNAMED.format(at) for at in range(1, len(row) + 1)]
            if len(set(names)) != len(names):
                raise Undecodable("two columns have the same name")
            if has_header:
                continue
        if len(row) != len(names):
            raise Undecodable(f"a row has {len(row)} cells, and the first has {len(names)}; commas separate them")
        cells = {name: value for name, cell in zip(names, row, strict=True) if (value := read_value(cell)) is not None}
        time_name, time_us = find_time(cells, message)
        for name, value in cells.items():
            if name != time_name:
                records.append(value_record(place.device, place.metric_of(name), value, time_us=time_us))
                allowance.take(records[-1])
    return records


def read_value(text: str) -> float | bool | str | None:
    """Returns the number or the boolean that a text is, else the text; None when it is blank."""
    text = text.strip()
    if not text:
        return None
    if (word := _WORDS.get(text.lower())) is not None:
        return word
    if _NUMBER.fullmatch(text) and math.isfinite(number := float(text)):
        return number
    return text


def content_type_of(message: Message) -> tuple[str, dict[str, str]]:
    """Returns the media type in small letters ("" without one) and its parameters (RFC 9110, section 8.3.1)."""
    if not message.content_type:
        return "", {}
    kind, *parameters = message.content_type.split(";")
    pairs = (parameter.partition("=") for parameter in parameters)
    return kind.strip().lower(), {name.strip().lower(): value.strip().strip('"') for name, _, value in pairs}


def _rows(payload: bytes) -> Iterator[list[str]]:
    try:
        for row in csv.reader(io.StringIO(_text(payload), newline=""), strict=True):
            if row:
                yield [cell.strip() for cell in row]
    except csv.Error as error:
        raise Undecodable(f"it is not CSV: {error}") from None


def _has_header(row: list[str], said: str | None) -> bool:
    if said in ("present", "absent"):
        return said == "present"
    return all(isinstance(read_value(cell), str) for cell in row)


def _text(payload: bytes) -> str:
    if payload.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise Undecodable("it is UTF-16, and only UTF-8 is decoded")
    if payload.startswith(b"\x1f\x8b"):
        raise Undecodable("it is compressed by gzip; a decoder of one's own can unpack it")
    try:
        return strip_text(payload).decode()
    except UnicodeDecodeError as error:
        raise Undecodable(f"it is not UTF-8: {error.reason} at byte {error.start}") from None


def _reason(text: str) -> str:
    """Says why a text without a content type is no value, and what would make it one."""
    if "\n" in text:
        return "it has several lines; with the content type text/csv they are rows"
    return "it is neither JSON nor a number nor ON or OFF; with the content type text/plain it is a text"
