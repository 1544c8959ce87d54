"""One batch: the files of its plan → judged and decoded rows → data tables → its proof → ledger → its files.

A batch may be killed at any point and carried out again. Each append is skipped where the table has its transaction
already. The batch reads only rows of earlier batches, so it comes to the same verdicts again. A batch counts once its
intervals are in the ledger; until then its rows can be deleted.
"""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from cloud.landing import intervals
from cloud.tables import ledger
from cloud.tables.births import find_births
from cloud.tables.ledger import Known
from cloud.tables.plan import Plan
from cloud.tables.tables import (
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
from cloud.transforms.classify import CONFLICT, DUPLICATE, IDENTITY, NEW, classify
from cloud.transforms.decode import decode
from cloud.transforms.own_decoders import OwnDecoder

ROWS_A_FILE = 250_000
_LANDED = (
    "origin STRING, epoch BIGINT, seq BIGINT, received_ms BIGINT, gateway STRING, landed_ms BIGINT, topic STRING, "
    "qos TINYINT, retain BOOLEAN, content_type STRING, payload BINARY, lander STRING"
)


UNDECODABLE = "undecodable"


class Counts(NamedTuple):
    """The rows of a batch by kind. The `new` ones were decoded. `readings` counts their records."""

    new: int
    duplicates: int
    undecodable: int
    conflicts: int
    readings: int

    @property
    def quarantined(self) -> int:
        return self.undecodable + self.conflicts


class ProofFailed(Exception):
    """The rows of a batch do not add up. Nothing of it was written. The text has the numbers."""


def carry_out(
    plan: Plan, transaction: Transaction, landing: Path, tables: Tables, own: Sequence[OwnDecoder] = ()
) -> Counts:
    """Takes the plan's files into the tables. `own` are decoders of one's own. Raises ProofFailed."""
    known = ledger.load(tables, plan.files, plan.batch)
    new = ledger.new_intervals(plan.files, known)
    messages = _judged(plan, landing, tables, known, own).persist(StorageLevel.MEMORY_AND_DISK)
    try:
        counts = count(messages)
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
    """Raises ProofFailed unless the manifests' rows are the rows found, and the new ones are those for the ledger."""
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


def count(messages: DataFrame) -> Counts:
    """Counts the rows by kind, in one pass over the batch."""
    kinds = {
        "new": _is(NEW) & sf.isnull("problem"),
        "duplicates": _is(DUPLICATE),
        "undecodable": _is(NEW) & sf.isnotnull("problem"),
        "conflicts": _is(CONFLICT),
    }
    counts = [sf.count_if(condition).alias(kind) for kind, condition in kinds.items()]
    readings = sf.coalesce(sf.sum(sf.when(sf.isnotnull("records"), sf.size("records"))), sf.lit(0))
    return Counts(*messages.agg(*counts, readings).collect()[0])


def bronze_rows(messages: DataFrame) -> DataFrame:
    """Returns every message with a new identity, whether it could be decoded or not."""
    return messages.where(_is(NEW))


def reading_rows(messages: DataFrame) -> DataFrame:
    """Returns a row for each record. Its event date is that of the device's time, else that of the arrival."""
    records = messages.select("*", sf.posexplode("records").alias("record", "measured"))
    flat = records.select("*", "measured.*").withColumn("device", sf.coalesce("device", "origin"))
    return flat.withColumn("event_date", sf.to_date(sf.coalesce("time", "received_at", "landed_at")))


def quarantine_rows(messages: DataFrame) -> DataFrame:
    """Returns the rows that a person has to look at, with the reason and the raw payload."""
    conflict = sf.lit("the same identity came before with another payload")
    aside = messages.where(_is(CONFLICT) | sf.isnotnull("problem"))
    return aside.withColumn("kind", sf.when(_is(CONFLICT), CONFLICT).otherwise(UNDECODABLE)).withColumn(
        "reason", sf.when(_is(CONFLICT), conflict).otherwise(sf.col("problem"))
    )


def _is(verdict: str) -> Column:
    return sf.col("verdict") == verdict


def _judged(plan: Plan, landing: Path, tables: Tables, known: Known, own: Sequence[OwnDecoder]) -> DataFrame:
    """Returns the plan's messages with verdict, records and problem."""
    rows = _read(plan, landing, tables)
    suspects = ledger.find_suspects(plan.files, known)
    bronze = _earlier(tables, BRONZE_MESSAGES, plan)
    stored = bronze.select(*IDENTITY, "payload")
    conflicts = _earlier(tables, QUARANTINE, plan).where(sf.col("kind") == CONFLICT).select(*IDENTITY, "payload")
    judged = classify(rows, suspects, stored, conflicts)
    births = find_births([landing / described.file for described in plan.files], bronze_rows(judged), bronze)
    return decode(judged.coalesce(1 + rows_of(plan) // ROWS_A_FILE), _is(NEW), own, births)


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
        tables.append(BRONZE_MESSAGES, bronze_rows(messages), transaction)
    if counts.readings:
        tables.append(READINGS, reading_rows(messages), transaction)
    if counts.quarantined:
        tables.append(QUARANTINE, quarantine_rows(messages), transaction)


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
