from datetime import UTC, datetime
from pathlib import Path

from pyspark.sql import SparkSession

from cloud.tables.tables import LANDING_FILES, LEDGER, QUARANTINE, Tables, Transaction


def spans(tables: Tables) -> list[tuple[int, int]]:
    return sorted((row.lo, row.hi) for row in tables.read(LEDGER).collect())


def test_append_is_done_once_for_each_transaction(spark: SparkSession, tmp_path: Path) -> None:
    tables = Tables(spark, tmp_path)
    assert (tables.exists(LEDGER), tables.last_batch(LEDGER), spans(tables)) == (False, 0, [])
    tables.append_values(LEDGER, [("a", 1, 1, 5, 1)], Transaction("stream", 1))
    tables.append_values(LEDGER, [("a", 1, 1, 5, 1)], Transaction("stream", 1))
    tables.append_values(LEDGER, [("a", 1, 6, 9, 2)], Transaction("stream", 2))
    tables.append_values(LEDGER, [("a", 1, 6, 9, 2)], Transaction("another stream", 2))
    assert spans(tables) == [(1, 5), (6, 9), (6, 9)]
    assert (tables.last_batch(LEDGER), tables.batches_after(LEDGER, 0)) == (2, {1, 2})
    tables.take_back(LEDGER, 2)
    assert spans(tables) == [(1, 5)]
    assert (tables.last_batch(LEDGER), tables.batches_after(LEDGER, 1)) == (1, set())


def test_rows_without_a_batch_do_not_count_as_the_last_batch(spark: SparkSession, tmp_path: Path) -> None:
    tables = Tables(spark, tmp_path)
    now = datetime.now(UTC)
    row = ("a.parquet", *[None] * 6, "set aside", "missing", None, now)
    tables.append_values(LANDING_FILES, [row], None)
    assert (tables.last_batch(LANDING_FILES), tables.batches_after(LANDING_FILES, 0)) == (0, set())
    assert [found.recorded_at.astimezone(UTC) for found in tables.read(LANDING_FILES).collect()] == [now]


def test_table_that_does_not_exist_reads_as_an_empty_one(spark: SparkSession, tmp_path: Path) -> None:
    frame = Tables(spark, tmp_path).read(QUARANTINE)
    assert (frame.columns, frame.collect()) == (QUARANTINE.column_names, [])
