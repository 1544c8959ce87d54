"""The functions of the library in a session that a user has started, without Delta Lake and in another time zone."""

import os
import subprocess
import sys
from pathlib import Path

from cloud import OpenTables
from cloud.spark.java import find_java, make_java_home
from tests.cloud.messages import BASE_TIME_S, land, row
from tests.house.repository import ROOT
from tools.cli.paths import cache_directory

PROGRAM = """
import sys
from pyspark.sql import SparkSession
from cloud import SparkMissing, ingest, open_views, verify

builder = SparkSession.builder.master("local[1]").config("spark.sql.session.timeZone", "Asia/Tokyo")
spark = builder.config("spark.ui.enabled", "false").config("spark.driver.host", "127.0.0.1").getOrCreate()
landing, tables = sys.argv[1:]
print("new", ingest(spark, landing, tables).new)
print("faults", [check.check for check in verify(spark, landing, tables, fresh_s=1e12) if not check.holds])
try:
    open_views(spark, tables)
except SparkMissing as error:
    print(error)
"""


def test_the_job_needs_no_delta_lake_and_the_views_say_that_they_do(tmp_path: Path) -> None:
    (tmp_path / "landing").mkdir()
    land(tmp_path / "landing", [row(1), row(2), row(2, content=b"another"), row(4)])
    folders = [str(tmp_path / "landing"), str(tmp_path / "tables")]
    environment = {**os.environ, "JAVA_HOME": str(make_java_home(find_java(), cache_directory()))}
    command = [sys.executable, "-c", PROGRAM, *folders]
    done = subprocess.run(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    assert done.stdout.splitlines() == [
        *["new 3", "faults []"],
        "this Spark session has no Delta Lake; cloud.open_session() starts one that has",
    ]
    with OpenTables(tmp_path / "tables") as tables:
        found = tables.select("SELECT seq, epoch(utc) FROM timeline WHERE record = 0 ORDER BY seq").rows
        assert found == [(seq, BASE_TIME_S + seq) for seq in (1, 2, 4)]
        assert tables.select("SELECT missing FROM completeness").rows == [(1,)]
