"""``holdfast bench flash``: what the store costs on simulated flash and a real MicroPython, beside littlefs."""

from typing import Annotated

import typer

from tools.bench.figure import print_figures
from tools.bench.flash_figures import Report, measure
from tools.failure import failing_on
from tools.micropython import MicroPythonUnavailable


def flash(
    messages: Annotated[int, typer.Option(min=100, help="How many messages the workload has.")] = 10_000,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object as the last line.")] = False,
) -> None:
    """Count what the store costs a chip and a board, beside littlefs. Ends with 0 also where a bar is missed."""
    with failing_on(MicroPythonUnavailable, command="bench flash"):
        report = measure(messages)
    print_report(report, as_json)


def print_report(report: Report, as_json: bool) -> None:
    """What was measured and where, then one line a figure."""
    head = {"workload": report.workload, "store": report.store, "littlefs": report.littlefs, "vm": report.vm}
    print_figures(head, report.figures, as_json, names=("measured", "littlefs"))
