"""The job takes landing files that no batch has taken yet into the tables, each message once.

This module decides what a batch holds. The plan of the batch that runs is on the disk, and a batch that was interrupted
runs again as it was planned. Where it cannot, because its checkpoint is gone or its files have changed, its rows are
deleted from the tables first, and its files are planned again.

The rows of the tables show which batches count: a table's log goes back 30 days only.
"""

import fcntl
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from cloud.landing.manifest import Manifest, ManifestError
from cloud.spark.session import generated_code, open_session
from cloud.tables import batch, ledger
from cloud.tables.batch import FilesRefused
from cloud.tables.landed import read_landing_file
from cloud.tables.migrate import migrate
from cloud.tables.plan import Checkpoint, Plan, SetAside, choose, find_missing, list_landed, next_plan
from cloud.tables.schema import BATCHES, BRONZE_MESSAGES, DATA_TABLES, INGESTED, LANDING_FILES, LEDGER, SET_ASIDE
from cloud.tables.tables import JOB_LOCK, Tables, Transaction
from cloud.transforms.own_decoders import OwnDecoder, find_decoders


class JobRunning(Exception):
    """Another job is working on these tables."""


class LedgerLost(Exception):
    """The tables hold batches that the ledger does not know. Nothing was written or deleted. The text names them."""


class Report(msgspec.Struct):
    """What one run did. `rows_in` = `new` + `duplicates` + `quarantined`.

    `set_aside` has the landing files that cannot be used, and `missing` those that a lander wrote and that are gone.
    `taken_back` has the batches whose rows were deleted because they were interrupted and could not go on.
    """

    batches: int = 0
    files: int = 0
    rows_in: int = 0
    new: int = 0
    duplicates: int = 0
    quarantined: int = 0
    readings: int = 0
    set_aside: list[SetAside] = msgspec.field(default_factory=list)
    missing: list[SetAside] = msgspec.field(default_factory=list)
    taken_back: list[int] = msgspec.field(default_factory=list)


def ingest(
    spark: SparkSession | None,
    landing: Path | str,
    tables: Path | str,
    *,
    cache: Path | None = None,
    decoders: Iterable[Path | str] = (),
) -> Report:
    """Takes the landing files that are new since the last run into the tables, each message once.

    It may be killed at any time: the next run goes on where this one ended.

    spark: a session of `open_session`, or one of your own with Delta Lake and the time zone UTC. With None, the
        process's active session is used, or one is started.
    landing: the folder with the landing files.
    tables: the folder with the tables. It is made where it does not exist.
    cache: the folder for Delta's jars, as `open_session` takes it.
    decoders: Python files with decoders of one's own. Those of installed packages are used too.

    Raises BadDecoder when such a file or package cannot be used, FileNotFoundError when there is no landing folder,
    another OSError when a folder cannot be used, SparkMissing when Spark does not start, JobRunning when another job
    works on the tables, and ProofFailed or LedgerLost when the tables and the landing files do not fit together: then
    nothing of the batch was written.
    """
    own = find_decoders(decoders)
    landing, tables = Path(landing).absolute(), Path(tables).absolute()
    if not landing.is_dir():
        raise FileNotFoundError(f"the landing folder {landing} does not exist")
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
        self._landing = landing
        self._own = own
        self._tables = Tables(spark, folder)
        migrate(self._tables)
        self._tables.create_missing()
        self._checkpoint = Checkpoint(folder / "_checkpoint")
        self._checkpoint_id = self._checkpoint.open()
        self._recorded = self._tables.rows(LANDING_FILES, ["file", "status", "reason"])
        self._in_ledger = self._tables.last_batch(LEDGER)
        self._counting = max(self._in_ledger, self._tables.last_batch(LANDING_FILES))
        self._next = 1 + self._counting
        self._report = Report()

    def run(self) -> Report:
        interrupted = self._find_interrupted()
        pending = self._resume()
        if interrupted is not None and (pending is None or pending.batch != interrupted):
            pending = None
            self._take_back(interrupted)
        if pending is not None and not self._is_done(pending):
            self._carry_out(pending)
        self._take_new_files()
        self._record_set_aside()
        for table in (LANDING_FILES, BATCHES):
            self._tables.compact(table)
        ledger.merge(self._tables)
        return self._report

    # Before the batches

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

    def _resume(self) -> Plan | None:
        """Returns the plan of an interrupted batch. Where it cannot be carried out, the checkpoint is made anew."""
        plan = self._checkpoint.pending()
        try:
            for described in plan.files if plan else []:
                read_landing_file(described, self._landing)
        except ManifestError:
            self._renew_checkpoint()
            return None
        return plan

    def _is_done(self, plan: Plan) -> bool:
        recorded = self._recorded.filter(pc.equal(self._recorded["status"], INGESTED))["file"]
        return {described.file for described in plan.files} <= set(recorded.to_pylist())

    def _take_back(self, number: int) -> None:
        """Deletes the rows of an interrupted batch. The next batch runs under another checkpoint."""
        self._renew_checkpoint()
        for table in (*DATA_TABLES, BATCHES):
            self._tables.take_back(table, number)
        self._next = max(self._next, number + 1)
        self._report.taken_back.append(number)

    def _renew_checkpoint(self) -> None:
        self._checkpoint.discard()
        self._checkpoint_id = self._checkpoint.open()

    # The batches

    def _take_new_files(self) -> None:
        recorded = self._tables.rows(LANDING_FILES, ["file", "status", "lander", "number"])
        is_ingested = pc.equal(recorded["status"], INGESTED)
        ingested, doubted = (
            recorded.filter(is_ingested),
            set(recorded.filter(pc.invert(is_ingested))["file"].to_pylist()),
        )
        landed = pa.array(list_landed(self._landing), pa.string())
        taken = pc.is_in(landed, value_set=ingested["file"].combine_chunks())
        untaken = landed.filter(pc.invert(taken)).to_pylist()
        self._report.missing = find_missing(ingested, {*untaken, *doubted})
        files, aside = choose(self._landing, untaken, doubted)
        self._report.set_aside += [item for item in aside if item not in self._report.set_aside]
        while files:
            plan = next_plan(files, self._next, time.time_ns() // 1_000_000)
            self._checkpoint.write(plan)
            done = self._carry_out(plan)
            files = _without(files, done)

    def _carry_out(self, plan: Plan) -> set[str]:
        """Carries out a batch, without the files of it that are refused. Returns the names of all its files."""
        names = {described.file for described in plan.files}
        while plan.files:
            self._next = plan.batch + 1
            try:
                transaction = Transaction(self._checkpoint_id, plan.batch)
                counts = batch.carry_out(plan, transaction, self._landing, self._tables, self._own)
            except FilesRefused as refused:
                plan = self._without_refused(plan, refused.files)
                continue
            self._add_to_report(plan, counts)
            break
        self._checkpoint.forget_plan()
        return names

    def _without_refused(self, plan: Plan, refused: list[SetAside]) -> Plan:
        """Returns the plan of the other files."""
        self._report.set_aside += refused
        number = plan.batch
        if any(number in self._tables.batches_after(table, number - 1) for table in (*DATA_TABLES, BATCHES)):
            self._take_back(number)
            number = self._next
        plan = Plan(number, plan.planned_ms, _without(plan.files, {file for file, _ in refused}))
        self._checkpoint.write(plan)
        return plan

    def _add_to_report(self, plan: Plan, counts: batch.Counts) -> None:
        report = self._report
        report.batches += 1
        report.files += len(plan.files)
        report.rows_in += batch.rows_of(plan)
        report.new += counts.new
        report.duplicates += counts.duplicates
        report.quarantined += counts.quarantined
        report.readings += counts.readings

    # After the batches

    def _record_set_aside(self) -> None:
        self._report.set_aside.sort()
        now = datetime.now(UTC)
        known = set(zip(*(self._recorded[name].to_pylist() for name in ("file", "status", "reason")), strict=True))
        unheard = [item for item in self._report.set_aside if (item.file, SET_ASIDE, item.reason) not in known]
        rows = [(item.file, *[None] * 6, SET_ASIDE, item.reason, None, now) for item in unheard]
        if rows:
            self._tables.append_values(LANDING_FILES, rows, None)


def _without(files: list[Manifest], names: set[str]) -> list[Manifest]:
    return [described for described in files if described.file not in names]
