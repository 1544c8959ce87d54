"""The torture of lander and job: a sample of it holds, its judge finds what is wrong, and its cuts are exact."""

import json
import random
import subprocess
from collections.abc import Callable
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest
import typer
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from cloud.storage.durable_file import sync, write_durably
from cloud.storage.local import LocalStorage
from cloud.tables.schema import BRONZE_MESSAGES, LEDGER, QUARANTINE, READINGS, Table
from cloud.tables.stored_table import StoredTable
from cloud.tables.tables import Tables
from tests.cloud.lake import Lake
from tests.cloud.messages import land, row
from tests.support.result_shape import faults_of
from tools.lab.torture.cloud import command
from tools.lab.torture.cloud.cut import Cutter, Undone
from tools.lab.torture.cloud.driver import Driver, Order
from tools.lab.torture.cloud.judge import judge
from tools.lab.torture.cloud.messages import DECODER, Key, key_of
from tools.lab.torture.cloud.places import Disk
from tools.lab.torture.cloud.worker import WorkerFailed

app = typer.Typer()
app.command()(command.cloud)
LANDED = [row(1), row(2), row(2, content=b"another"), row(3, content=b"no SenML")]
KINDS = dict(zip(map(key_of, LANDED), (2, 2, None, None), strict=True))


@pytest.mark.long
@pytest.mark.timeout(600)
def test_sample_of_the_torture_holds(seed: int) -> None:
    done = CliRunner().invoke(app, ["--quick", "--json", "--seed", str(seed)])
    assert done.exit_code == 0, done.output
    report = json.loads(done.stdout.splitlines()[-1])
    assert faults_of(report, "torture") == []
    assert (report["holds"], report["messages"] > 0, report["steps"]) == (True, True, 6)


@pytest.fixture(scope="module")
def lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    folder = tmp_path_factory.mktemp("site")
    (folder / "landing").mkdir()
    return Lake(spark, folder / "landing", folder / "tables")


@pytest.fixture(scope="module")
def files(lake: Lake) -> dict[str, list[Key]]:
    (described,) = land(lake.landing, LANDED)
    lake.ingest()
    return {described.file: [key_of(one) for one in LANDED]}


def test_judge_finds_nothing_in_exact_tables(lake: Lake, files: dict[str, list[Key]]) -> None:
    assert list(judge(lake.folder, files, KINDS, is_last=True)) == []


def test_judge_finds_a_file_that_was_not_taken_in(lake: Lake, files: dict[str, list[Key]]) -> None:
    found = list(judge(lake.folder, {**files, "late.parquet": []}, KINDS, is_last=True))
    assert found == ["1 files are ingested, 1 different ones of 2"]
    assert list(judge(lake.folder, {**files, "late.parquet": []}, KINDS, is_last=False)) == []


@pytest.mark.parametrize(
    ("table", "change", "text"),
    [
        (BRONZE_MESSAGES, lambda rows: rows.slice(1), "1 messages are missing"),
        (BRONZE_MESSAGES, lambda rows: pa.concat_tables([rows, rows.slice(0, 1)]), "1 messages are there twice"),
        (READINGS, lambda rows: rows.slice(1), "has 1 readings and 0 rows in quarantine"),
        (READINGS, lambda rows: pa.concat_tables([rows, rows.slice(0, 1)]), "readings are there twice"),
        (QUARANTINE, lambda rows: rows.slice(0, 0), "conflicts:"),
        (LEDGER, lambda rows: rows.slice(0, 0), "the ledger has 0 numbers, 3 have landed"),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_judge_finds_a_row_too_few_or_too_many(
    lake: Lake, files: dict[str, list[Key]], table: Table, change: Callable[[pa.Table], pa.Table], text: str
) -> None:
    tables = Tables(lake.spark, lake.folder)
    before = tables.files(table)
    rows = tables.read_files(table, before)
    tables.replace(table, before, change(rows))
    try:
        found = list(judge(lake.folder, files, KINDS, is_last=True))
    finally:
        tables.replace(table, tables.files(table), rows)
    assert any(text in one for one in found), found


def test_month_that_passes_deletes_no_commit_before_a_checkpoint_that_is_cut_off(
    spark: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / "landing").mkdir()
    lake = Lake(spark, tmp_path / "landing", tmp_path / "tables")
    (described,) = land(lake.landing, LANDED)
    lake.ingest()
    StoredTable(LocalStorage(lake.folder / QUARANTINE.name)).write_checkpoint()
    (checkpoint,) = (lake.folder / QUARANTINE.name).rglob("*.checkpoint.parquet")
    checkpoint.write_bytes(b"")
    (tmp_path / "decoder.py").write_text(DECODER)
    driver = Driver(lake.landing, lake.folder, tmp_path / "decoder.py")
    assert driver.do(Order("month", tables=[READINGS.name, LEDGER.name])) == []
    assert list(judge(lake.folder, {described.file: [key_of(one) for one in LANDED]}, KINDS, is_last=True)) == []


def test_cut_is_before_each_operation_and_says_what_no_sync_has_made_durable(tmp_path: Path) -> None:
    folder, left = tmp_path / "folder", tmp_path / "left"
    folder.mkdir()

    class Cut(BaseException):
        """Stands for the end of the process."""

    def end() -> None:
        raise Cut

    cutter = Cutter(folder, left, end)

    def work() -> None:
        write_durably(folder / "a", b"1")
        (folder / "a").unlink()

    cutter.begin(None)
    work()
    undone = []
    for at in range(cutter.spare()):
        left.unlink(missing_ok=True)
        cutter.begin(at)
        with pytest.raises(Cut):
            work()
        undone.append(msgspec.msgpack.decode(left.read_bytes(), type=Undone))
        cutter.begin(None)
        for path in folder.iterdir():
            path.unlink()
    assert all(one.content == [] for one in undone)
    # To write a hidden file, to rename it, to sync the folder, to remove the file.
    assert [one.added for one in undone] == [[], [], [str(folder / "a")], []]


def test_process_that_something_else_killed_is_a_failure(tmp_path: Path) -> None:
    """Otherwise what the kernel ends where memory is short would count as a kill that the tables have survived."""
    with pytest.raises(WorkerFailed, match=r"^a process was killed, but not by its cutter$"):
        list(Disk(tmp_path, random.Random(1)).killed())


def test_cut_says_which_files_of_a_log_no_sync_has_reached(tmp_path: Path) -> None:
    """delta-rs writes them, of which Python does not tell."""
    folder, left = tmp_path / "folder", tmp_path / "left"
    log = folder / "readings" / "_delta_log"
    log.mkdir(parents=True)
    (log / f"{0:020}.json").touch()

    class Cut(BaseException):
        """Stands for the end of the process."""

    def end() -> None:
        raise Cut

    def sync_all(*paths: Path) -> None:
        for path in paths:
            sync(path)

    cutter = Cutter(folder, left, end)
    undone = []
    for at in range(3):
        cutter.begin(at)
        subprocess.run(["touch", commit := str(log / f"{at + 1:020}.json")], check=True)
        with pytest.raises(Cut):
            sync_all(Path(commit), log, log)
        undone.append(msgspec.msgpack.decode(left.read_bytes(), type=Undone))
    cutter.begin(None)
    names = [str(log / f"{number:020}.json") for number in (1, 2, 3)]
    assert [one.added for one in undone] == [names[:1], names[:2], []]
    assert [one.content for one in undone] == [names[:1], names[:1], names[:1]]
