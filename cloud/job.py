"""The job: landing files that no batch has taken yet → tables, exactly once whatever happens in between.

Structured Streaming runs the batches and remembers how far it came; what a batch holds is decided here. A batch that
was interrupted runs again as it was planned. One that cannot, because its checkpoint is gone or its files have
changed, is taken back from the tables before anything else happens, and its files are planned anew.
"""

import fcntl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import msgspec
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from cloud import batch, manifest
from cloud.checkpoint import Checkpoint, read_plan
from cloud.manifest import ManifestError
from cloud.plan import Plan, SetAside, choose, divide
from cloud.spark import generated_code
from cloud.tables import (
    BATCHES,
    DATA_TABLES,
    INGESTED,
    LANDING_FILES,
    LEDGER,
    SET_ASIDE,
    TABLES,
    Table,
    Tables,
    Transaction,
)

_WORTH_COMPILING_ROWS = 50_000
_NEVER = "100000d"  # Spark's file source forgets files that are older than this, measured by the newest one


class JobRunning(Exception):
    """Another job works on these tables."""


class Report(msgspec.Struct):
    """What one run did. `rows_in` = `new` + `duplicates` + `quarantined`."""

    batches: int = 0
    files: int = 0
    rows_in: int = 0
    new: int = 0
    duplicates: int = 0
    quarantined: int = 0
    readings: int = 0
    set_aside: list[SetAside] = msgspec.field(default_factory=list)


def ingest(spark: SparkSession, landing: Path, folder: Path) -> Report:
    """Takes everything that has landed into the tables in `folder`.

    Raises ProofFailed, JobRunning, or OSError when a folder cannot be used.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with _only_job(folder), generated_code(spark, False):
        return _Job(spark, landing.absolute(), folder.absolute()).run()


@contextmanager
def _only_job(folder: Path) -> Iterator[None]:
    with (folder / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise JobRunning(f"another job is working on the tables in {folder}") from None
        yield


class _Job:
    """One run."""

    def __init__(self, spark: SparkSession, landing: Path, folder: Path) -> None:
        self._spark = spark
        self._landing = landing
        self._tables = Tables(spark, folder)
        self._checkpoint = Checkpoint(folder / "_checkpoint")
        self._recorded = self._load_recorded()
        self._ingested = {file for file, status, _ in self._recorded if status == INGESTED}
        self._report = Report()
        self._failure: Exception | None = None

    def run(self) -> Report:
        pending = self._resume()
        self._take_back_orphans(pending)
        taken = self._ingested | {described.file for plan in pending for described in plan.files}
        sound, self._report.set_aside = choose(self._landing, taken)
        for plan in divide(sound, self._next_number(pending), time.time_ns() // 1_000_000):
            self._checkpoint.add(plan)
        if pending or sound:
            self._stream()
            self._checkpoint.forget_plans()
        self._record_set_aside()
        return self._report

    # Before the stream

    def _load_recorded(self) -> set[tuple[str, str, str | None]]:
        if not self._tables.exists(LANDING_FILES):
            return set()
        return set(map(tuple, self._tables.read(LANDING_FILES).select("file", "status", "reason").collect()))

    def _resume(self) -> list[Plan]:
        """The plans of an interrupted run. When they cannot be carried out as they were, a new stream begins."""
        try:
            if self._checkpoint.id is not None:
                pending = self._checkpoint.pending()
                for plan in pending:
                    for described in plan.files:
                        if described.file not in self._ingested:
                            manifest.check_file(described, self._landing)
                return pending
        except (ManifestError, msgspec.MsgspecError):
            pass
        self._checkpoint.discard()
        return []

    def _take_back_orphans(self, pending: list[Plan]) -> None:
        """The rows of a batch that never got as far as the ledger, and will not run again under its transaction.

        A batch without a new message has nothing for the ledger: that one counts when its files are recorded.
        """
        sealed = max(self._last_number(LEDGER), self._last_number(LANDING_FILES))
        resumed = {Transaction(self._checkpoint.id or "", plan.batch) for plan in pending}
        for table in (*DATA_TABLES, BATCHES):
            last = self._tables.last_transaction(table)
            if last and last.number > sealed and last not in resumed:
                self._tables.take_back(table, above=sealed)

    def _last_number(self, table: Table) -> int:
        last = self._tables.last_transaction(table)
        return last.number if last else 0

    def _next_number(self, pending: list[Plan]) -> int:
        """Above every number that any log has seen, so that no table takes a new batch for one that it has."""
        return 1 + max([*map(self._last_number, TABLES), *(plan.batch for plan in pending)])

    # The stream

    def _stream(self) -> None:
        """Runs what is planned. Raises what a batch raised."""
        plans = self._spark.readStream.format("text").option("wholetext", True)
        source = plans.option("maxFilesPerTrigger", 1).option("maxFileAge", _NEVER).load(str(self._checkpoint.plans))
        writer = source.writeStream.foreachBatch(self._carry_out).trigger(availableNow=True)
        query = writer.option("checkpointLocation", str(self._checkpoint.folder)).start()
        try:
            query.awaitTermination()
        except StreamingQueryException as error:
            raise (self._failure or error) from None

    def _carry_out(self, plans: DataFrame, _batch_id: int) -> None:
        try:
            for row in plans.collect():
                self._carry_out_plan(read_plan(row.value))
        except Exception as error:
            self._failure = error
            raise

    def _carry_out_plan(self, plan: Plan) -> None:
        if all(described.file in self._ingested for described in plan.files):
            return  # killed between its last append and Spark's own note of it
        transaction = Transaction(self._checkpoint.id or "", plan.batch)
        rows_in = batch.rows_of(plan)
        with generated_code(self._spark, rows_in >= _WORTH_COMPILING_ROWS):
            counts = batch.carry_out(plan, transaction, self._landing, self._tables)
        report = self._report
        report.batches += 1
        report.files += len(plan.files)
        report.rows_in += rows_in
        report.new += counts.new
        report.duplicates += counts.duplicates
        report.quarantined += counts.quarantined
        report.readings += counts.readings

    # After the stream

    def _record_set_aside(self) -> None:
        now = datetime.now(UTC)
        unheard = [item for item in self._report.set_aside if (item.file, SET_ASIDE, item.reason) not in self._recorded]
        rows = [(item.file, *[None] * 6, SET_ASIDE, item.reason, None, now) for item in unheard]
        if rows:
            self._tables.append_values(LANDING_FILES, rows, None)
