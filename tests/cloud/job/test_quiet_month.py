"""A month without a message: Delta removes the old commits of its logs, VACUUM the old files; nothing else changes."""

import json
import shutil
import time
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from cloud import ingest, maintain, verify
from cloud.job.plan import Checkpoint, Plan
from cloud.job.run import LedgerLost, Report
from cloud.spark.session import generated_code
from cloud.storage.local import LocalStorage
from cloud.tables.schema import BATCHES, FORGOTTEN, LANDING_FILES, LEDGER, LINKS, READINGS, TABLES, Table
from cloud.tables.tables import Tables
from cloud.transforms.own_decoders import find_decoders, fingerprint
from tests.cloud.job.cut_job import cut_after
from tests.cloud.lake import Lake
from tests.cloud.messages import land, row

LANDED = [row(1), row(2), row(3), row(4, content=b"no SenML"), row(5)]


@pytest.fixture(scope="module")
def two_batches(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with landing files and tables, which have all of `LANDED`."""
    place = tmp_path_factory.mktemp("site")
    (place / "landing").mkdir()
    lake = Lake(spark, place / "landing", place / "tables")
    for rows in (LANDED[:2], LANDED[1:]):
        land(lake.landing, rows)
        lake.ingest()
    shutil.copytree(place, place / "kept")
    return place


@pytest.fixture
def lake(spark: SparkSession, two_batches: Path) -> Lake:
    """Returns these tables as they were, in the same folder: a stream's checkpoint holds for one folder."""
    for name in ("landing", "tables"):
        shutil.rmtree(two_batches / name)
        shutil.copytree(two_batches / "kept" / name, two_batches / name)
    _delta_logs(spark).clearCache()
    return Lake(spark, two_batches / "landing", two_batches / "tables")


def _delta_logs(spark: SparkSession) -> Any:
    return spark._jvm.org.apache.spark.sql.delta.DeltaLog  # type: ignore[union-attr]


def let_a_month_pass(lake: Lake) -> None:
    """Gives each table a commit without a batch, as VACUUM writes it, and a checkpoint; removes the older commits from
    its log, as Delta does after 30 days."""
    logs = _delta_logs(lake.spark)
    logs.clearCache()
    with generated_code(lake.spark, False):
        for log in lake.folder.glob("*/_delta_log"):
            old = sorted(log.glob("[0-9]*.json"))
            vacuum = {"operation": "VACUUM END", "operationParameters": {"status": "COMPLETED"}, "isBlindAppend": True}
            commit_info = {"timestamp": time.time_ns() // 1_000_000, **vacuum}
            (log / f"{int(old[-1].stem) + 1:020}.json").write_text(json.dumps({"commitInfo": commit_info}) + "\n")
            logs.forTable(lake.spark._jsparkSession, str(log.parent)).checkpoint()
            for commit in old:
                commit.unlink()
                commit.with_suffix(".crc").unlink(missing_ok=True)
        logs.clearCache()


@pytest.mark.long
@pytest.mark.parametrize("checkpoint", ["kept", "lost"])
def test_ingest_goes_on_after_a_quiet_month(lake: Lake, checkpoint: str) -> None:
    let_a_month_pass(lake)
    if checkpoint == "lost":
        shutil.rmtree(lake.folder / "_checkpoint")
    land(lake.landing, [row(2), row(13), row(14)])
    assert lake.ingest() == Report(1, 1, rows_in=3, new=2, duplicates=1, readings=4)
    lake.check([*LANDED, row(13), row(14)])


@pytest.mark.long
def test_batch_cut_off_before_a_quiet_month_goes_on(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    land(lake.landing, [row(3), row(13), row(14, content=b"no SenML")])
    cut_after(READINGS, lake, monkeypatch)
    let_a_month_pass(lake)
    assert lake.ingest().taken_back == []
    lake.check([*LANDED, row(13), row(14, content=b"no SenML")])


@pytest.mark.long
def test_batch_cut_off_before_a_quiet_month_is_taken_back_alone(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    land(lake.landing, [row(3), row(13), row(14, content=b"no SenML")])
    cut_after(BATCHES, lake, monkeypatch)
    let_a_month_pass(lake)
    shutil.rmtree(lake.folder / "_checkpoint")
    assert lake.ingest().taken_back == [3]
    lake.check([*LANDED, row(13), row(14, content=b"no SenML")])


@pytest.mark.parametrize(
    "lost",
    [[LEDGER], [LEDGER, LANDING_FILES], [LEDGER, LANDING_FILES, BATCHES]],
    ids=lambda lost: " ".join(table.name for table in lost),
)
def test_nothing_is_written_or_deleted_when_the_ledger_is_lost(lake: Lake, lost: list[Table]) -> None:
    land(lake.landing, [row(1), row(20)])
    for table in lost:
        shutil.rmtree(lake.folder / table.name)
    Tables(lake.spark, lake.folder).create_missing()  # as a copy from before the first batch has them
    kept = [table for table in TABLES if table not in lost]
    before = {table: lake.rows(table.name) for table in kept}
    with pytest.raises(LedgerLost, match="batches 1 and 2"):
        lake.ingest()
    assert {table: lake.rows(table.name) for table in kept} == before


def test_job_refuses_tables_whose_ledger_is_newer_than_their_rows(lake: Lake) -> None:
    """The ledger has messages that these tables do not have: the job would take them for duplicates."""
    before = Path(shutil.copytree(lake.folder, lake.folder.with_name("before")))
    land(lake.landing, [row(1), row(20)])
    lake.ingest()
    for table in TABLES:
        if table is not LEDGER:
            shutil.rmtree(lake.folder / table.name)
            shutil.copytree(before / table.name, lake.folder / table.name)
    shutil.rmtree(before)
    with pytest.raises(LedgerLost, match="have batch 3, and `batches` ends with batch 2"):
        lake.ingest()


@pytest.mark.parametrize("lost", [LEDGER, BATCHES, READINGS, LINKS, FORGOTTEN], ids=lambda table: table.name)
def test_table_that_is_gone_beside_others_with_rows_is_named_and_not_made_empty(lake: Lake, lost: Table) -> None:
    shutil.rmtree(lake.folder / lost.name)
    for command in (ingest, maintain, verify):
        with pytest.raises(FileNotFoundError, match=f"the table {lost.name} is gone from {lake.folder}"):
            command(lake.spark, lake.landing, lake.folder)
    assert not (lake.folder / lost.name).exists()


def test_plan_of_other_tables_is_not_carried_out(lake: Lake) -> None:
    """As a `_checkpoint` from a copy or from another machine has it."""
    (described, _) = land(lake.landing, [row(1), row(20)], [row(21)])
    for checkpoint_id in (None, "0" * 32):
        checkpoint = Checkpoint(LocalStorage(lake.folder / "_checkpoint"))
        checkpoint.write(Plan(1, 1, [described.of_file], fingerprint(find_decoders([]))))
        if checkpoint_id:
            (lake.folder / "_checkpoint" / "id").write_text(checkpoint_id)
        report = lake.ingest()
        lake.check([*LANDED, row(20), row(21)])
        assert report.rows_in == (0 if checkpoint_id else 3)


def test_removed_tables_are_made_again_beside_the_old_checkpoint(lake: Lake) -> None:
    for table in TABLES:
        shutil.rmtree(lake.folder / table.name)
    assert lake.ingest() == Report(1, 2, rows_in=6, new=4, duplicates=1, quarantined=1, readings=8)
    lake.check(LANDED)
