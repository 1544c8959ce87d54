"""The proof of a batch, before anything of it counts: rows in = rows out, and the ledger gains the written identities.

It is made of the files that are to be committed.
"""

from collections.abc import ItemsView, Iterable
from functools import partial
from typing import NamedTuple, TypeAlias

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from cloud.job.plan import Plan
from cloud.job.take_in import Done
from cloud.landing import intervals
from cloud.landing.intervals import Interval
from cloud.landing.manifest import Stream, by_stream, list_intervals
from cloud.spark.tasks import Batches, map_batches, map_items
from cloud.storage.place import open_storage
from cloud.tables.data_file import DataFile, read_columns, write_rows
from cloud.tables.schema import BRONZE_MESSAGES, LEDGER, QUARANTINE, READINGS, STATEMENTS, Table
from cloud.tables.tables import Tables
from cloud.transforms.rows import read_epochs, write_epochs
from cloud.transforms.verdicts.classify import IDENTITY
from cloud.transforms.verdicts.judge import FINDINGS, NEW, findings, gather

Files: TypeAlias = dict[Table, list[DataFile]]
_WRITTEN = "written"


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


class Gained(msgspec.Struct):
    """How many new numbers a batch brings by its manifests, and whether these are in `bronze_messages`, and no others.

    Then `file` has them for the ledger, if there are any. `failure` says why it could not be written.
    """

    new: int
    same: bool
    file: DataFile | None = None
    failure: str | None = None


class ProofFailed(Exception):
    """The rows of a batch do not add up. Nothing of it was committed. The text has the numbers."""


def count(done: Iterable[Done]) -> Counts:
    """Adds up what the tasks did."""
    found = [(one.new, one.duplicates, one.undecodable, one.conflicts, one.readings, one.statements) for one in done]
    return Counts(*map(sum, zip(*found, strict=True)))


def gain(tables: Tables, batch: int, found: DataFrame, files: list[DataFile], tasks: int) -> list[Gained]:
    """Reads the identities in files of `bronze_messages` again, and writes the new ones to files for the ledger if they
    are the same.

    found: FINDINGS of the batch.
    """
    place = str(tables.folder)
    written = map_items(tables.spark, [file.place for file in files], partial(_read_written, place), FINDINGS)
    every = gather(found.union(written), tasks)
    rows = map_batches(every, partial(_gain, place, batch), "gained STRING").collect()
    return [msgspec.json.decode(row.gained, type=Gained) for row in rows]


def prove(plan: Plan, counts: Counts, gained: list[Gained], tables: Tables, files: Files) -> None:
    """Raises ProofFailed unless the manifests' rows are the rows found, and the written rows those for the ledger.

    files: the files that were written, by table.
    """
    rows_in = plan.rows
    if rows_in != counts.new + counts.duplicates + counts.quarantined:
        raise ProofFailed(
            f"batch {plan.batch}: {rows_in} rows in, but {counts.new} new + {counts.duplicates} duplicates "
            f"+ {counts.quarantined} quarantined"
        )
    rows = {table: sum(file.rows for file in written) for table, written in files.items()}
    new = sum(one.new for one in gained)
    if rows[BRONZE_MESSAGES] != new or not all(one.same for one in gained):
        raise ProofFailed(
            f"batch {plan.batch}: the manifests bring {new} new identities, "
            f"{rows[BRONZE_MESSAGES]} rows with other ones were written"
        )
    expected_rows = {
        BRONZE_MESSAGES: 0 if plan.again else counts.new + counts.undecodable,
        READINGS: counts.readings,
        QUARANTINE: counts.new if plan.again else counts.quarantined,
        STATEMENTS: counts.statements,
    }
    if any(rows[table] != expected for table, expected in expected_rows.items()):
        raise ProofFailed(f"batch {plan.batch}: {counts} were counted, other numbers of rows were written")
    if plan.again:
        _prove_decoded(plan, tables, files)


def _prove_decoded(plan: Plan, tables: Tables, files: Files) -> None:
    """Raises ProofFailed unless the new readings are of messages that this batch has decoded, each message once."""
    decoded, read = (tables.frame(table, IDENTITY, files[table]) for table in (QUARANTINE, READINGS))
    every = decoded.withColumn("decoded", F.lit(1)).union(read.withColumn("decoded", F.lit(0)))
    counted = every.groupBy(IDENTITY).agg(F.sum("decoded").alias("decoded"))
    for row in counted.where("decoded <> 1").take(1):
        raise ProofFailed(
            f"batch {plan.batch}: {row.origin} {row.epoch} {row.seq} has left quarantine {row.decoded} times, not once"
        )


def _read_written(place: str, name: str) -> Batches:
    """Yields FINDINGS: the intervals in a file of `bronze_messages`."""
    spans = list_intervals(read_epochs(read_columns(open_storage(place).child(BRONZE_MESSAGES.name), name, IDENTITY)))
    yield from findings((_WRITTEN, None, None, None, *span) for span in spans)


def _gain(place: str, batch: int, batches: Batches) -> Batches:
    """Compares the new and the written intervals of streams, and yields one Gained as JSON."""
    if not (given := list(batches)):
        return
    rows = pa.Table.from_batches(given)
    new, written = (rows.filter(pc.equal(rows["kind"], kind)) for kind in (NEW, _WRITTEN))
    expected, found = ({stream: intervals.merge(spans) for stream, spans in _by_stream(one)} for one in (new, written))
    gained = Gained(sum(map(intervals.count, expected.values())), expected == found)
    if gained.same and len(new):
        of_batch = pa.repeat(pa.scalar(batch, pa.int64()), len(new))
        columns = {name: new[name] for name in ("origin", "lo", "hi")}
        columns |= {"epoch": write_epochs(new["epoch"]), "first_batch": of_batch, "batch": of_batch}
        try:
            gained.file = write_rows(open_storage(place).child(LEDGER.name), LEDGER, batch, pa.table(columns))
        except OSError as error:
            gained.failure = f"{error.strerror}: {error.filename or place}" if error.strerror else str(error)
    yield pa.RecordBatch.from_pydict({"gained": [msgspec.json.encode(gained).decode()]})


def _by_stream(rows: pa.Table) -> ItemsView[Stream, list[Interval]]:
    columns = (rows[name].to_pylist() for name in ("origin", "epoch", "lo", "hi"))
    return by_stream(zip(*columns, strict=True)).items()
