import shutil
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from cloud import open_views
from cloud.tables.data_file import CheckFailed
from cloud.tables.schema import BATCHES, LANDING_FILES, LEDGER, QUARANTINE, Table
from cloud.tables.tables import Tables, Transaction


@pytest.fixture
def tables(spark: SparkSession, tmp_path: Path) -> Tables:
    made = Tables(spark, tmp_path)
    made.create_missing()
    return made


def span(lo: int, hi: int, batch: int) -> tuple[object, ...]:
    return ("a", "00000001", lo, hi, batch, batch)


def by_spark(tables: Tables, table: Table) -> DataFrame:
    return tables.spark.read.format("delta").load(str(Path(tables.folder) / table.name))


def spans(tables: Tables) -> list[tuple[int, int]]:
    return sorted((row.lo, row.hi) for row in by_spark(tables, LEDGER).collect())


def test_append_is_done_once_for_each_transaction(tables: Tables) -> None:
    assert (tables.exists(LEDGER), tables.last_batch(LEDGER), spans(tables)) == (True, 0, [])
    tables.append_values(LEDGER, [span(1, 5, 1)], Transaction("checkpoint", 1))
    tables.append_values(LEDGER, [span(1, 5, 1)], Transaction("checkpoint", 1))
    tables.append_values(LEDGER, [span(6, 9, 2)], Transaction("checkpoint", 2))
    tables.append_values(LEDGER, [span(6, 9, 2)], Transaction("another checkpoint", 2))
    again = Tables(tables.spark, tables.folder)
    again.append_values(LEDGER, [span(6, 9, 2)], Transaction("checkpoint", 2))
    assert spans(tables) == [(1, 5), (6, 9), (6, 9)]
    assert (again.last_batch(LEDGER), again.batches_after(LEDGER, 0)) == (2, {1, 2})
    again.take_back(LEDGER, 2)
    assert spans(again) == [(1, 5)]
    assert (again.last_batch(LEDGER), again.batches_after(LEDGER, 1)) == (1, set())


def test_rows_without_a_batch_do_not_count_as_the_last_batch(tables: Tables) -> None:
    now = datetime.now(UTC)
    row = ("a.parquet", *[None] * 6, "set aside", "missing", None, now)
    tables.append_values(LANDING_FILES, [row], None)
    assert (tables.last_batch(LANDING_FILES), tables.batches_after(LANDING_FILES, 0)) == (0, set())
    assert [found.recorded_at.astimezone(UTC) for found in by_spark(tables, LANDING_FILES).collect()] == [now]


def test_table_that_does_not_exist_is_an_empty_view(tables: Tables) -> None:
    shutil.rmtree(Path(tables.folder) / QUARANTINE.name)
    open_views(tables.spark, tables.folder)
    frame = tables.spark.table(QUARANTINE.name)
    assert (frame.columns, frame.collect()) == (QUARANTINE.column_names, [])


def test_row_that_breaks_a_rule_of_its_table_is_not_written(tables: Tables) -> None:
    with pytest.raises(CheckFailed, match="ledger: a row breaks the constraint interval_is_not_empty"):
        tables.append_values(LEDGER, [span(5, 4, 1)], None)
    with pytest.raises(CheckFailed, match="ledger: a row has no origin"):
        tables.append_values(LEDGER, [(None, *span(1, 2, 1)[1:])], None)
    now = datetime.now(UTC)
    with pytest.raises(CheckFailed, match="batches: a row breaks the constraint rows_add_up"):
        tables.append_values(BATCHES, [(1, "c", 1, 5, 3, 1, 0, 0, 0, 3, now, now)], None)
    assert (spans(tables), list(Path(tables.folder).rglob("*.parquet"))) == ([], [])
