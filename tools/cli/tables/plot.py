"""The rows of a query as a chart of characters."""

from collections import defaultdict
from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import cycle

import plotext

from cloud import Result
from tools.cli.columns import printable

_MARKERS = ("braille", "x", "·", "o", "+", "*")
_TICKS = 5
_DAY_S = 86_400

Points = list[tuple[float, float]]


class NoPlot(Exception):
    """The rows are nothing that a chart can show."""


def plot(result: Result, width: int, height: int) -> str:
    """Returns a chart of `width` columns and about `height` lines. Raises NoPlot.

    The first column, a time or a number, goes from left to right. Each other column of numbers is a line; where there
    is a column of texts, it is a line for each of these texts.
    """
    lines = _lines(result)
    figure = plotext.figure
    figure.clear()
    figure.plot_size(width, height)
    for marker, points in zip(cycle(_MARKERS), lines.values(), strict=False):
        figure.draw(figure.signal(*map(list, zip(*sorted(points), strict=True)), marker=marker).lines())
    if any(isinstance(row[0], date) for row in result.rows):
        instants = [x for points in lines.values() for x, _ in points]
        figure.ruler("x").ticks(*_ticks(min(instants), max(instants)))
    drawn: str = plotext.uncolorize(figure.build().string())
    signs = cycle("⠤" if marker == "braille" else marker for marker in _MARKERS)
    return drawn + "\n" + "   ".join(f"{sign} {name}" for sign, name in zip(signs, lines, strict=False))


def _lines(result: Result) -> dict[str, Points]:
    """Returns the points of each line by its name. Values that are null have no point."""
    numbers = [place for place in range(1, len(result.columns)) if _has(result, place, (int, float, Decimal))]
    texts = [place for place in range(1, len(result.columns)) if _has(result, place, (str,))]
    if not (numbers and _has(result, 0, (int, float, Decimal, date))):
        raise NoPlot("--plot needs rows whose first column is a time or a number, and another column of numbers")
    lines: dict[str, Points] = defaultdict(list)
    for row in result.rows:
        name = [printable(str(row[place])) for place in texts]
        for place in numbers:
            if row[0] is not None and row[place] is not None:
                column = [result.columns[place]] if len(numbers) > 1 or not texts else []
                lines[" ".join([*name, *column])].append((_number(row[0]), _number(row[place])))
    return lines


def _has(result: Result, place: int, types: tuple[type, ...]) -> bool:
    """Whether a column has values, all of these types."""
    values = [row[place] for row in result.rows if row[place] is not None]
    return bool(values) and all(isinstance(value, types) and not isinstance(value, bool) for value in values)


def _number(value: object) -> float:
    if isinstance(value, datetime):
        return (value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp()
    if isinstance(value, date):
        return datetime(value.year, value.month, value.day, tzinfo=UTC).timestamp()
    assert isinstance(value, int | float | Decimal)
    return float(value)


def _ticks(first_s: float, last_s: float) -> tuple[Sequence[float], list[str]]:
    """Returns places of the axis and what is written there: times in UTC, as exact as the axis is long."""
    places = [first_s + (last_s - first_s) * number / (_TICKS - 1) for number in range(_TICKS)]
    length_s = last_s - first_s
    form = "%m-%d %H:%M" if length_s >= _DAY_S else "%H:%M:%S"
    form = "%Y-%m-%d" if length_s >= 30 * _DAY_S else form
    return places, [datetime.fromtimestamp(place, UTC).strftime(form) for place in places]
