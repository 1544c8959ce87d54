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
from tools.cli.paths import cache_directory

HOST = "127.0.0.1"
DEPLOY = "org.apache.spark.deploy"


@contextmanager
def started(said: str, *arguments: str) -> Iterator[str]:
    """Runs a part of Spark; yields what the pattern `said` finds in its log."""
    home = Path(pyspark.__file__).parent
    java_home = make_java_home(find_java(), cache_directory())
    environment = {**os.environ, "JAVA_HOME": str(java_home), "SPARK_HOME": str(home), "SPARK_LOCAL_IP": HOST}
    command = [str(home / "bin" / "spark-class"), *arguments]
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as process:
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
