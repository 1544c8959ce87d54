"""One measured figure with its goal, and a table of figures for people."""

from collections.abc import Sequence
from dataclasses import dataclass

VERDICT = {True: "ok", False: "MISSED", None: ""}


@dataclass(frozen=True)
class Figure:
    """One line of a table: our figure, and the figure of the program beside it (``theirs``; None if there is none).

    ``bar`` is our goal: the least value, or the highest one if ``at_most``; None if there is no goal.
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
        """Our figure divided by theirs."""
        return self.ours / self.theirs if self.theirs else None


def table(figures: Sequence[Figure], ours: str, theirs: str) -> list[str]:
    """Returns a line for each figure, below a head with the names of the programs."""
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
    """Returns a number with four digits, or with all digits before its point."""
    return f"{value:,.0f}" if value >= 1000 or value == int(value) else f"{value:.4g}"
