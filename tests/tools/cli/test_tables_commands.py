"""`holdfast cloud maintain`, `verify` and `rebuild` as commands that run."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from cloud import ingest
from tests.cloud.messages import land, row


def cloud(*arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "tools.cli.main", "cloud", *arguments]
    return subprocess.run(command, capture_output=True, text=True)


def test_commands_look_after_the_tables_and_end_with_1_on_a_fault(spark: SparkSession, tmp_path: Path) -> None:
    landing, tables = tmp_path / "landing", tmp_path / "tables"
    landing.mkdir()
    land(landing, [row(1)])
    ingest(spark, landing, tables)
    land(landing, [row(2)], boot=2)
    ingest(spark, landing, tables)
    folders = ["--landing", str(landing), "--tables", str(tables), "--json"]
    done = cloud("rebuild", *folders)
    assert (done.returncode, json.loads(done.stdout)["new"]) == (0, 2), done.stderr
    done = cloud("maintain", *folders, "--landing-days", "0", "--forget", "cellar")
    facts = json.loads(done.stdout)
    assert (done.returncode, facts["landing_files"], facts["forgotten"]) == (0, 1, 0), done.stderr
    next((tables / "readings").glob("*/*.parquet")).unlink()
    done = cloud("verify", *folders, "--master", "local[1]", "--conf", "spark.driver.memory=1g")
    assert (done.returncode, json.loads(done.stdout)["holds"]) == (1, False), done.stderr


@pytest.mark.parametrize("command", ["maintain", "verify"])
def test_without_tables_a_command_ends_with_2(command: str, tmp_path: Path) -> None:
    done = cloud(command, "--landing", str(tmp_path), "--tables", str(tmp_path / "tables"))
    assert (done.returncode, "there are no tables in" in done.stderr) == (2, True)


@pytest.mark.parametrize("command", ["maintain", "rebuild", "requarantine", "verify"])
def test_spark_runs_where_and_as_the_options_say(command: str, tmp_path: Path) -> None:
    """Spark itself refuses a master that it does not know."""
    folders = ["--landing", str(tmp_path), "--tables", str(tmp_path / "tables")]
    done = cloud(command, *folders, "--conf", "memory=1g")
    assert (done.returncode, "expected a setting of Spark" in done.stderr) == (2, True), done.stderr
    done = cloud(command, *folders, "--master", "nowhere")
    assert (done.returncode, "Master must" in done.stderr) == (2, True), done.stderr
