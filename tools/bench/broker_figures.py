"""The figures that the broker's benchmarks print, each with its bar."""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass

VERDICT = {True: "ok", False: "MISSED", None: ""}


@dataclass(frozen=True)
class Figure:
    """One line: what was measured of the gateway, and of mosquitto where it has that too.

    ``bar`` is what the gateway's may be: at least that, or at most where ``at_most``; None where it is only told.
    """

    name: str
    unit: str
    gateway: float
    mosquitto: float | None = None
    bar: float | None = None
    at_most: bool = False

    @property
    def holds(self) -> bool | None:
        if self.bar is None:
            return None
        return self.gateway <= self.bar if self.at_most else self.gateway >= self.bar

    @property
    def ratio(self) -> float | None:
        """The gateway's by mosquitto's."""
        return self.gateway / self.mosquitto if self.mosquitto else None


def print_figures(title: str, figures: Iterable[Figure], as_json: bool) -> None:
    """A table, or one JSON object with ``title`` and ``figures``."""
    figures = list(figures)
    if as_json:
        rows = [{**asdict(figure), "ratio": figure.ratio, "ok": figure.holds} for figure in figures]
        print(json.dumps({"title": title, "figures": rows}))
        return
    width = max(len(figure.name) for figure in figures)
    print(f"{title}\n")
    print(f"{'':<{width}}  {'gateway':>10}  {'mosquitto':>10}  {'ratio':>7}  {'bar':>12}")
    for figure in figures:
        theirs = "" if figure.mosquitto is None else _number(figure.mosquitto)
        ratio = "" if figure.ratio is None else f"{figure.ratio:.2f} x"
        bar = "" if figure.bar is None else f"{'≤' if figure.at_most else '≥'} {_number(figure.bar)}"
        line = f"{figure.name:<{width}}  {_number(figure.gateway):>10}  {theirs:>10}  {ratio:>7}  {bar:>12}"
        print(f"{line}  {figure.unit:<11}  {VERDICT[figure.holds]}".rstrip())


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.3g}"
