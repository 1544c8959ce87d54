"""Intervals of time as options have them."""

import re

import typer

_UNITS_S = {"s": 1, "m": 60, "h": 3600}


def parse_interval(text: str) -> float:
    """Returns the seconds of "60s", "5m" or "1h". Raises BadParameter."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smh])", text)
    if not match or float(match[1]) == 0:
        raise typer.BadParameter(f"{text!r}: expected a number above 0 with s, m or h, such as 60s")
    return float(match[1]) * _UNITS_S[match[2]]


def wait_s(interval_s: float, began_s: float, now_s: float) -> float:
    """Returns how long a run waits that begins an interval after the last one began; 0 if that one took longer."""
    return max(0.0, began_s + interval_s - now_s)
