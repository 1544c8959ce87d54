"""One measured figure with its bar, and how a benchmark prints its figures."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

BROKERS = ("gateway", "mosquitto")
VERDICT = {True: "ok", False: "MISSED", None: ""}


@dataclass(frozen=True)
class Figure:
    """One line: what was measured of ours, and of what it is compared with (``theirs``; None where that has no such
    thing or does not get that far).

    ``bar`` is what ours may be: at least that, or at most where ``at_most``; None where it is only told.
    """

    name: str
    unit: str
    ours: float
    theirs: float | None = None
    bar: float | None = None
    at_most: bool = False

    @property
    def holds(self) -> bool | None:
        if self.bar is None:
            return None
        return self.ours <= self.bar if self.at_most else self.ours >= self.bar

    @property
    def ratio(self) -> float | None:
        """Ours by theirs."""
        return self.ours / self.theirs if self.theirs else None


def print_figures(
    head: Mapping[str, str], figures: Sequence[Figure], as_json: bool, names: tuple[str, str] = BROKERS
) -> None:
    """A table below the head's lines, or one JSON object with the head and ``figures``.

    There ``ours`` and ``theirs`` have the ``names`` of what was measured.
    """
    ours, theirs = names
    if as_json:
        print(json.dumps({**head, "figures": [_row(figure, ours, theirs) for figure in figures]}))
        return
    print("\n".join(f"{key}: {text}" for key, text in head.items()), end="\n\n")
    width = max(len(figure.name) for figure in figures)
    print(f"{'':<{width}}  {ours:>10}  {theirs:>10}  {'ratio':>8}  {'bar':>12}")
    for figure in figures:
        print(_line(figure, width))


def _row(figure: Figure, ours: str, theirs: str) -> dict[str, object]:
    return {
        "name": figure.name,
        "unit": figure.unit,
        ours: figure.ours,
        theirs: figure.theirs,
        "bar": figure.bar,
        "at_most": figure.at_most,
        "ratio": figure.ratio,
        "ok": figure.holds,
    }


def _line(figure: Figure, width: int) -> str:
    theirs = "" if figure.theirs is None else number(figure.theirs)
    ratio = "" if figure.ratio is None else f"{figure.ratio:.3g} x"
    bar = "" if figure.bar is None else f"{'≤' if figure.at_most else '≥'} {number(figure.bar)}"
    line = f"{figure.name:<{width}}  {number(figure.ours):>10}  {theirs:>10}  {ratio:>8}  {bar:>12}"
    return f"{line}  {figure.unit:<11}  {VERDICT[figure.holds]}".rstrip()


def number(value: float) -> str:
    """Returns four digits of it, or all that stand before the point."""
    return f"{value:,.0f}" if value >= 1000 or value == int(value) else f"{value:.4g}"
