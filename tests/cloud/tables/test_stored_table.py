"""The stored tables: read by other engines, durable, and mended after a power cut."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError
from pyspark.sql import SparkSession

from cloud import maintain, verify
from cloud.storage.local import LocalStorage
from cloud.storage.storage import StoreError
from cloud.tables import ledger, stored_table
from cloud.tables.data_file import name_start
from cloud.tables.schema import CHECKS, LEDGER, READINGS, TABLES, Table
from cloud.tables.stored_table import StoredTable
from cloud.tables.tables import Tables, Transaction
from tests.cloud.job.links import dropped, handed, handed_on, stated, without
from tests.cloud.lake import Lake
from tests.cloud.messages import land, row


@pytest.fixture(scope="module")
def filled(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("lake")
    (place / "landing").mkdir()
    lake = Lake(spark, place / "landing", place / "tables")
    land(lake.landing, [row(1), row(2), row(3, content=b"no SenML")])
    lake.ingest()
    return lake.folder


@pytest.fixture(scope="module")
def every_table(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tables with a row each at least."""
    place = tmp_path_factory.mktemp("lake")
    (place / "landing").mkdir()
    lake = Lake(spark, place / "landing", place / "tables")
    went = [handed_on("x", 7, 1, 9)], [dropped("expired", "x", 4, 5)]
    statement = stated("barn", 1, 1, 9, *went, refused=[(7, 8)], left_out=[without("x", (10, 11))])
    land(lake.landing, [row(1), row(2, content=b"no SenML"), row(1, "cellar"), handed("x", 1, 1, "barn"), statement])
    lake.ingest()
    maintain(spark, lake.landing, lake.folder, devices=["cellar"])
    verify(spark, lake.landing, lake.folder)
    tables = Tables(spark, lake.folder)
    for number in range(3, 67):  # as many batches as the ledger takes before it is merged
        tables.append_values(LEDGER, [("barn", "00000007", number, number, number, number)], None)
    ledger.merge(tables, LEDGER)
    return lake.folder


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_delta_rs_duckdb_and_spark_read_the_same_rows(spark: SparkSession, every_table: Path, table: Table) -> None:
    by_spark = spark.read.format("delta").load(str(every_table / table.name)).toArrow()
    by_rust = DeltaTable(every_table / table.name).to_pyarrow_table()
    assert by_rust.column_names == table.column_names
    with duckdb.connect() as engine:
        by_duckdb = engine.register("by_rust", by_rust).sql("SELECT * FROM by_rust").to_arrow_table()
    rows = [
        sorted(map(repr, found.select(table.column_names).cast(table.empty().schema).to_pylist()))
        for found in (by_spark, by_rust, by_duckdb)
    ]
    assert len(rows[0]) > 0
    assert rows[0] == rows[1] == rows[2]


def test_readers_skip_files_by_the_statistics(filled: Path) -> None:
    (file,) = pa.table(DeltaTable(filled / "readings").get_add_actions(flatten=True)).to_pylist()
    assert (file["num_records"], file["min.seq"], file["max.seq"]) == (4, 1, 2)
    assert (file["min.device"], file["null_count.unit"]) == ("garage", 4)


@pytest.mark.parametrize("table", [table for table in TABLES if table.change_feed], ids=lambda table: table.name)
def test_tables_have_comments_rules_and_a_change_feed(spark: SparkSession, filled: Path, table: Table) -> None:
    described = DeltaTable(filled / table.name)
    fields = {field.name: field for field in described.schema().fields}
    assert all(field.metadata["comment"] for field in fields.values())
    assert not fields["origin"].nullable
    assert "delta.constraints.seq_counts_from_0" in described.metadata().configuration
    changes = spark.read.format("delta").option("readChangeFeed", True).option("startingVersion", 0)
    found = changes.load(str(filled / table.name)).select("_change_type").distinct().collect()
    assert [kind for (kind,) in found] == ["insert"]


def spans(tables: Tables) -> int:
    return tables.rows(LEDGER, ["lo"]).num_rows


@pytest.fixture
def tables(spark: SparkSession, tmp_path: Path) -> Tables:
    made = Tables(spark, tmp_path)
    made.create_missing()
    for number in range(1, 4):
        made.append_values(LEDGER, [("a", "00000001", number, number, number, number)], None)
    return made


def after_a_cut(commit: bytes, left: str) -> bytes:
    lines = commit.splitlines(keepends=True)
    return {
        "nothing": b"",
        "half": commit[: len(commit) // 2],
        "one line": lines[0],
        "all but a line": b"".join(lines[:-1]),
    }[left]


@pytest.mark.parametrize("left", ["nothing", "half", "one line", "all but a line"])
def test_commit_that_a_power_cut_has_cut_off_is_as_if_it_had_never_been(tables: Tables, left: str) -> None:
    tables.append_values(LEDGER, [("a", "00000001", 4, 4, 4, 4)], Transaction("job", 4))
    commit = Path(tables.folder) / LEDGER.name / "_delta_log" / f"{4:020}.json"
    commit.write_bytes(after_a_cut(commit.read_bytes(), left))
    cut = commit.read_bytes()
    looking = StoredTable(LocalStorage(Path(tables.folder) / LEDGER.name), read_only=True)
    assert (looking.version, len(looking.files), commit.read_bytes()) == (3, 3, cut)
    again = Tables(tables.spark, tables.folder)
    assert (spans(again), again.has(LEDGER, Transaction("job", 4)), commit.exists()) == (3, False, False)
    again.append_values(LEDGER, [("a", "00000001", 4, 4, 4, 4)], Transaction("job", 4))
    assert spans(Tables(tables.spark, tables.folder)) == 4


def test_whole_commits_of_any_program_stay(tables: Tables) -> None:
    tables.compact(LEDGER, least=2)
    log = Path(tables.folder) / LEDGER.name / "_delta_log"
    kinds = (b'{"commitInfo":{"operation":"VACUUM END"}}\n', b'{"txn":{"appId":"another","version":1}}\n')
    for number, content in enumerate(kinds, start=5):
        (log / f"{number:020}.json").write_bytes(content)
    again = Tables(tables.spark, tables.folder)
    assert (spans(again), again.stored(LEDGER).version, again.stored(LEDGER).transaction("another")) == (3, 6, 1)


def test_a_log_that_cannot_be_read_is_told_and_nothing_is_removed(tables: Tables) -> None:
    log = Path(tables.folder) / LEDGER.name / "_delta_log"
    (log / f"{1:020}.json").write_bytes(b"{")
    before = {path: path.read_bytes() for path in log.iterdir()}
    with pytest.raises(OSError, match=f"{LEDGER.name}: "):
        spans(Tables(tables.spark, tables.folder))
    assert {path: path.read_bytes() for path in log.iterdir()} == before


def test_a_log_that_is_gone_while_a_job_runs_is_told_in_one_line(tmp_path: Path) -> None:
    table = StoredTable(LocalStorage(tmp_path / LEDGER.name))
    table.create(LEDGER)
    for path in (tmp_path / LEDGER.name / "_delta_log").iterdir():
        path.unlink()
    with pytest.raises(StoreError, match=r"^/.*/ledger: Kernel error: File not found: .*") as raised:
        table.transaction("anyone")
    assert "\n" not in str(raised.value)


def test_the_change_feed_has_the_rows_that_were_deleted_and_no_other(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "landing").mkdir()
    lake = Lake(spark, tmp_path / "landing", tmp_path / "tables")
    land(lake.landing, [row(1), row(2), row(3)])
    lake.ingest()
    tables = Tables(spark, lake.folder)
    before = tables.stored(READINGS).version
    assert tables.delete(READINGS, ["seq"], lambda rows: pc.equal(rows["seq"], 2), lambda _: True) == 2
    changes = spark.read.format("delta").option("readChangeFeed", True).option("startingVersion", before + 1)
    found = changes.load(str(lake.folder / READINGS.name)).select("_change_type", "seq", "record").collect()
    assert sorted(map(tuple, found)) == [("delete", 2, 0), ("delete", 2, 1)]
    assert sorted((one["seq"], one["record"]) for one in lake.rows("readings")) == [(1, 0), (1, 1), (3, 0), (3, 1)]


def cut_checkpoint(log: Path) -> None:
    (log / f"{3:020}.checkpoint.parquet").write_bytes(b"PAR1 and no more")
    (log / "_last_checkpoint").write_text('{"version":3,"size":5}')


def lose_the_name_of_a_checkpoint(log: Path) -> None:
    (log / "_last_checkpoint").write_text('{"version":3,"size":5}')


def cut_two_commits_of_another_program(log: Path) -> None:
    (log / f"{4:020}.json").write_bytes(b'{"commitInfo":{"operation":"VACU')
    (log / f"{5:020}.json").write_bytes(b'{"commitInfo":{"operation":"VACUUM END"}}\n')


def zero_a_block_of_the_last_commit(log: Path) -> None:
    (log / f"{4:020}.json").write_bytes(
        b'{"commitInfo":{"holdfast":{}}}\n' + bytes(512) + b'\n{"txn":{"appId":"a","version":1}}\n'
    )


@pytest.mark.parametrize(
    "happens",
    [
        cut_checkpoint,
        lose_the_name_of_a_checkpoint,
        cut_two_commits_of_another_program,
        zero_a_block_of_the_last_commit,
    ],
)
def test_what_else_a_power_cut_has_cut_off_is_removed(tables: Tables, happens: Callable[[Path], None]) -> None:
    log = Path(tables.folder) / LEDGER.name / "_delta_log"
    happens(log)
    assert spans(Tables(tables.spark, tables.folder)) == 3
    assert sorted(path.name for path in log.iterdir()) == [f"{number:020}.json" for number in range(4)]
    assert tables.spark.read.format("delta").load(str(log.parent)).count() == 3


def test_table_whose_first_commit_is_cut_off_is_made_again(tables: Tables) -> None:
    log = Path(tables.folder) / CHECKS.name / "_delta_log"
    commit = log / f"{0:020}.json"
    commit.write_bytes(commit.read_bytes().splitlines(keepends=True)[0])
    again = Tables(tables.spark, tables.folder)
    again.create_missing()
    assert again.rows(CHECKS, ["check"]).num_rows == 0


def test_commits_that_a_killed_job_has_left_are_synced_before_anything_counts_on_them(
    tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    monkeypatch.setattr(stored_table, "sync", lambda path: synced.append(path.name))
    opened = StoredTable(LocalStorage(Path(tables.folder) / LEDGER.name))
    commits = [f"{number:020}.json" for number in range(4)]
    assert [name for name in synced if name.endswith(".json")] == commits
    assert synced[-1] == "_delta_log"
    synced.clear()
    tables.append_values(LEDGER, [("a", "00000001", 4, 4, 4, 4)], None)
    synced.clear()
    opened.refresh()
    assert synced == [f"{4:020}.json", "_delta_log"]


def test_commit_whose_answer_was_lost_is_not_made_again(tables: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    commit = DeltaTable.create_write_transaction

    def lose_the_answer(table: DeltaTable, *arguments: Any, **options: Any) -> None:
        commit(table, *arguments, **options)
        raise CommitFailedError("a transaction of the same application came in between")

    monkeypatch.setattr(DeltaTable, "create_write_transaction", lose_the_answer)
    tables.append_values(LEDGER, [("a", "00000001", 4, 4, 4, 4)], None)
    assert (spans(tables), tables.stored(LEDGER).version) == (4, 4)


def test_files_of_earlier_versions_and_files_that_are_sealed_now_stay(tables: Tables) -> None:
    folder = Path(tables.folder) / LEDGER.name
    (first, *_) = tables.files(LEDGER)
    (uncommitted := folder / f"{name_start(0)}uncommitted.zstd.parquet").write_bytes(b"")
    tables.compact(LEDGER, least=2)
    tables.discard_uncommitted(LEDGER, 0)
    assert ((folder / first.place).exists(), uncommitted.exists()) == (True, False)
    (one,) = tables.files(LEDGER)
    os.utime(folder / one.place, (0, 0))
    LocalStorage(folder).copy(one.place, "sealed.parquet")
    LocalStorage(folder).copy(one.place, "sealed.parquet")  # after a kill
    assert "sealed.parquet" not in tables.stored(LEDGER).unneeded(7 * 86_400)


def test_two_programs_that_commit_at_once_both_get_their_commit(tables: Tables) -> None:
    other = Tables(tables.spark, tables.folder)
    assert spans(other) == 3
    tables.append_values(LEDGER, [("a", "00000001", 4, 4, 4, 4)], None)
    other.append_values(LEDGER, [("a", "00000001", 5, 5, 5, 5)], None)
    assert (spans(Tables(tables.spark, tables.folder)), spans(other)) == (5, 5)


def test_log_is_read_from_its_checkpoint(spark: SparkSession, tables: Tables) -> None:
    for number in range(4, 60):
        tables.append_values(LEDGER, [("a", "00000001", number, number, number, number)], None)
    folder = Path(tables.folder) / LEDGER.name
    last = json.loads((folder / "_delta_log" / "_last_checkpoint").read_text())["version"]
    for version in range(last):
        (folder / "_delta_log" / f"{version:020}.json").unlink()
    read = StoredTable(LocalStorage(folder))
    assert (read.version, len(read.files)) == (59, 59)
    assert read.metadata.description == LEDGER.comment
    assert spark.read.format("delta").load(str(folder)).count() == 59
