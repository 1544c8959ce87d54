"""`holdfast bench cloud`: the job beside a plain Spark copy of the same landing files."""

import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated

import pyarrow as pa
import typer
from pyspark.sql import SparkSession

from cloud import ingest, open_session
from cloud.tables import batch as job_batch
from cloud.transforms.rows import Landed, decode
from tools.cli.paths import cache_directory
from tools.lab.bench.cloud.landing import DEVICES, FILE_ROWS, Fleet
from tools.lab.bench.cloud.usage import Usage
from tools.lab.bench.figure import Figure
from tools.lab.result import JSON_OPTION, end_bench, quick_option
from tools.lab.testing.process import ProcessFailed

ROUNDS = 3
MESSAGES_A_CPU_SECOND = 80_000
PEAK_BYTES = 2_000_000_000
LANDING_BYTES = 16


def cloud(
    messages: Annotated[int, typer.Option(min=FILE_ROWS, help="Messages of each round.")] = 1_000_000,
    cold: Annotated[int, typer.Option(min=FILE_ROWS, help="Messages of the run with a cold start.")] = 5_000_000,
    seed: Annotated[int, typer.Option(help="The seed of the readings.")] = 1,
    quick: Annotated[bool, quick_option(messages=100_000, cold=100_000)] = False,
    as_json: Annotated[bool, JSON_OPTION] = False,
) -> None:
    """Measure the job beside a plain Spark copy of the same landing files. Ends with 1 if a goal is missed."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
        place = Path(folder)
        figures = [*_cold(place / "cold", cold, seed)]
        spark = open_session(cache_directory(), long_run=True)
        try:
            figures = [*_Rounds(spark, place, messages, seed).figures(), *figures]
        finally:
            spark.stop()
    about = {"seed": str(seed), "messages": str(messages), "devices": str(DEVICES), "cold": str(cold)}
    end_bench("cloud", figures, time.monotonic() - started, as_json, ("job", "plain copy"), about)


def _cold(place: Path, messages: int, seed: int) -> Iterator[Figure]:
    """Measures a process that starts, takes in all messages, and ends."""
    landed = Fleet(place / "landing", seed).land(messages)
    arguments = ["cloud", "ingest", "--landing", str(place / "landing"), "--tables", str(place / "tables")]
    usage = Usage([sys.executable, "-m", "tools.cli.main", *arguments])
    if usage.exit_code != 0:
        raise ProcessFailed(f"the job ended with exit code {usage.exit_code}: {usage.output}")
    yield Figure(
        "messages a CPU second, cold start, with readings", "1/s", messages / usage.cpu_s, None, MESSAGES_A_CPU_SECOND
    )
    yield Figure("peak memory of all processes", "B", usage.peak_bytes, None, PEAK_BYTES, at_most=True)
    yield Figure("landing bytes a message, with manifest", "B", landed / messages, None, LANDING_BYTES, at_most=True)
    shutil.rmtree(place)


class _Rounds:
    """What a warm session does with new landing files: the job and the copy take turns, and the best round counts."""

    def __init__(self, spark: SparkSession, place: Path, messages: int, seed: int) -> None:
        self._spark = spark
        self._place = place
        self._messages = messages
        self._fleet = Fleet(place / "landing", seed)
        self._copied: set[Path] = set()
        self._boot = 0

    def figures(self) -> Iterator[Figure]:
        copied: list[float] = []
        raw: list[float] = []
        readings: list[float] = []
        repeated: list[float] = []
        self._land(FILE_ROWS)
        self._copy()
        self._ingest()
        for _ in range(ROUNDS):
            self._land(self._messages)
            copied.append(self._copy())
            with _without_readings():
                raw.append(self._ingest())
            self._land(self._messages)
            copied.append(self._copy())
            readings.append(self._ingest())
            self._land(self._messages, self._messages // 100)
            repeated.append(self._ingest())
        plain = self._messages / min(copied)
        yield Figure("messages and ledger", "1/s", self._messages / min(raw), plain, 0.9 * plain)
        yield Figure("messages, ledger and readings", "1/s", self._messages / min(readings), plain, 0.5 * plain)
        ratio = min(repeated) / min(readings)
        yield Figure("time of a batch with 1 % duplicates, of one without", "x", ratio, None, 1.3, at_most=True)
        yield Figure("a batch of one message, warm session", "s", self._one_message(), None, 2, at_most=True)

    def _one_message(self) -> float:
        found = []
        for _ in range(5):
            self._land(1)
            found.append(self._ingest())
        return sorted(found)[2]

    def _land(self, messages: int, repeated: int = 0) -> None:
        self._boot += 1
        self._fleet.land(messages, repeated, self._boot)

    def _copy(self) -> float:
        """Copies the new landing files to a table, and returns the seconds."""
        new = set(self._fleet.folder.glob("*.parquet")) - self._copied
        self._copied |= new
        began = time.perf_counter()
        rows = self._spark.read.parquet(*map(str, sorted(new)))
        rows.write.format("delta").mode("append").save(str(self._place / "copy"))
        return time.perf_counter() - began

    def _ingest(self) -> float:
        self._copied |= set(self._fleet.folder.glob("*.parquet"))
        began = time.perf_counter()
        ingest(self._spark, self._fleet.folder, self._place / "tables")
        return time.perf_counter() - began


@contextmanager
def _without_readings() -> Iterator[None]:
    """Lets the job leave out the decoders while this is open."""
    run_parts = job_batch.run_parts
    setattr(job_batch, "run_parts", partial(run_parts, decoder=_decode_nothing))  # noqa: B010
    try:
        yield
    finally:
        setattr(job_batch, "run_parts", run_parts)  # noqa: B010


def _decode_nothing(landed: Landed) -> Landed:
    """Gives no message a record."""
    records = decode(landed.take(pa.array([0], pa.int64()))).messages["records"].type
    return landed._replace(messages=landed.messages.append_column("records", pa.nulls(len(landed.messages), records)))
