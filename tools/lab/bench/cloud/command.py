"""`holdfast lab bench cloud`: the lander's files, the job and its tables, and what a query costs."""

import tempfile
import time
from collections.abc import Iterator, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from cloud import open_session
from tools.cli.paths import cache_directory
from tools.lab.bench.cloud.cold import flat, run_cold
from tools.lab.bench.cloud.history import history
from tools.lab.bench.cloud.lake import Lake
from tools.lab.bench.cloud.landing import DEVICES, FILE_ROWS, Fleet
from tools.lab.bench.cloud.receipts import receipts
from tools.lab.bench.cloud.steady import steady
from tools.lab.figure import Figure
from tools.lab.result import JSON_OPTION, end_bench, quick_option

MEMORY_TIMES = 10


class Part(StrEnum):
    """A part of the benchmark. The first three take minutes, each of the others up to an hour."""

    STEADY = "steady"
    COLD = "cold"
    RECEIPTS = "receipts"
    MEMORY = "memory"
    HISTORY = "history"


SHORT = [Part.STEADY, Part.COLD, Part.RECEIPTS]
ORIGINS = 10_000


def cloud(
    part: Annotated[
        list[Part] | None,
        typer.Option(help="What to measure. By default steady, cold and receipts."),
    ] = None,
    messages: Annotated[int, typer.Option(min=FILE_ROWS, help="Messages of each round.")] = 1_000_000,
    cold: Annotated[int, typer.Option(min=FILE_ROWS, help="Messages of the run with a cold start.")] = 5_000_000,
    earlier: Annotated[int, typer.Option(min=FILE_ROWS, help="Messages of earlier batches.")] = 100_000_000,
    seed: Annotated[int, typer.Option(help="The seed of the readings.")] = 1,
    quick: Annotated[bool, quick_option(messages=100_000, cold=100_000, earlier=200_000)] = False,
    as_json: Annotated[bool, JSON_OPTION] = False,
) -> None:
    """Measure the job beside a plain Spark copy of the same landing files. Ends with 1 if a goal is missed."""
    started = time.monotonic()
    parts = part or SHORT
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
        place = Path(folder)
        figures = [*_in_session(parts, place, messages, earlier, seed), *_cold(parts, place, cold, seed)]
        if Part.RECEIPTS in parts:
            figures += receipts(place / "receipts", ORIGINS)
    about = {"seed": str(seed), "messages": str(messages), "devices": str(DEVICES), "cold": str(cold)}
    end_bench("cloud", figures, time.monotonic() - started, as_json, ("job", "plain copy"), about)


def _in_session(parts: Sequence[Part], place: Path, messages: int, earlier: int, seed: int) -> Iterator[Figure]:
    if not {Part.STEADY, Part.HISTORY} & set(parts):
        return
    spark = open_session(cache_directory(), long_run=True)
    try:
        if Part.STEADY in parts:
            yield from steady(Lake(spark, place, Fleet(place / "landing", seed)), messages)
        if Part.HISTORY in parts:
            yield from history(spark, place / "history", earlier, messages, seed)
    finally:
        spark.stop()


def _cold(parts: Sequence[Part], place: Path, messages: int, seed: int) -> Iterator[Figure]:
    if not {Part.COLD, Part.MEMORY} & set(parts):
        return
    few = run_cold(place / "cold", messages, seed)
    yield from few.figures()
    if Part.MEMORY in parts:
        yield from flat(few, run_cold(place / "memory", MEMORY_TIMES * messages, seed))
