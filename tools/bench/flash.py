"""``holdfast bench flash``: what the store costs on simulated flash and a real MicroPython, beside littlefs."""

import time
from typing import Annotated

import typer

from tools.bench.flash_figures import measure
from tools.failure import failing_on
from tools.micropython import MicroPythonUnavailable
from tools.result import JSON_OPTION, end_bench, quick_option


def flash(
    messages: Annotated[int, typer.Option(min=100, help="How many messages to store.")] = 10_000,
    quick: Annotated[bool, quick_option(messages=1_000)] = False,
    as_json: Annotated[bool, JSON_OPTION] = False,
) -> None:
    """Count bytes programmed, erases and memory of the flash store, and of littlefs for the same messages.

    Runs on a simulated flash chip and a real MicroPython. Ends with 1 if a goal is missed.
    """
    started = time.monotonic()
    with failing_on(MicroPythonUnavailable, command="bench flash"):
        report = measure(messages)
    about = {"workload": report.workload, "store": report.store, "littlefs": report.littlefs, "vm": report.vm}
    seconds = time.monotonic() - started
    end_bench("flash", report.figures, seconds, as_json, names=("measured", "littlefs"), about=about)
