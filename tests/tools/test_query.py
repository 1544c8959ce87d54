import csv
import io
import json
from pathlib import Path

import pytest
import typer
from pyspark.sql import SparkSession
from typer.testing import CliRunner, Result

from cloud.job import ingest
from tests.cloud.messages import land, row
from tools.query import query

app = typer.Typer()
app.command()(query)


@pytest.fixture(scope="module")
def tables(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tables with two messages of a device whose third one is missing between them, and one that is no SenML."""
    folder = tmp_path_factory.mktemp("site")
    (folder / "landing").mkdir()
    land(folder / "landing", [row(1), row(2), row(4), row(5, content=b"no SenML")])
    ingest(spark, folder / "landing", folder / "tables")
    return folder / "tables"


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


def test_rows_come_as_csv_with_a_header(tables: Path) -> None:
    result = run("SELECT seq, metric FROM readings ORDER BY seq", "--csv", "--tables", str(tables))
    assert result.exit_code == 0, result.output
    header, *rows = csv.reader(io.StringIO(result.stdout))
    assert header == ["seq", "metric"]
    assert sorted({int(row[0]) for row in rows}) == [1, 2, 4]


def test_rows_come_as_json(tables: Path) -> None:
    result = run("SELECT lo, hi, missing FROM gaps", "--json", "--tables", str(tables))
    assert json.loads(result.stdout) == [{"lo": 3, "hi": 3, "missing": 1}]


def test_rows_are_counted_under_the_table(tables: Path) -> None:
    result = run("SELECT kind FROM quarantine", "--tables", str(tables))
    assert "undecodable" in result.stdout
    assert result.stdout.endswith("\n1 row\n")


def test_without_sql_the_tables_and_the_devices_are_listed(tables: Path) -> None:
    result = run("--json", "--tables", str(tables))
    listed = json.loads(result.stdout)
    counts = {table["table"]: table["rows"] for table in listed["tables"]}
    assert (counts["bronze_messages"], counts["quarantine"], counts["gaps"]) == (4, 1, 1)
    assert len(listed["devices"]) == 1


def test_bad_sql_is_bad_usage_with_one_line_that_says_why(tables: Path) -> None:
    result = run("SELECT nonsense FROM readings", "--tables", str(tables))
    assert result.exit_code == 2
    assert "nonsense" in result.stderr and result.stderr.count("\n") == 1


def test_where_there_are_no_tables_it_says_where_it_looked_and_what_makes_some(tmp_path: Path) -> None:
    result = run("--tables", str(tmp_path / "nowhere"))
    assert result.exit_code == 2
    assert str(tmp_path / "nowhere") in result.stderr and "holdfast demo" in result.stderr
