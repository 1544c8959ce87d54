"""`holdfast lab bench link`: how much of a serial line the link uses, and how fast it recovers."""

import time
from collections.abc import Iterator
from typing import Annotated

import typer

from tools.lab.bench.link import virtual_link
from tools.lab.figure import Figure
from tools.lab.result import JSON_OPTION, end_bench, quick_option

BAUD = 115_200
# The goals: one byte in this number is corrupt (a byte has eight bits), and the least share of the line's rate.
ERROR_RATES = {"clean": (0, 0.94), "1e-5": (12_500, 0.90), "1e-4": (1_250, 0.70)}
RESYNC_MAX_MS = 200


def link(
    size: Annotated[
        int, typer.Option("--bytes", min=1000, help="How many bytes each share is measured with.")
    ] = 1_000_000,
    runs: Annotated[int, typer.Option(min=1, help="How often each fault strikes.")] = 20,
    seed: Annotated[int, typer.Option(help="The seed of the random errors: the same seed gives the same errors.")] = 1,
    quick: Annotated[bool, quick_option(size=200_000, runs=3)] = False,
    as_json: Annotated[bool, JSON_OPTION] = False,
) -> None:
    """Measure the serial link at 115,200 baud on a simulated line. Ends with 1 if a goal is missed."""
    started = time.monotonic()
    about = {"baud": str(BAUD), "seed": str(seed)}
    figures = list(measure(seed, size, runs))
    end_bench("link", figures, time.monotonic() - started, as_json, ("measured", ""), about)


def measure(seed: int, size: int, runs: int) -> Iterator[Figure]:
    """Measures in virtual time; the figures are the same on every machine."""
    for name, (corrupt, least) in ERROR_RATES.items():
        share = virtual_link.share(seed, BAUD, size, corrupt)
        yield Figure(f"share of the line, {name}", "share", share, None, least)
    for fault in ("replug", "noise"):
        for both, where in ((False, ""), (True, ", both ways full")):
            waited_ms = virtual_link.resync_ms(seed, runs, noise=fault == "noise", both=both)
            yield Figure(f"resync, {fault}{where}", "ms", waited_ms, None, RESYNC_MAX_MS, at_most=True)
    for what, counts in (("erase", virtual_link.erase(seed, runs)), ("stall", virtual_link.stall(seed))):
        for name, count in counts.items():
            yield Figure(f"{what}, {name}", "", count, None, 0, at_most=True)
