"""``holdfast lab bench connector``: lines and units, beside pymodbus' client."""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer
import uvloop

from tools.lab.bench.broker.processes import bench_folder
from tools.lab.bench.connector import frames, lines, units
from tools.lab.figure import Figure
from tools.lab.result import JSON_OPTION, end_bench, quick_option
from tools.lab.testing.process import ProcessFailed

ERROR_RATE = 1e-4
UNITS, DEAD, INTERVAL_S, LATE_MAX = 32, 8, 5.0, 0.05
LINES, UNITS_A_LINE, POLL_S = 4, 50, 10.0
CORE_MAX, MB_MAX = 0.1, 10


def connector(
    seconds: Annotated[float, typer.Option(min=1, help="How long lines are sent, and units polled.")] = 60.0,
    kills: Annotated[int, typer.Option(min=0, help="How often a gateway is killed while lines come.")] = 100,
    frames_sent: Annotated[
        int, typer.Option("--frames", min=1000, help="How many answers go over a line that flips bits.")
    ] = 10_000_000,
    seed: Annotated[int, typer.Option(help="The seed of kills and of flipped bits.")] = 1,
    quick: Annotated[bool, quick_option(seconds=4.0, kills=3, frames_sent=100_000)] = False,
    as_json: Annotated[bool, JSON_OPTION] = False,
) -> None:
    """Measure connectors, on simulated lines at their real pace. Ends with 1 if a goal is missed."""
    started = time.monotonic()
    about = {"baud of lines": str(lines.BAUD), "baud of units": str(units.BAUD), "seed": str(seed)}
    with bench_folder("lab bench connector", ProcessFailed) as folder:
        figures = list(measure(folder, seconds, kills, frames_sent, seed))
    end_bench("connector", figures, time.monotonic() - started, as_json, ("gateway", "pymodbus"), about)


def measure(folder: Path, seconds: float, kills: int, frames_sent: int, seed: int) -> Iterator[Figure]:
    """Measures one after the other, so that none disturbs another."""
    lived = asyncio.run(lines.run(folder / "lines", seconds, 0, seed))
    yield Figure(f"of {lived.sent:,} lines, lost", "", lived.lost, None, 0, at_most=True)
    yield Figure("of these lines, stored twice", "", lived.twice, None, 0, at_most=True)
    if kills:
        killed = asyncio.run(lines.run(folder / "kills", seconds, kills, seed))
        what = f"of {killed.sent:,} lines over {kills} kills, lost"
        yield Figure(what, "", killed.lost)
        yield Figure("of these, in no gap", "", killed.uncovered, None, 0, at_most=True)
        yield Figure("stored twice", "", killed.twice, None, 0, at_most=True)
    warm_s = max(20.0, seconds / 2)
    late = asyncio.run(units.lateness(folder / "late", UNITS, DEAD, INTERVAL_S, max(seconds, 2 * INTERVAL_S), warm_s))
    yield Figure(f"lateness, {DEAD} of {UNITS} units dead", "of interval", late, None, LATE_MAX, at_most=True)
    theirs, silent, blocking = uvloop.run(units.rates_of_pymodbus(seconds))
    ours = uvloop.run(units.rate_of_ours(folder / "rate", seconds))
    yield Figure("polls of one unit, beside the asynchronous client", "polls/s", ours, theirs, theirs)
    yield Figure("the same, beside that client with the silence between frames", "polls/s", ours, silent, silent)
    yield Figure("polls of one unit, beside the blocking client", "polls/s", ours, blocking, blocking)
    corrupt, refused, wrong = frames.wrong_in(frames_sent, ERROR_RATE, seed)
    yield Figure(f"of {frames_sent:,} frames, with bit errors", "", corrupt)
    yield Figure("of these, refused", "", refused)
    yield Figure("taken with wrong values or from another unit", "", wrong, None, 0, at_most=True)
    core, megabytes = asyncio.run(units.cost(folder / "cost", LINES, UNITS_A_LINE, POLL_S, max(seconds, POLL_S)))
    what = f"{LINES * UNITS_A_LINE} units on {LINES} lines"
    yield Figure(what, "of a core", core, None, CORE_MAX, at_most=True)
    yield Figure(f"{what}, memory more", "MB", megabytes, None, MB_MAX, at_most=True)
