"""Registers become values, and a value becomes registers."""

import math
import struct

from gateway.config.connectors import ValueConfig, registers_of
from gateway.connectors.reading import Reading, Unreadable, Value

FORMATS = {
    "int16": ">h",
    "uint16": ">H",
    "int32": ">i",
    "uint32": ">I",
    "int64": ">q",
    "uint64": ">Q",
    "float32": ">f",
    "float64": ">d",
}
"""The formats of the types in ``struct``, the highest byte first."""


def reading_of(config: ValueConfig, found: list[int]) -> Reading:
    """Returns the reading that registers, or one bit, mean. Raises Unreadable: the value is no number, or no text."""
    return Reading(config.name, _value_of(config, found), config.unit)


def _value_of(config: ValueConfig, found: list[int]) -> Value:
    if config.type == "bool":
        return bool(found[0] >> config.bit & 1) if config.bit is not None else bool(found[0])
    data = in_order(b"".join(register.to_bytes(2, "big") for register in found), config.order)
    if config.type == "string":
        return text_of(data)
    number: float | int = struct.unpack(FORMATS[config.type], data)[0]
    if isinstance(number, float) and not math.isfinite(number):
        raise Unreadable(f"{number}: not a finite number")
    if config.bit is not None and isinstance(number, int):
        width = 1 if config.bits is None else config.bits
        number = (number & (1 << 8 * len(data)) - 1) >> config.bit & (1 << width) - 1
    if config.invalid is not None and number == config.invalid:
        raise Unreadable(f"{number}: the unit has no value")
    return scaled(number, config.scale, config.offset)


def scaled(number: float | int, scale: float, offset: float) -> float | int:
    """Returns number × scale + offset, in as many digits as the factors have: 2301 × 0.1 is 230.1."""
    if scale == 1 and offset == 0:
        return number
    found = number * scale + offset
    if not math.isfinite(found):
        raise Unreadable(f"{found}: not a finite number")
    if isinstance(number, int):
        found = float(f"{found:.15g}")
    return int(found) if found.is_integer() and abs(found) < 2**53 else found


def text_of(data: bytes) -> str:
    """Returns the text in registers, up to the first NUL. Raises Unreadable."""
    text = data.partition(b"\0")[0].rstrip()
    if not text.isascii() or not text.decode("latin-1").isprintable():
        raise Unreadable(f"{data.hex()}: no text")
    return text.decode()


def in_order(data: bytes, order: str) -> bytes:
    """Returns bytes with the highest first.

    Args:
        data: the bytes as they are on the line.
        order: letters, each a byte of the value and A the highest, as they follow each other on the line: "CDAB". A
            shorter order is repeated for all bytes, as in a text. "": they are in order.
    """
    if not order:
        return data
    places = [order.index(letter) for letter in sorted(order)]
    width = len(places)
    return bytes(data[start + place] for start in range(0, len(data), width) for place in places)


def on_the_line(data: bytes, order: str) -> bytes:
    """Returns the bytes of a value as they are on the line, from those with the highest first."""
    if not order:
        return data
    width, letters = len(order), sorted(order)
    places = [letters.index(letter) for letter in order]
    return bytes(data[start + place] for start in range(0, len(data), width) for place in places)


def registers_for(config: ValueConfig, value: Value) -> tuple[int, ...]:
    """Returns the registers, or the bit, that set a value.

    A value of a whole type is rounded to the nearest step of ``scale``, to the even one of two that are equally near.

    Raises Unreadable: the type has no such value.
    """
    if config.type == "bool":
        if not isinstance(value, bool):
            raise Unreadable(f"{value!r}: expected true or false")
        return (int(value),)
    if isinstance(value, str | bool) or config.type == "string" or not math.isfinite(value):
        raise Unreadable(f"{value!r}: expected a finite number")
    number = (value - config.offset) / config.scale if (config.scale, config.offset) != (1, 0) else value
    try:
        data = struct.pack(FORMATS[config.type], number if config.type.startswith("float") else round(number))
    except (struct.error, OverflowError):
        raise Unreadable(f"{value!r}: does not fit {config.type}") from None
    data = on_the_line(data, config.order)
    assert len(data) == 2 * registers_of(config)
    return tuple(int.from_bytes(data[start : start + 2], "big") for start in range(0, len(data), 2))
