"""What a batch and a question cost over the rows of many earlier batches.

The earlier batches are real: the job has taken in their landing files. Only their readings are left out.
"""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

from pyspark.sql import SparkSession

from cloud import OpenTables, open_views, select
from tools.lab.bench.cloud.lake import Lake, without_readings
from tools.lab.bench.cloud.landing import Fleet
from tools.lab.bench.cloud.steady import REPEATED_SHARE, ROUNDS
from tools.lab.figure import Figure

DEVICES = 10_000
STEP = 1_000_000
WARM = 25
"""How many questions a session has answered until Java has compiled what they need; the time falls until then."""
GAPS = "SELECT reason, count(*) AS gaps, sum(missing) AS missing FROM gaps GROUP BY reason"


def history(spark: SparkSession, place: Path, earlier: int, messages: int, seed: int) -> Iterator[Figure]:
    """Measures over ``earlier`` messages of earlier batches.

    place: an empty folder.
    messages: how many messages each measured batch has.
    """
    young = Lake(spark, place / "young", Fleet(place / "young" / "landing", seed, DEVICES, has_losses=True))
    old = Lake(spark, place / "old", Fleet(place / "old" / "landing", seed, DEVICES, has_losses=True))
    _fill(young, messages)
    _fill(old, earlier)
    plain: list[float] = []
    repeated: dict[Lake, list[float]] = {young: [], old: []}
    for _ in range(ROUNDS):
        old.land(messages)
        plain.append(old.ingest())
        for lake, found in repeated.items():
            lake.land(messages, messages // REPEATED_SHARE)
            found.append(lake.ingest())
    over = f"over {earlier:,} rows"
    ratio = min(repeated[old]) / min(plain)
    yield Figure(f"time of a batch with 1 % duplicates {over}, of one without", "x", ratio, None, 1.4, at_most=True)
    ratio = min(repeated[old]) / min(repeated[young])
    yield Figure(f"time of a batch with 1 % duplicates {over}, of one over few", "x", ratio, None, 1.2, at_most=True)
    yield from _questions(spark, old.tables, f"{DEVICES:,} devices, {earlier:,} messages")


def _questions(spark: SparkSession, tables: Path, size: str) -> Iterator[Figure]:
    """Asks for all gaps, in the embedded engine, where it was asked once before, and in Spark, in a warm session."""
    with OpenTables(tables) as engine:
        took_s = _time_after(1, lambda: engine.select(GAPS))
    yield Figure(f"gap query, {size}, embedded", "s", took_s, None, 1, at_most=True)
    open_views(spark, tables)
    took_s = _time_after(WARM, lambda: select(spark, GAPS))
    yield Figure(f"gap query, {size}, Spark, warm", "s", took_s, None, 3, at_most=True)


def _time_after(times: int, ask: Callable[[], object]) -> float:
    """Returns the best time of three, after a question was asked this often."""
    took = []
    for _ in range(times + 3):
        began = time.perf_counter()
        ask()
        took.append(time.perf_counter() - began)
    return min(took[-3:])


def _fill(lake: Lake, messages: int) -> None:
    with without_readings():
        while messages > 0:
            lake.land(min(messages, STEP))
            lake.ingest()
            lake.delete_landed()
            messages -= STEP
