"""One batch: the files of its plan → judged rows → data files, in Spark tasks → the proof → commits → the ledger.

The files are landing files, or data files of `quarantine` whose undecodable messages are decoded again.

A batch may be killed at any point and carried out again. Each commit is skipped where the table has its transaction
already. The batch compares only with rows of earlier batches, so it comes to the same verdicts again. A batch counts
once its intervals are in the ledger, or, when it decodes again, once it is in `batches`; until then its rows can be
deleted.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F

from cloud.job.births import find_births
from cloud.job.landed import read_landing_file
from cloud.job.part import Decoder, Done, Part, Verdicts, run_batches
from cloud.job.plan import Again, Plan, SetAside, read_manifests
from cloud.landing import intervals
from cloud.landing.intervals import Interval
from cloud.landing.manifest import Manifest, ManifestError, by_stream
from cloud.storage.storage import Storage
from cloud.tables import ledger
from cloud.tables.data_file import DataFile
from cloud.tables.ledger import Known
from cloud.tables.schema import (
    BATCHES,
    BRONZE_MESSAGES,
    DATA_TABLES,
    INGESTED,
    LANDING_FILES,
    LEDGER,
    QUARANTINE,
    READINGS,
    STATEMENTS,
    Table,
)
from cloud.tables.tables import Tables, Transaction
from cloud.transforms.classify import CONTENT, IDENTITY, NEW, Suspect, classify, find_within
from cloud.transforms.own_decoders import OwnDecoder
from cloud.transforms.rows import CONFLICT, decode, read_epochs, write_epochs

PART_ROWS = 250_000
"""The most rows of a part, unless one landing file has more."""


class Counts(NamedTuple):
    """The rows of a batch by kind. The `new` ones were decoded. `readings` counts their records, and `statements` how
    many of them are statements of routes."""

    new: int
    duplicates: int
    undecodable: int
    conflicts: int
    readings: int
    statements: int

    @property
    def quarantined(self) -> int:
        return self.undecodable + self.conflicts


class ProofFailed(Exception):
    """The rows of a batch do not add up. Nothing of it was committed. The text has the numbers."""


class FilesRefused(Exception):
    """Landing files are not what their manifests say. Nothing of the batch was committed."""

    def __init__(self, files: list[SetAside]) -> None:
        super().__init__(", ".join(file for file, _ in files))
        self.files = files


def carry_out(
    plan: Plan, transaction: Transaction, landing: Storage, tables: Tables, own: Sequence[OwnDecoder] = ()
) -> Counts:
    """Takes the plan's files into the tables. `own` are decoders of one's own.

    Raises FilesRefused, ProofFailed and OSError.
    """
    manifests, refused = read_manifests(plan, landing)
    if refused:
        raise FilesRefused(refused)
    earlier = ledger.load(tables, manifests, plan.batch)
    known = ledger.known_intervals(earlier)
    new = ledger.new_intervals(manifests, known)
    suspects = ledger.find_suspects(manifests, known)
    verdicts = _judge(plan.batch, manifests, landing, tables, suspects, earlier) if suspects else {}
    decoder = partial(decode, own=own, births=find_births(plan, manifests, landing, tables, verdicts))
    done = run_parts(tables, _divide(plan, manifests, landing, tables), verdicts, decoder)
    counts = count(done)
    files = {table: [file for one in done for file in one.files.get(table.name, [])] for table in DATA_TABLES}
    try:
        if refused := [SetAside(*refusal) for one in done for refusal in one.refused]:
            raise FilesRefused(refused)
        if failure := next((one.failure for one in done if one.failure), None):
            raise OSError(failure)
        prove(plan, counts, done, new, tables, files)
    except (FilesRefused, OSError, ProofFailed):
        for table, written in files.items():
            for file in written:
                tables.of(table).remove(file.place)
        raise
    _commit(plan, transaction, tables, counts, new, files)
    return counts


def count(done: Iterable[Done]) -> Counts:
    """Adds up what the tasks did."""
    found = [(one.new, one.duplicates, one.undecodable, one.conflicts, one.readings, one.statements) for one in done]
    return Counts(*map(sum, zip(*found, strict=True)))


def prove(
    plan: Plan, counts: Counts, done: list[Done], new: Known, tables: Tables, files: dict[Table, list[DataFile]]
) -> None:
    """Raises ProofFailed unless the manifests' rows are the rows found, and the written rows those for the ledger.

    The tasks have read the identities that they wrote again from the files.
    """
    rows_in = plan.rows
    if rows_in != counts.new + counts.duplicates + counts.quarantined:
        raise ProofFailed(
            f"batch {plan.batch}: {rows_in} rows in, but {counts.new} new + {counts.duplicates} duplicates "
            f"+ {counts.quarantined} quarantined"
        )
    found = by_stream(span for one in done for span in one.written)
    rows = sum(file.rows for file in files[BRONZE_MESSAGES])
    written, gained = (sum(map(intervals.count, streams.values())) for streams in (found, new))
    merged = {stream: intervals.merge(spans) for stream, spans in found.items()}
    if rows != gained or written != gained or merged != new:
        raise ProofFailed(
            f"batch {plan.batch}: the manifests bring {gained} new identities in {sum(map(len, new.values()))} "
            f"intervals, {rows} rows in {sum(map(len, found.values()))} intervals were written"
        )
    expected_rows = {
        BRONZE_MESSAGES: 0 if plan.again else counts.new + counts.undecodable,
        READINGS: counts.readings,
        QUARANTINE: counts.new if plan.again else counts.quarantined,
        STATEMENTS: counts.statements,
    }
    if any(sum(file.rows for file in files[table]) != rows for table, rows in expected_rows.items()):
        raise ProofFailed(f"batch {plan.batch}: {counts} were counted, other numbers of rows were written")
    if plan.again:
        _prove_decoded(plan, tables, files)


def _prove_decoded(plan: Plan, tables: Tables, files: dict[Table, list[DataFile]]) -> None:
    """Raises ProofFailed unless the new readings are of messages that this batch has decoded, each message once."""
    decoded, read = (tables.frame(table, IDENTITY, files[table]) for table in (QUARANTINE, READINGS))
    every = decoded.withColumn("decoded", F.lit(1)).union(read.withColumn("decoded", F.lit(0)))
    counted = every.groupBy(IDENTITY).agg(F.sum("decoded").alias("decoded"))
    for row in counted.where("decoded <> 1").take(1):
        raise ProofFailed(
            f"batch {plan.batch}: {row.origin} {row.epoch} {row.seq} has left quarantine {row.decoded} times, not once"
        )


def run_parts(tables: Tables, parts: list[Part], verdicts: Verdicts, decoder: Decoder = decode) -> list[Done]:
    """Runs each part as a Spark task."""
    frame = tables.spark.range(0, len(parts), 1, len(parts))
    rows = frame.mapInArrow(partial(run_batches, parts, verdicts, decoder), "done STRING").collect()
    return [msgspec.json.decode(row.done, type=Done) for row in rows]


def _divide(plan: Plan, manifests: list[Manifest], landing: Storage, tables: Tables) -> list[Part]:
    """Returns the plan's files in parts of about the same size: for each core at least one, with enough files."""
    cores = tables.spark.sparkContext.defaultParallelism
    size = min(PART_ROWS, -(-plan.rows // cores))
    parts: list[tuple[list[Manifest], list[str]]] = [([], [])]
    rows = 0
    every: list[Manifest | Again] = [*manifests, *plan.again]
    for file in every:
        if rows and rows + file.rows // 2 > size:
            parts.append(([], []))
            rows = 0
        if isinstance(file, Again):
            parts[-1][1].append(file.file)
        else:
            parts[-1][0].append(file)
        rows += file.rows
    return [Part(plan.batch, plan.planned_ms, str(landing.place), str(tables.folder), *files) for files in parts]


def _judge(
    batch: int,
    manifests: list[Manifest],
    landing: Storage,
    tables: Tables,
    suspects: list[Suspect],
    earlier: pa.Table,
) -> Verdicts:
    """Returns the verdicts of the rows whose identity came before, or more than once. Raises FilesRefused.

    earlier: the ledger's rows, from before the batch.
    """
    doubtful: list[pa.Table] = []
    places: list[tuple[str, np.ndarray]] = []
    known = []
    refused = []
    for described in ledger.files_with(sorted(manifests, key=lambda one: one.file), suspects):
        try:
            rows = read_landing_file(described, landing).select([*IDENTITY, *CONTENT])
        except ManifestError as error:
            refused.append(SetAside(described.file, str(error)))
            continue
        within = find_within(rows, suspects)
        (found,) = np.nonzero(within >= 0)
        doubtful.append(rows.take(found))
        places.append((described.file, found))
        known.append(np.array([suspects[place].known for place in within[found]], bool))
    if refused:
        raise FilesRefused(refused)
    stored = _stored(tables, BRONZE_MESSAGES, suspects, ledger.batches_of(tables, earlier, suspects))
    conflicts = _stored(tables, QUARANTINE, suspects, [(0, batch - 1)])
    verdicts = classify(pa.concat_tables(doubtful), np.concatenate(known), stored, conflicts)
    ends = np.cumsum([len(found) for _, found in places])
    by_file = zip(places, np.split(verdicts, ends[:-1]), strict=True)
    return {file: (found[some != NEW], some[some != NEW]) for (file, found), some in by_file if (some != NEW).any()}


def _stored(tables: Tables, table: Table, suspects: list[Suspect], batches: list[Interval]) -> pa.Table:
    """Returns identity, topic and payload of the messages in known suspect intervals that these batches have added."""
    known = sorted(suspect for suspect in suspects if suspect.known)
    found = [table.empty().select([*IDENTITY, *CONTENT])]
    may_hold = _Wanted(known, batches).may_be_in
    for file in tables.files(table):
        if may_hold(file, table):
            columns = [*IDENTITY, "batch", *(["kind"] if table is QUARANTINE else [])]
            rows = _read(tables, table, file, columns)
            wanted = (find_within(rows, known) >= 0) & _within(rows["batch"].to_numpy(), batches)
            if table is QUARANTINE:
                wanted &= pc.equal(rows["kind"], CONFLICT).to_numpy()
            if wanted.any():
                contents = tables.read_file(table, file, CONTENT)
                rows = rows.select(IDENTITY)
                for name in CONTENT:
                    rows = rows.append_column(name, contents[name])
                found.append(rows.filter(pa.array(wanted)))
    found[0] = found[0].set_column(1, "epoch", pa.array([], pa.int64()))
    return pa.concat_tables(found)


class _Wanted:
    """Finds by the statistics of data files which of them may hold messages in suspect intervals.

    suspects: the intervals in their order.
    batches: the batches that have added the messages. The ledger joins the intervals of many batches, so these alone
        would leave thousands of files to read.
    """

    def __init__(self, suspects: list[Suspect], batches: list[Interval]) -> None:
        self._batches = batches
        self._origins = [suspect.origin for suspect in suspects]
        self._lows = np.array([suspect.lo for suspect in suspects], np.int64)
        self._highs = np.array([suspect.hi for suspect in suspects], np.int64)

    def may_be_in(self, file: DataFile, table: Table) -> bool:
        """Whether a file may have such messages, or conflicts about them if it is of `quarantine`."""
        limits = file.full_limits()
        kinds = limits.get("kind")
        if table is QUARANTINE and kinds and kinds[0] > CONFLICT:
            return False
        low, high = limits.get("batch", (0, 1 << 62))
        if not any(start <= high and low <= end for start, end in self._batches):
            return False
        first, last = limits.get("origin", ("", None))
        of_origins = slice(
            bisect_left(self._origins, first), len(self._origins) if last is None else bisect_right(self._origins, last)
        )
        low, high = limits.get("seq", (0, 1 << 62))
        return bool(((self._lows[of_origins] <= high) & (low <= self._highs[of_origins])).any())


def _within(batches: np.ndarray, wanted: list[Interval]) -> np.ndarray:
    starts, ends = np.array(wanted, np.int64).reshape(-1, 2).T
    places = np.searchsorted(starts, batches, side="right") - 1
    return (places >= 0) & (batches <= ends[places]) if len(starts) else np.zeros(len(batches), bool)


def _read(tables: Tables, table: Table, file: DataFile, columns: list[str]) -> pa.Table:
    """Returns columns of a data file, the epoch as a number."""
    rows = tables.read_file(table, file, columns)
    return read_epochs(rows)


def _commit(
    plan: Plan,
    transaction: Transaction,
    tables: Tables,
    counts: Counts,
    new: Known,
    files: dict[Table, list[DataFile]],
) -> None:
    for table, written in files.items():
        if tables.has(table, transaction):
            # The run that was interrupted has committed the same rows.
            for file in written:
                tables.of(table).remove(file.place)
        elif written:
            tables.append(table, written, transaction)
    tables.append_values(BATCHES, [_batch_row(plan, counts, transaction)], transaction)
    spans = [(*stream, lo, hi) for stream, found in new.items() for lo, hi in found]
    if spans:
        epochs = write_epochs(pa.array([epoch for _, epoch, *_ in spans], pa.int64())).to_pylist()
        rows = [
            (origin, epoch, lo, hi, plan.batch, plan.batch)
            for (origin, _, lo, hi), epoch in zip(spans, epochs, strict=True)
        ]
        tables.append_values(LEDGER, rows, transaction)
    if plan.files:
        tables.append_values(LANDING_FILES, list(_file_rows(plan)), transaction)


def _batch_row(plan: Plan, counts: Counts, transaction: Transaction) -> tuple[object, ...]:
    return (
        plan.batch,
        transaction.checkpoint,
        len(plan.files),
        plan.rows,
        counts.new,
        counts.duplicates,
        counts.quarantined,
        counts.undecodable,
        counts.conflicts,
        counts.readings,
        datetime.fromtimestamp(plan.planned_ms / 1000, UTC),
        datetime.now(UTC),
    )


def _file_rows(plan: Plan) -> Iterable[tuple[object, ...]]:
    now = datetime.now(UTC)
    for file in plan.files:
        yield (
            file.file,
            file.lander,
            file.boot,
            file.number,
            file.rows,
            file.bytes,
            file.sha256,
            INGESTED,
            None,
            plan.batch,
            now,
        )
