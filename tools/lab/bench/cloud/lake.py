"""A landing folder and its tables in a warm Spark session: what lands, and how long the job takes for it."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from cloud import ingest
from cloud.job import batch as job_batch
from cloud.job import take_in
from cloud.job.part import Part
from cloud.job.take_in import Decoder, Done
from cloud.tables.tables import Tables
from cloud.transforms.rows import Landed, decode
from tools.lab.bench.cloud.landing import Fleet


class Lake:
    """The messages of a fleet, which land in one folder and are taken into the tables of another."""

    def __init__(self, spark: SparkSession, place: Path, fleet: Fleet) -> None:
        self.tables = place / "tables"
        self._spark = spark
        self._copies = place / "copy"
        self._fleet = fleet
        self._copied: set[Path] = set()
        self._boot = 0

    def land(self, messages: int, repeated: int = 0) -> None:
        """Lands new messages, and ``repeated`` that landed before."""
        self._boot += 1
        self._fleet.land(messages, repeated, self._boot)

    def copy(self) -> float:
        """Copies the new landing files to a table, and returns the seconds."""
        new = set(self._fleet.folder.glob("*.parquet")) - self._copied
        self._copied |= new
        began = time.perf_counter()
        rows = self._spark.read.parquet(*map(str, sorted(new)))
        rows.write.format("delta").mode("append").save(str(self._copies))
        return time.perf_counter() - began

    def ingest(self) -> float:
        """Lets the job take in what is new, and returns the seconds."""
        self._copied |= set(self._fleet.folder.glob("*.parquet"))
        began = time.perf_counter()
        ingest(self._spark, self._fleet.folder, self.tables)
        return time.perf_counter() - began

    def delete_landed(self) -> None:
        """Deletes the landing files but the newest, from which a lander takes its next number."""
        for path in sorted(self._fleet.folder.glob("*.json"), key=lambda path: path.stem.rpartition("-")[2])[:-1]:
            path.unlink()
            path.with_suffix(".parquet").unlink()


@contextmanager
def without_readings() -> Iterator[None]:
    """Lets the job leave out the decoders while this is open."""
    run_parts = take_in.run_parts

    def run(tables: Tables, parts: list[Part], verdicts: DataFrame | None, _: Decoder) -> list[Done]:
        return run_parts(tables, parts, verdicts, _decode_nothing)

    setattr(job_batch, "run_parts", run)  # noqa: B010
    try:
        yield
    finally:
        setattr(job_batch, "run_parts", run_parts)  # noqa: B010


def _decode_nothing(landed: Landed) -> Landed:
    """Gives no message a record."""
    records = decode(landed.take(pa.array([0], pa.int64()))).messages["records"].type
    return landed._replace(messages=landed.messages.append_column("records", pa.nulls(len(landed.messages), records)))
