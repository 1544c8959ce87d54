"""A standalone cluster with two workers carries out the job's tasks."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark
import pytest
from pyspark.sql import SparkSession

from cloud.spark.java import find_java, make_java_home
from tests.cloud.lake import Lake
from tests.cloud.messages import land, row
from tests.house.repository import ROOT
from tools.cli.paths import cache_directory

HOST = "127.0.0.1"
DEPLOY = "org.apache.spark.deploy"
HOME = Path(pyspark.__file__).parent


SUBMITTED = """
import sys
from cloud import ingest, open_session

spark = open_session()
print(spark.sparkContext.master, spark.sparkContext.uiWebUrl is not None, ingest(spark, *sys.argv[1:]).new)
"""


def environment() -> dict[str, str]:
    """Returns the environment in which Spark's programs start, and import what this one imports."""
    java_home = make_java_home(find_java(), cache_directory())
    ours = {"JAVA_HOME": str(java_home), "SPARK_HOME": str(HOME), "SPARK_LOCAL_IP": HOST}
    return {**os.environ, **ours, "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable}


@contextmanager
def started(said: str, *arguments: str) -> Iterator[str]:
    """Runs a part of Spark; yields what the pattern `said` finds in its log."""
    command = [str(HOME / "bin" / "spark-class"), *arguments]
    with subprocess.Popen(command, env=environment(), stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            found = next(filter(None, (re.search(said, line) for line in process.stderr)), None)
            assert found, f"{arguments[0]} ended"
            yield found[0]
        finally:
            process.terminate()
            process.stderr.read()


@pytest.fixture
def master(tmp_path: Path) -> Iterator[str]:
    """Runs a master and two workers of one core each; returns the master's URL."""
    ports = ("--port", "0", "--webui-port", "0")
    with started(rf"spark://{HOST}:\d+", f"{DEPLOY}.master.Master", "--host", HOST, *ports) as url:
        size = ("--cores", "1", "--memory", "600m", "--work-dir", str(tmp_path / "work"))
        worker = (f"{DEPLOY}.worker.Worker", "--host", HOST, *ports, *size, url)
        ready = "Successfully registered with master"
        with started(ready, *worker), started(ready, *worker):
            yield url


@pytest.mark.long
def test_two_workers_take_in_landing_files(spark: SparkSession, landing: Path, folder: Path, master: str) -> None:
    first, second = [row(seq) for seq in range(1, 50)], [row(seq) for seq in range(40, 90)]
    land(landing, first, second)
    arguments = ["cloud", "ingest", "--landing", str(landing), "--tables", str(folder), "--json"]
    options = ["--master", master, "--conf", "spark.executor.memory=512m", "--conf", "spark.executor.cores=1"]
    command = [sys.executable, "-m", "tools.cli.main", *arguments, *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=150)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert (report["rows_in"], report["new"], report["duplicates"], report["readings"]) == (99, 89, 10, 178)
    Lake(spark, landing, folder).check([*first, *second])
    assert len(list((folder / "bronze_messages").rglob("*.parquet"))) == 2


@pytest.mark.long
def test_program_of_spark_submit_keeps_its_master_and_settings(
    landing: Path, folder: Path, master: str, tmp_path: Path
) -> None:
    land(landing, [row(1), row(2)])
    program = tmp_path / "program.py"
    program.write_text(SUBMITTED)
    given = {"spark.ui.enabled": "true", "spark.executor.memory": "512m", "spark.executor.cores": "1"}
    options = [word for key, value in given.items() for word in ("--conf", f"{key}={value}")]
    command = [str(HOME / "bin" / "spark-submit"), "--master", master, *options, str(program)]
    done = subprocess.run(
        [*command, str(landing), str(folder)], env=environment(), capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == f"{master} True 2"
