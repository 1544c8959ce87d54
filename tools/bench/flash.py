"""``holdfast bench flash``: what the store costs on simulated flash and a real MicroPython, beside littlefs."""

import json
import sys
from dataclasses import asdict
from typing import Annotated

import typer

from tools.bench.figures import Figure, Report, measure
from tools.micropython import MicroPythonUnavailable

VERDICT = {True: "ok", False: "MISSED", None: ""}


def flash(
    messages: Annotated[int, typer.Option(min=100, help="How many messages the workload has.")] = 10_000,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object as the last line.")] = False,
) -> None:
    """Count what the store costs a chip and a board, beside littlefs. Ends with 0 also where a bar is missed."""
    try:
        report = measure(messages)
    except MicroPythonUnavailable as error:
        print(f"holdfast bench flash: {error}", file=sys.stderr)
        raise typer.Exit(2) from error
    if as_json:
        print(json.dumps(_as_json(report)))
    else:
        print_table(report)


def print_table(report: Report) -> None:
    """One line a figure; `ratio` is littlefs's by ours."""
    print(f"workload: {report.workload}\nstore: {report.store}\nlittlefs: {report.littlefs}")
    print(f"RAM: {report.vm}; a word of most boards has 32\n")
    width = max(len(figure.name) for figure in report.figures)
    print(f"{'':<{width}}  {'bar':>8}  {'measured':>10}  {'littlefs':>10}  {'ratio':>7}")
    for figure in report.figures:
        bar = "" if figure.bar is None else f"≤ {_number(figure.bar)}"
        theirs = "" if figure.littlefs is None else _number(figure.littlefs)
        ours, verdict = _number(figure.measured), VERDICT[figure.holds]
        print(f"{figure.name:<{width}}  {bar:>8}  {ours:>10}  {theirs:>10}  {_ratio(figure):>7}  {verdict}".rstrip())


def _as_json(report: Report) -> dict[str, object]:
    return {**asdict(report), "figures": [{**asdict(figure), "ok": figure.holds} for figure in report.figures]}


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 or value == int(value) else f"{value:.4g}"


def _ratio(figure: Figure) -> str:
    """What littlefs needs, in times of what the store needs."""
    if figure.littlefs is None or not figure.measured:
        return ""
    return f"{figure.littlefs / figure.measured:.3g} x"
