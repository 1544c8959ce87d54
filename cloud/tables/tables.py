"""The Delta tables: their columns, appends that are done once, and which batches they hold."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from cloud.landing.durable_file import sync


class Table(NamedTuple):
    """A table's name and its columns in Spark's DDL. `partition` is the column that divides its files, if any."""

    name: str
    columns: str
    partition: str | None = None

    @property
    def column_names(self) -> list[str]:
        return re.findall(r"^\s*(\w+) ", self.columns, re.MULTILINE)


BRONZE_MESSAGES = Table(
    "bronze_messages",
    """\
    origin STRING,
    epoch BIGINT,
    seq BIGINT,
    topic STRING,
    payload BINARY,
    qos TINYINT,
    retain BOOLEAN,
    content_type STRING,
    received_at TIMESTAMP,
    gateway STRING,
    landed_at TIMESTAMP,
    lander STRING,
    file STRING,
    batch BIGINT,
    ingest_date DATE""",
    partition="ingest_date",
)
READINGS = Table(
    "readings",
    """\
    origin STRING,
    epoch BIGINT,
    seq BIGINT,
    record INT,
    device STRING,
    metric STRING,
    unit STRING,
    time TIMESTAMP,
    boot_id BIGINT,
    uptime_ms BIGINT,
    value DOUBLE,
    value_string STRING,
    value_bool BOOLEAN,
    value_data BINARY,
    sum DOUBLE,
    topic STRING,
    received_at TIMESTAMP,
    batch BIGINT,
    event_date DATE""",
    partition="event_date",
)
QUARANTINE = Table(
    "quarantine",
    """\
    kind STRING,
    reason STRING,
    origin STRING,
    epoch BIGINT,
    seq BIGINT,
    topic STRING,
    payload BINARY,
    content_type STRING,
    received_at TIMESTAMP,
    landed_at TIMESTAMP,
    file STRING,
    batch BIGINT,
    ingest_date DATE""",
)
LEDGER = Table(
    "ledger",
    """\
    origin STRING,
    epoch BIGINT,
    lo BIGINT,
    hi BIGINT,
    batch BIGINT""",
)
BATCHES = Table(
    "batches",
    """\
    batch BIGINT,
    checkpoint STRING,
    files INT,
    rows_in BIGINT,
    new BIGINT,
    duplicates BIGINT,
    quarantined BIGINT,
    undecodable BIGINT,
    conflicts BIGINT,
    readings BIGINT,
    planned_at TIMESTAMP,
    proved_at TIMESTAMP""",
)
LANDING_FILES = Table(
    "landing_files",
    """\
    file STRING,
    lander STRING,
    boot BIGINT,
    number BIGINT,
    rows BIGINT,
    bytes BIGINT,
    sha256 STRING,
    status STRING,
    reason STRING,
    batch BIGINT,
    recorded_at TIMESTAMP""",
)
INGESTED = "ingested"
SET_ASIDE = "set aside"
"""The `status` of a landing file."""

JOB_LOCK = ".lock"
"""The file that a job locks, so that one job at a time works on the tables. It stays."""

DATA_TABLES = (BRONZE_MESSAGES, READINGS, QUARANTINE)
TABLES = (*DATA_TABLES, LEDGER, BATCHES, LANDING_FILES)


class Transaction(NamedTuple):
    """Names an append of a batch to Delta: the id of the checkpoint, and the batch number, which only grows."""

    checkpoint: str
    number: int


class Tables:
    """The folder with the tables. A table exists from its first append on."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark = spark
        self.folder = folder

    def exists(self, table: Table) -> bool:
        """Whether the table has a log: commits, or a checkpoint of commits that Delta has removed."""
        return any(re.match(r"\d{20}\.(json|checkpoint)", path.name) for path in self._log(table).glob("*"))

    def read(self, table: Table) -> DataFrame:
        """Returns the table's rows, and an empty frame when it does not exist yet."""
        if not self.exists(table):
            return self.spark.createDataFrame([], table.columns)
        return self.spark.read.format("delta").load(str(self._path(table)))

    def append(self, table: Table, rows: DataFrame, transaction: Transaction | None) -> None:
        """Appends rows and syncs them to the disk. Does nothing when the table has this transaction already."""
        writer = rows.select(table.column_names).write.format("delta").mode("append")
        if table.partition:
            writer = writer.partitionBy(table.partition)
        if transaction:
            writer = writer.option("txnAppId", transaction.checkpoint).option("txnVersion", transaction.number)
        writer.save(str(self._path(table)))
        self._sync_last_commit(table)

    def append_values(self, table: Table, rows: list[tuple[Any, ...]], transaction: Transaction | None) -> None:
        """Does the same for a few rows of Python values."""
        self.append(table, self.spark.createDataFrame(rows, table.columns).coalesce(1), transaction)

    def last_batch(self, table: Table) -> int:
        """Returns the highest batch number in the table's rows; 0 without one."""
        if not self.exists(table):
            return 0
        (row,) = self.read(table).agg(sf.max("batch")).collect()
        return row[0] or 0

    def batches_after(self, table: Table, number: int) -> set[int]:
        """Returns the batch numbers above `number` in the table's rows."""
        if not self.exists(table):
            return set()
        found = self.read(table).where(sf.col("batch") > number).select("batch").distinct()
        return {row.batch for row in found.collect()}

    def take_back(self, table: Table, batch: int) -> None:
        """Deletes the batch's rows and syncs the deletion to the disk."""
        if self.exists(table):
            self.spark.sql(f"DELETE FROM delta.`{self._path(table)}` WHERE batch = {batch}")
            self._sync_last_commit(table)

    def _path(self, table: Table) -> Path:
        return self.folder / table.name

    def _log(self, table: Table) -> Path:
        return self._path(table) / "_delta_log"

    def _sync_last_commit(self, table: Table) -> None:
        """Syncs the files of the last commit, which Spark leaves in the system's cache.

        A log without a commit has nothing to sync: Delta removes commits that are older than a month.
        """
        commits = [path for path in self._log(table).glob("*.json") if re.fullmatch(r"\d{20}", path.stem)]
        if not commits:
            return
        commit = max(commits)
        added = [self._path(table) / unquote(action["add"]["path"]) for action in _actions(commit) if "add" in action]
        for path in (*added, commit):
            sync(path)
        for folder in {path.parent for path in (*added, commit)} | {self._path(table), self.folder}:
            sync(folder)


def _actions(commit: Path) -> Iterator[dict[str, Any]]:
    return map(json.loads, commit.read_text().splitlines())
