"""A reading of a serial device, and what is wrong where there is none."""

from dataclasses import dataclass

EXACT_MAX = 2**53
"""The largest whole number up to which a double, and a number of JSON, carries each of them exactly."""

Value = float | int | str | bool


@dataclass(frozen=True, slots=True)
class Reading:
    """One value: its name, and its unit by the registry of SenML, "" for none."""

    name: str
    value: Value
    unit: str = ""


class Unreadable(Exception):
    """A line, a sentence or an answer gives no reading. The text says why."""


def number_of(text: str) -> float | int | None:
    """Returns the finite number that a text is, None if it is none.

    It takes time in proportion to the text, which ``int`` does not.
    """
    if not text or text[-1] not in "0123456789." or "_" in text:  # float takes "nan", "infinity" and "1_000" too
        return None
    try:
        number = float(text)
    except ValueError:
        return None
    if number in (float("inf"), float("-inf")):
        return None
    return int(number) if number.is_integer() and abs(number) <= EXACT_MAX else number
