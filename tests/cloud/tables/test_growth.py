"""What stays small however many batches there were: the ledger, and the files of the small tables."""

import json
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from cloud.landing.intervals import Interval
from cloud.tables import ledger
from cloud.tables.schema import ARRIVALS, CHECKS, LANDING_FILES, LEDGER
from cloud.tables.stored_table import LOG_FOLDER
from cloud.tables.tables import Tables
from cloud.transforms.verdicts.classify import Suspect

EPOCH = 7
BATCHES = 200


@pytest.fixture(scope="module")
def tables(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Tables:
    """Tables after BATCHES batches. Each brought ten messages of one device, and one of another, which lost every other
    message."""
    tables = Tables(spark, tmp_path_factory.mktemp("tables"))
    tables.create_missing()
    for batch in range(1, BATCHES + 1):
        spans = [("steady", "00000007", 10 * batch, 10 * batch + 9, batch, batch)]
        spans.append(("lossy", "00000007", 2 * batch, 2 * batch, batch, batch))
        tables.append_values(LEDGER, spans, None)
        file = (f"f-{batch}", "lander-1", 1, batch, 11, 1, "", "ingested", None, batch, datetime.now(UTC))
        tables.append_values(LANDING_FILES, [file], None)
        ledger.merge(tables, LEDGER)
        tables.compact(LANDING_FILES)
    return tables


def rows_of(tables: Tables, *origins: str) -> pa.Table:
    return ledger.before(tables, BATCHES + 1).load(pa.array(origins))


def batches_of(tables: Tables, suspects: list[Suspect]) -> list[Interval]:
    """Returns which batches brought messages that arrive again."""
    earlier = ledger.before(tables, BATCHES + 1)
    return earlier.batches_of(earlier.load(pa.array({suspect.origin for suspect in suspects})), suspects)


def test_neighbours_in_the_ledger_become_one_interval_and_gaps_stay(tables: Tables) -> None:
    columns = (rows_of(tables, "steady", "lossy")[name].to_pylist() for name in ("origin", "lo", "hi"))
    rows = sorted(zip(*columns, strict=True))
    steady = [row for row in rows if row[0] == "steady"]
    assert steady[0][1] == 10 and steady[-1][2] == 10 * BATCHES + 9
    assert all(before[2] + 1 == after[1] for before, after in pairwise(steady))
    assert len(steady) < 80
    lossy = {seq for _, lo, hi in rows[: len(rows) - len(steady)] for seq in range(lo, hi + 1)}
    assert lossy == set(range(2, 2 * BATCHES + 1, 2))


def test_files_of_the_small_tables_stay_few(tables: Tables) -> None:
    assert len(tables.files(LEDGER)) <= 64
    assert len(tables.files(ARRIVALS)) <= BATCHES // 64
    assert len(tables.files(LANDING_FILES)) <= 32
    assert tables.rows(LANDING_FILES, ["file"]).num_rows == BATCHES
    again = Tables(tables.spark, Path(tables.folder))
    assert (again.last_batch(LEDGER), again.last_batch(LANDING_FILES)) == (BATCHES, BATCHES)


def test_log_of_a_table_that_is_joined_after_each_append_is_summed_up_too(spark: SparkSession, tmp_path: Path) -> None:
    """As `holdfast cloud maintain` and `verify` do by turns with the table `checks`."""
    tables = Tables(spark, tmp_path)
    tables.create_missing()
    row = ("each row once", "ledger", True, 0, None, datetime.now(UTC))
    for _ in range(2):
        tables.append_values(CHECKS, [row], None)
    for _ in range(100):
        tables.append_values(CHECKS, [row], None)
        tables.compact(CHECKS, least=2)
    commits = sorted((tmp_path / CHECKS.name / LOG_FOLDER).glob(f"{'[0-9]' * 20}.json"))
    summed_up = json.loads((tmp_path / CHECKS.name / LOG_FOLDER / "_last_checkpoint").read_text())["version"]
    assert int(commits[-1].stem) - summed_up < 50
    assert Tables(spark, tmp_path).rows(CHECKS, ["check"]).num_rows == 102


@pytest.mark.parametrize("batch", [1, 63, 64, 100, BATCHES])
def test_batch_that_brought_a_message_is_found_once_neighbours_have_become_one(tables: Tables, batch: int) -> None:
    suspects = [Suspect("steady", EPOCH, 10 * batch + 3, 10 * batch + 4, True)]
    assert batches_of(tables, suspects) == [(batch, batch)]


def test_batches_are_those_of_the_suspects_alone(tables: Tables) -> None:
    spans = [("steady", 15, 15), ("steady", 38, 42), ("lossy", 20, 20), ("lossy", 21, 21), ("unknown", 50, 50)]
    suspects = [Suspect(origin, EPOCH, lo, hi, True) for origin, lo, hi in spans]
    suspects.append(Suspect("steady", EPOCH + 1, 90, 90, True))
    assert batches_of(tables, suspects) == [(1, 1), (3, 4), (10, 10)]


def test_each_row_of_the_ledger_is_once_in_arrivals(spark: SparkSession, tmp_path: Path) -> None:
    """Also where the job was killed between the two commits of a merge."""
    tables = Tables(spark, tmp_path)
    tables.create_missing()
    for batch in range(1, 131):
        tables.append_values(LEDGER, [("steady", "00000007", batch, batch, batch, batch)], None)
    before = tables.rows(LEDGER, LEDGER.column_names)
    files = tables.files(LEDGER)
    for _ in range(2):
        ledger.merge(tables, LEDGER)
        tables.replace(LEDGER, tables.files(LEDGER), before)
    assert len(files) == 130
    found = tables.rows(ARRIVALS, ["lo", "hi", "first_batch", "batch"]).to_pylist()
    assert [tuple(one.values()) for one in found] == [(batch,) * 4 for batch in range(1, 128)]


def test_batches_are_found_in_tables_whose_ledger_was_joined_before_there_were_arrivals(
    spark: SparkSession, tmp_path: Path
) -> None:
    tables = Tables(spark, tmp_path)
    tables.create_missing()
    tables.append_values(LEDGER, [("steady", "00000007", 1, 63, 1, 63), ("steady", "00000007", 64, 65, 64, 64)], None)
    suspects = [Suspect("steady", EPOCH, 5, 5, True)]
    assert batches_of(tables, suspects) == [(1, 63)]
    for batch in range(65, 130):
        tables.append_values(LEDGER, [("steady", "00000007", batch + 1, batch + 1, batch, batch)], None)
    ledger.merge(tables, LEDGER)
    assert batches_of(tables, suspects) == [(1, 63)]
    suspects = [Suspect("steady", EPOCH, 100, 100, True)]
    assert batches_of(tables, suspects) == [(99, 99)]


def test_another_engine_reads_the_compacted_tables(spark: SparkSession, tables: Tables) -> None:
    assert spark.read.format("delta").load(str(Path(tables.folder) / LANDING_FILES.name)).count() == BATCHES
    found = (
        spark.read.format("delta").load(str(Path(tables.folder) / LEDGER.name)).selectExpr("sum(hi - lo + 1)").collect()
    )
    assert found[0][0] == 11 * BATCHES
