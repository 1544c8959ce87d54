"""One measured figure with its goal, and a table of figures for people."""

from collections.abc import Sequence
from dataclasses import dataclass

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


def table(figures: Sequence[Figure], ours: str, theirs: str) -> list[str]:
    """Returns lines with a figure each, below the names of what was measured."""
    width = max(len(figure.name) for figure in figures)
    head = f"{'':<{width}}  {ours:>10}  {theirs:>10}  {'ratio':>8}  {'goal':>12}"
    return [head, *(_line(figure, width) for figure in figures)]


def _line(figure: Figure, width: int) -> str:
    theirs = "" if figure.theirs is None else number(figure.theirs)
    ratio = "" if figure.ratio is None else f"{figure.ratio:.3g} x"
    bar = "" if figure.bar is None else f"{'≤' if figure.at_most else '≥'} {number(figure.bar)}"
    line = f"{figure.name:<{width}}  {number(figure.ours):>10}  {theirs:>10}  {ratio:>8}  {bar:>12}"
    return f"{line}  {figure.unit:<11}  {VERDICT[figure.holds]}".rstrip()


def number(value: float) -> str:
    """Returns four digits of it, or all that stand before the point."""
    return f"{value:,.0f}" if value >= 1000 or value == int(value) else f"{value:.4g}"
