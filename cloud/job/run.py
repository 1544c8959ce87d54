"""The job takes landing files that no batch has taken yet into the tables, each message once.

This module decides what a batch holds. The plan of the batch that runs is on the disk, and a batch that was interrupted
runs again as it was planned. Where it cannot, because its checkpoint is gone or its files have changed, its rows are
deleted from the tables first, and its files are planned again.

The rows of the tables show which batches count: a table's log goes back 30 days only.
"""

import time
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from cloud.job import batch
from cloud.job.batch import FilesRefused
from cloud.job.lock import Hold, only_job
from cloud.job.plan import Again, Checkpoint, Plan, SetAside, choose, find_missing, list_landed, next_files
from cloud.job.proof import Counts
from cloud.landing.manifest import LandingFile
from cloud.spark.session import generated_code, open_session
from cloud.storage.place import open_storage
from cloud.storage.storage import Storage
from cloud.tables import ledger
from cloud.tables.data_file import DataFile
from cloud.tables.schema import (
    BATCHES,
    BRONZE_MESSAGES,
    DATA_TABLES,
    INGESTED,
    LANDING_FILES,
    LEDGER,
    QUARANTINE,
    SET_ASIDE,
    STATEMENT_TABLES,
)
from cloud.tables.tables import Transaction, require_tables
from cloud.transforms.own_decoders import OwnDecoder, find_decoders, fingerprint
from cloud.transforms.rows import DECODED, UNDECODABLE
from cloud.transforms.verdicts.classify import IDENTITY

_NOT_OF_THESE = (
    "the tables `ledger`, `batches` and `landing_files` are not those of these rows. Nothing was deleted and nothing "
    "taken in; bring these tables back from a copy, or make all tables anew with `holdfast cloud rebuild`"
)


class LedgerLost(Exception):
    """The tables hold batches that the ledger does not know, or the ledger has batches that `batches` lacks.

    Nothing was written or deleted. The text names them.
    """


class Report(msgspec.Struct):
    """What one run did. `rows_in` = `new` + `duplicates` + `quarantined`.

    `set_aside` has the landing files that cannot be used, and `missing` the ones that a lander wrote and that are gone.
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
    landing: the folder with the landing files: a path, or the URL of a part of an object store, s3://BUCKET/PREFIX.
    tables: the folder with the tables, a path or a URL. It is made where it does not exist.
    cache: the folder for Delta's jars, as `open_session` takes it.
    decoders: Python files with decoders of one's own. Decoders of installed packages are used too.

    Raises BadDecoder when such a file or package cannot be used, ValueError for a bad URL, FileNotFoundError when there
    is no landing folder, another OSError when a folder or an object store cannot be used, SparkMissing when Spark does
    not start, JobRunning when another job works on the tables, and ProofFailed or LedgerLost when the tables and the
    landing files do not fit together: then nothing of the batch was written.
    """
    own = find_decoders(decoders)
    landed = open_storage(landing)
    if not landed.is_there():
        raise FileNotFoundError(f"the landing folder {landed} does not exist")
    folder = open_storage(tables)
    spark = spark or open_session(cache)
    with only_job(folder) as hold, generated_code(spark, False):
        return _Job(spark, landed, hold, own).run()


def requarantine(
    spark: SparkSession | None,
    landing: Path | str,
    tables: Path | str,
    *,
    cache: Path | None = None,
    decoders: Iterable[Path | str] = (),
) -> Report:
    """Decodes the undecodable messages in `quarantine` again. Messages that can be decoded now join `readings`, once.

    It may be killed at any time. A batch of `ingest` that was interrupted is completed first. The arguments and errors
    are those of `ingest`; new landing files stay where they are.
    """
    own = find_decoders(decoders)
    require_tables(tables)
    spark = spark or open_session(cache)
    with only_job(tables) as hold, generated_code(spark, False):
        return _Job(spark, open_storage(landing), hold, own).run_again()


class _Job:
    """One run of the job."""

    def __init__(self, spark: SparkSession, landing: Storage, hold: Hold, own: Sequence[OwnDecoder]) -> None:
        self._landing = landing
        self._own = own
        self._tables = hold.open_tables(spark)
        self._checkpoint = Checkpoint(hold.checkpoint)
        self._checkpoint_id = self._checkpoint.open()
        self._recorded = self._tables.rows(LANDING_FILES, ["file", "status", "reason"])
        self._decoders = fingerprint(own)
        self._in_ledger = self._tables.last_batch(LEDGER)
        self._landed = max(self._in_ledger, self._tables.last_batch(LANDING_FILES))
        self._counting = self._tables.last_counting()
        self._next = 1 + self._counting
        self._report = Report()

    def run(self) -> Report:
        """Takes in the landing files that are new."""
        self._complete_interrupted()
        self._take_new_files()
        self._record_set_aside()
        for table in (LANDING_FILES, BATCHES, *STATEMENT_TABLES):
            self._tables.compact(table)
        for table in ledger.MERGING:
            ledger.merge(self._tables, table)
        return self._report

    def run_again(self) -> Report:
        """Decodes what is in quarantine again."""
        self._complete_interrupted()
        self._decode_again()
        self._record_set_aside()
        return self._report

    # Before the batches

    def _complete_interrupted(self) -> None:
        """Carries out the batch that was interrupted, or deletes its rows where that cannot be done."""
        interrupted = self._find_interrupted()
        if interrupted is not None or self._checkpoint.pending():
            for table in (*DATA_TABLES, LEDGER):
                self._tables.discard_uncommitted(table, self._next)
        pending = self._resume()
        if pending is not None and not self._is_of_these_tables(pending, interrupted):
            self._renew_checkpoint()
            pending = None
        if interrupted is not None and (pending is None or pending.batch != interrupted):
            pending = None
            self._take_back(interrupted)
        if pending is not None and not self._is_done(pending):
            self._carry_out(pending)
        self._let_decoded_leave()

    def _find_interrupted(self) -> int | None:
        """Returns the batch that left rows in the tables and does not count; None when there is none.

        A batch counts once its new messages are in the ledger, or, if it has none, once its files are recorded, or, if
        it has no files, once it is in `batches`. A run begins a batch when the one before counts, so at most the last
        one does not count.
        """
        unknown = self._tables.batches_after(BRONZE_MESSAGES, self._in_ledger)
        not_counting = {
            batch for table in (*DATA_TABLES, BATCHES) for batch in self._tables.batches_after(table, self._counting)
        }
        last = self._tables.last_batch(BATCHES)
        if len(not_counting) > 1 or unknown - not_counting or (not_counting and last < self._landed):
            *others, newest = sorted(not_counting | unknown)
            named = f"batches {', '.join(map(str, others))} and {newest}" if others else f"batch {newest}"
            raise LedgerLost(f"the tables have rows of {named}, which the ledger does not know: {_NOT_OF_THESE}")
        if last < self._landed:
            raise LedgerLost(
                f"`ledger` or `landing_files` have batch {self._landed}, and `batches` ends with batch {last}: "
                f"{_NOT_OF_THESE}"
            )
        return next(iter(not_counting), None)

    def _is_of_these_tables(self, plan: Plan, interrupted: int | None) -> bool:
        """Whether a plan is of a batch that is still to begin, or of the last one, begun under this checkpoint.

        One that came with a checkpoint of a copy, or of another machine, is neither.
        """
        if plan.batch > self._counting and plan.batch != interrupted:
            return True
        begun = Transaction(self._checkpoint_id, plan.batch)
        return plan.batch >= self._counting and any(self._tables.has(table, begun) for table in (*DATA_TABLES, BATCHES))

    def _resume(self) -> Plan | None:
        """Returns the plan of an interrupted batch. Where it cannot be carried out, the checkpoint is made anew."""
        plan = self._checkpoint.pending()
        here = {file.place for file in self._tables.files(QUARANTINE)}
        if plan and plan.decoders == self._decoders and here.issuperset(one.file for one in plan.again):
            return plan
        if self._checkpoint.pending():
            self._renew_checkpoint()
        return None

    def _is_done(self, plan: Plan) -> bool:
        if plan.again:
            return plan.batch <= self._counting
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
            done = self._carry_out(self._plan(files=next_files(files)))
            files = _without(files, done)

    def _decode_again(self) -> None:
        """Carries out batches of the undecodable messages that are in quarantine now."""
        found = (Again(file.place, self._count_undecodable(file)) for file in self._tables.files(QUARANTINE))
        waiting = [one for one in found if one.rows]
        while waiting:
            taken = next_files(waiting)
            waiting = waiting[len(taken) :]
            self._carry_out(self._plan(again=taken))
        self._let_decoded_leave()

    def _count_undecodable(self, file: DataFile) -> int:
        kinds = self._tables.read_file(QUARANTINE, file, ["kind"])["kind"]
        return int(pc.sum(pc.equal(kinds, UNDECODABLE)).as_py() or 0)

    def _let_decoded_leave(self) -> None:
        """Deletes the messages from quarantine that are noted there as decoded, with the notes."""
        columns = [*IDENTITY, "kind"]
        decoded = self._tables.rows(QUARANTINE, columns, pc.field("kind") == DECODED)
        if not decoded.num_rows:
            return
        identities = decoded.select(IDENTITY)

        def leaves(rows: pa.Table) -> pa.Array:
            numbered = rows.append_column("row", pa.array(range(rows.num_rows), pa.int64()))
            found = numbered.join(identities, IDENTITY, join_type="left semi")
            found = found.filter(pc.is_in(found["kind"], pa.array([UNDECODABLE, DECODED])))
            return pc.is_in(numbered["row"], value_set=found["row"].combine_chunks())

        self._tables.delete(QUARANTINE, columns, leaves, lambda _: True)

    def _plan(self, files: list[LandingFile] | None = None, again: list[Again] | None = None) -> Plan:
        """Returns the plan of the next batch, which is on the disk then."""
        plan = Plan(self._next, time.time_ns() // 1_000_000, files or [], self._decoders, again or [])
        self._checkpoint.write(plan)
        return plan

    def _carry_out(self, plan: Plan) -> set[str]:
        """Carries out a batch, without the files of it that are refused. Returns the names of all its files."""
        names = {described.file for described in plan.files}
        while plan.files or plan.again:
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
        rest = _without(plan.files, {file for file, _ in refused})
        plan = Plan(number, plan.planned_ms, rest, plan.decoders)
        self._checkpoint.write(plan)
        return plan

    def _add_to_report(self, plan: Plan, counts: Counts) -> None:
        report = self._report
        report.batches += 1
        report.files += len(plan.files)
        report.rows_in += plan.rows
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


def _without(files: list[LandingFile], names: set[str]) -> list[LandingFile]:
    return [described for described in files if described.file not in names]
