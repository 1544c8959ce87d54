"""One batch: the files of its plan → judged and decoded rows → data tables → its proof → ledger → its files.

It may be killed anywhere and carried out again: each append is skipped where the table has the transaction already,
and the batch looks only at what earlier batches wrote, so it comes to the same verdicts again. With its intervals
in the ledger a batch counts; until then it can be taken back without a trace.
"""

from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

from pyspark import StorageLevel
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from cloud import intervals, ledger
from cloud.ledger import Known
from cloud.plan import Plan
from cloud.tables import (
    BATCHES,
    BRONZE_MESSAGES,
    INGESTED,
    LANDING_FILES,
    LEDGER,
    QUARANTINE,
    READINGS,
    Table,
    Tables,
    Transaction,
)
from cloud.transforms import measure
from cloud.transforms.classify import CONFLICT, IDENTITY, NEW, classify
from cloud.transforms.decode import decode
from cloud.transforms.measure import Counts

ROWS_A_FILE = 250_000
_LANDED = (
    "origin STRING, epoch BIGINT, seq BIGINT, received_ms BIGINT, gateway STRING, landed_ms BIGINT, topic STRING, "
    "qos TINYINT, retain BOOLEAN, content_type STRING, payload BINARY, lander STRING"
)


class ProofFailed(Exception):
    """A batch does not add up, and nothing of it was written. The text tells the numbers."""


def carry_out(plan: Plan, transaction: Transaction, landing: Path, tables: Tables) -> Counts:
    """Brings the plan's files into the tables. Raises ProofFailed."""
    known = ledger.load(tables, plan.files, plan.batch)
    new = ledger.new_intervals(plan.files, known)
    messages = _judged(plan, landing, tables, known).persist(StorageLevel.MEMORY_AND_DISK)
    try:
        counts = measure.count(messages)
        prove(plan, counts, new)
        _append_data(messages, counts, transaction, tables)
    finally:
        messages.unpersist()
    tables.append_values(BATCHES, [_batch_row(plan, counts, transaction)], transaction)
    spans = [(*stream, lo, hi, plan.batch) for stream, found in new.items() for lo, hi in found]
    if spans:
        tables.append_values(LEDGER, spans, transaction)
    tables.append_values(LANDING_FILES, list(_file_rows(plan)), transaction)
    return counts


def prove(plan: Plan, counts: Counts, new: Known) -> None:
    """Rows in, by the manifests, are the rows found, by kind; and the new identities are those the ledger gets."""
    rows_in = rows_of(plan)
    if rows_in != counts.new + counts.duplicates + counts.quarantined:
        raise ProofFailed(
            f"batch {plan.batch}: {rows_in} rows in, but {counts.new} new + {counts.duplicates} duplicates "
            f"+ {counts.quarantined} quarantined"
        )
    gained = sum(map(intervals.count, new.values()))
    if gained != counts.new + counts.undecodable:
        raise ProofFailed(
            f"batch {plan.batch}: the manifests bring {gained} new identities, "
            f"the rows {counts.new} new + {counts.undecodable} undecodable"
        )


def rows_of(plan: Plan) -> int:
    return sum(described.rows for described in plan.files)


def _judged(plan: Plan, landing: Path, tables: Tables, known: Known) -> DataFrame:
    """The plan's messages with verdict, records and problem."""
    rows = _read(plan, landing, tables)
    suspects = ledger.find_suspects(plan.files, known)
    stored = _earlier(tables, BRONZE_MESSAGES, plan).select(*IDENTITY, "payload")
    conflicts = _earlier(tables, QUARANTINE, plan).where(sf.col("kind") == CONFLICT).select(*IDENTITY, "payload")
    judged = classify(rows, suspects, stored, conflicts)
    return decode(judged.coalesce(1 + rows_of(plan) // ROWS_A_FILE), sf.col("verdict") == NEW)


def _earlier(tables: Tables, table: Table, plan: Plan) -> DataFrame:
    return tables.read(table).where(sf.col("batch") < plan.batch)


def _read(plan: Plan, landing: Path, tables: Tables) -> DataFrame:
    paths = [str(landing / described.file) for described in plan.files]
    planned_at = datetime.fromtimestamp(plan.planned_ms / 1000, UTC)
    return (
        tables.spark.read.schema(_LANDED)
        .parquet(*paths)
        .select(
            "*",
            sf.timestamp_millis("received_ms").alias("received_at"),
            sf.timestamp_millis("landed_ms").alias("landed_at"),
            sf.col("_metadata.file_name").alias("file"),
            sf.col("_metadata.row_index").alias("row"),
            sf.lit(plan.batch).cast("bigint").alias("batch"),
            sf.lit(planned_at.date()).alias("ingest_date"),
        )
    )


def _append_data(messages: DataFrame, counts: Counts, transaction: Transaction, tables: Tables) -> None:
    if counts.new + counts.undecodable:
        tables.append(BRONZE_MESSAGES, measure.bronze_rows(messages), transaction)
    if counts.readings:
        tables.append(READINGS, measure.reading_rows(messages), transaction)
    if counts.quarantined:
        tables.append(QUARANTINE, measure.quarantine_rows(messages), transaction)


def _batch_row(plan: Plan, counts: Counts, transaction: Transaction) -> tuple[object, ...]:
    return (
        plan.batch,
        transaction.checkpoint,
        len(plan.files),
        rows_of(plan),
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
