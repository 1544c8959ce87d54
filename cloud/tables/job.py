"""The job takes landing files that no batch has taken yet into the tables, each message once.

This module decides what a batch holds. Spark's Structured Streaming runs the batches and remembers how far it came. A
batch that was interrupted runs again as it was planned. Where it cannot, because its checkpoint is gone or its files
have changed, its rows are deleted from the tables first, and its files are planned again.

The rows of the tables show which batches count: a table's log goes back 30 days only.
"""

import fcntl
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import msgspec
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from cloud.landing import manifest
from cloud.landing.manifest import ManifestError
from cloud.spark.session import generated_code, open_session
from cloud.tables import batch
from cloud.tables.plan import Checkpoint, Plan, SetAside, choose, divide, read_plan
from cloud.tables.tables import (
    BATCHES,
    BRONZE_MESSAGES,
    DATA_TABLES,
    INGESTED,
    JOB_LOCK,
    LANDING_FILES,
    LEDGER,
    SET_ASIDE,
    Tables,
    Transaction,
)
from cloud.transforms.own_decoders import OwnDecoder, find_decoders

_WORTH_COMPILING_ROWS = 50_000
_NEVER = "100000d"  # Spark's file source forgets files that are older than the newest one by more than this


class JobRunning(Exception):
    """Another job is working on these tables."""


class LedgerLost(Exception):
    """The tables hold batches that the ledger does not know. Nothing was written or deleted. The text names them."""


class Report(msgspec.Struct):
    """What one run did. `rows_in` = `new` + `duplicates` + `quarantined`.

    `set_aside` has the landing files that cannot be used. `taken_back` has the batch whose rows were deleted because
    it was interrupted and could not go on, if there was one.
    """

    batches: int = 0
    files: int = 0
    rows_in: int = 0
    new: int = 0
    duplicates: int = 0
    quarantined: int = 0
    readings: int = 0
    set_aside: list[SetAside] = msgspec.field(default_factory=list)
    taken_back: list[int] = msgspec.field(default_factory=list)


def ingest(
    landing: Path | str,
    tables: Path | str,
    *,
    spark: SparkSession | None = None,
    cache: Path | None = None,
    decoders: Iterable[Path | str] = (),
) -> Report:
    """Takes the landing files that are new since the last run into the tables, each message once.

    It may be killed at any time: the next run goes on where this one ended.

    landing: the folder with the landing files.
    tables: the folder with the tables. It is made where it does not exist.
    spark: a session of `open_session`, or one of your own with Delta Lake and the time zone UTC. Without it, the
        process's active session is used, or one is started.
    cache: the folder for Delta's jars, as `open_session` takes it.
    decoders: Python files with decoders of one's own. Those of installed packages are used too.

    Raises BadDecoder when such a file or package cannot be used, FileNotFoundError when there is no landing folder,
    another OSError when a folder cannot be used, SparkMissing when Spark does not start, JobRunning when another job
    works on the tables, and ProofFailed or LedgerLost when the tables and the landing files do not fit together: then
    nothing of the batch was written.
    """
    landing, tables = Path(landing).absolute(), Path(tables).absolute()
    if not landing.is_dir():
        raise FileNotFoundError(f"the landing folder {landing} does not exist")
    own = find_decoders(decoders)
    spark = spark or open_session(cache)
    tables.mkdir(parents=True, exist_ok=True)
    with _only_job(tables), generated_code(spark, False):
        return _Job(spark, landing, tables, own).run()


@contextmanager
def _only_job(folder: Path) -> Iterator[None]:
    with (folder / JOB_LOCK).open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise JobRunning(f"another job is working on the tables in {folder}") from None
        yield


class _Job:
    """One run of the job."""

    def __init__(self, spark: SparkSession, landing: Path, folder: Path, own: Sequence[OwnDecoder]) -> None:
        self._spark = spark
        self._landing = landing
        self._own = own
        self._tables = Tables(spark, folder)
        self._checkpoint = Checkpoint(folder / "_checkpoint")
        self._recorded = self._load_recorded()
        self._ingested = {file for file, status, *_ in self._recorded if status == INGESTED}
        self._in_ledger = self._tables.last_batch(LEDGER)
        self._counting = max(self._in_ledger, *(batch or 0 for *_, batch in self._recorded), 0)
        self._carried_out: set[int] = set()
        self._report = Report()
        self._failure: Exception | None = None

    def run(self) -> Report:
        interrupted = self._find_interrupted()
        pending = self._resume()
        if interrupted is not None and interrupted not in {plan.batch for plan in pending}:
            pending = []
            self._take_back(interrupted)
        taken = self._ingested | {described.file for plan in pending for described in plan.files}
        sound, self._report.set_aside = choose(self._landing, taken)
        first = 1 + max([self._counting, interrupted or 0, *(plan.batch for plan in pending)])
        plans = [*pending, *divide(sound, first, time.time_ns() // 1_000_000)]
        if plans:
            self._carry_out_all(plans, is_planned=len(pending))
            self._checkpoint.forget_plans()
        self._record_set_aside()
        return self._report

    # Before the stream

    def _load_recorded(self) -> set[tuple[str, str, str | None, int | None]]:
        """Returns `file`, `status`, `reason` and `batch` of the table `landing_files`."""
        rows = self._tables.read(LANDING_FILES).select("file", "status", "reason", "batch")
        return set(map(tuple, rows.collect()))

    def _find_interrupted(self) -> int | None:
        """Returns the batch that left rows in the tables and does not count; None when there is none.

        A batch counts once its new messages are in the ledger, or, if it has none, once its files are recorded. A run
        begins a batch when the one before counts, so at most the last one does not count.
        """
        unknown = self._tables.batches_after(BRONZE_MESSAGES, self._in_ledger)
        not_counting = {
            batch for table in (*DATA_TABLES, BATCHES) for batch in self._tables.batches_after(table, self._counting)
        }
        if len(not_counting) > 1 or unknown - not_counting:
            *others, last = sorted(not_counting | unknown)
            named = f"batches {', '.join(map(str, others))} and {last}" if others else f"batch {last}"
            raise LedgerLost(
                f"the tables have rows of {named}, which the ledger does not know: the tables `ledger` and "
                "`landing_files` are not those of these rows. Nothing was deleted and nothing taken in; "
                "bring both tables back from a copy, or move all tables away and take every landing file in again"
            )
        return next(iter(not_counting), None)

    def _resume(self) -> list[Plan]:
        """Returns the plans of an interrupted run. Where they cannot be carried out, a new stream begins."""
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

    def _take_back(self, batch: int) -> None:
        """Deletes the rows of an interrupted batch. The next batch runs under another checkpoint."""
        self._checkpoint.discard()
        for table in (*DATA_TABLES, BATCHES):
            self._tables.take_back(table, batch)
        self._report.taken_back.append(batch)

    # The stream

    def _carry_out_all(self, plans: list[Plan], is_planned: int) -> None:
        """Runs the batches. The first `is_planned` plans are in the checkpoint already."""
        for plan in plans[is_planned:]:
            self._checkpoint.add(plan)
        self._stream()
        if passed_over := [plan for plan in plans if plan.batch not in self._carried_out]:
            # The tables were removed, but not the checkpoint: the stream has seen plans with these numbers before.
            self._checkpoint.discard()
            for plan in passed_over:
                self._checkpoint.add(plan)
            self._stream()

    def _stream(self) -> None:
        """Runs the plans in the checkpoint. Raises the error of a batch."""
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
        self._carried_out.add(plan.batch)
        if all(described.file in self._ingested for described in plan.files):
            return  # the last run was killed between its last append and Spark's note that the batch is done
        transaction = Transaction(self._checkpoint.id or "", plan.batch)
        rows_in = batch.rows_of(plan)
        with generated_code(self._spark, rows_in >= _WORTH_COMPILING_ROWS):
            counts = batch.carry_out(plan, transaction, self._landing, self._tables, self._own)
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
        known = {recorded[:3] for recorded in self._recorded}
        unheard = [item for item in self._report.set_aside if (item.file, SET_ASIDE, item.reason) not in known]
        rows = [(item.file, *[None] * 6, SET_ASIDE, item.reason, None, now) for item in unheard]
        if rows:
            self._tables.append_values(LANDING_FILES, rows, None)
