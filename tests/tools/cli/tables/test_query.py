import csv
import io
import json
import signal
import subprocess
import sys
from itertools import product
from pathlib import Path

import pytest
import typer
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from typer.testing import CliRunner, Result

from cloud import ingest, open_views, select
from cloud.tables.schema import LEDGER, TABLES
from tests.cloud.messages import land, row
from tools.cli.tables.query import query

ENGINES = pytest.mark.parametrize("engine", [[], ["--spark"]], ids=["duckdb", "spark"])

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


def test_rows_are_counted_under_the_table(tables: Path) -> None:
    result = run("SELECT kind FROM quarantine", "--tables", str(tables))
    assert "undecodable" in result.stdout
    assert result.stdout.endswith("\n1 row\n")


def test_texts_of_devices_do_not_command_the_terminal(tables: Path) -> None:
    hostile = r"'a' || chr(27) || '[2J' || chr(8238) || chr(10) || 'b'"
    shown = run(f"SELECT {hostile} AS text", "--tables", str(tables)).stdout
    assert "a?[2J?" in shown and "b" in shown.split("a?[2J?")[1]
    drawn = run(f"SELECT seq, value, {hostile} AS text FROM readings", "--tables", str(tables), "--plot").stdout
    assert "a?[2J??b" in drawn.splitlines()[-1]
    refused = run(f"SELECT CAST({hostile} AS INTEGER)", "--tables", str(tables)).stderr
    assert "a?[2J" in refused
    assert all(line.isprintable() for text in (shown, drawn, refused) for line in text.splitlines())


# Spark plans each view for its count, which takes a minute; test_views asks each one of both engines.
@pytest.mark.parametrize("engine", [[], pytest.param(["--spark"], marks=pytest.mark.long)], ids=["duckdb", "spark"])
def test_without_sql_the_tables_and_the_devices_are_listed(tables: Path, engine: list[str]) -> None:
    result = run("--json", "--tables", str(tables), *engine)
    listed = json.loads(result.stdout)
    counts = {table["table"]: table["rows"] for table in listed["tables"]}
    assert (counts["bronze_messages"], counts["quarantine"], counts["gaps"]) == (4, 1, 1)
    assert len(listed["devices"]) == 1


WRITING = (
    "DELETE FROM readings",
    "delete from readings where seq = 1;",
    "UPDATE readings SET value = 0",
    "INSERT INTO readings SELECT * FROM readings",
    "WITH one AS (SELECT 1) INSERT INTO readings SELECT * FROM readings",
    "FROM readings INSERT INTO batches SELECT * INSERT INTO readings SELECT *",
    "MERGE INTO readings USING batches ON true WHEN MATCHED THEN DELETE",
    "DELETE FROM delta.`{tables}/readings`",
    "VACUUM delta.`{tables}/readings` RETAIN 0 HOURS",
    "TRUNCATE TABLE readings",
    "DROP VIEW readings",
    "CREATE OR REPLACE TEMPORARY VIEW readings AS SELECT 1",
    "CREATE TABLE more USING delta AS SELECT 1",
    "ALTER TABLE delta.`{tables}/readings` SET TBLPROPERTIES ('delta.appendOnly' = 'true')",
    "EXECUTE IMMEDIATE 'DELETE FROM readings'",
    "EXPLAIN DELETE FROM readings",
    "BEGIN DELETE FROM readings; END",
    "SELECT 1; DELETE FROM readings",
    "SET spark.sql.ansi.enabled = false",
    "SELECT TRANSFORM (origin) USING 'touch {tables}/touched' FROM readings",
    "SELECT * FROM (SELECT TRANSFORM (origin) USING 'touch {tables}/touched' FROM readings)",
    "SELECT java_method('java.lang.System', 'setProperty', 'java.io.tmpdir', '/')",
)


@ENGINES
@pytest.mark.parametrize("sql", WRITING)
def test_statement_that_does_more_than_read_is_refused_and_changes_nothing(
    tables: Path, sql: str, engine: list[str]
) -> None:
    before = {path: path.read_bytes() for path in tables.rglob("*") if path.is_file()}
    result = run(sql.format(tables=tables), "--tables", str(tables), *engine)
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (2, "", 1), result.output
    assert {path: path.read_bytes() for path in tables.rglob("*") if path.is_file()} == before


BEYOND_THE_TABLES = (
    "COPY readings TO '{tables}/copy.csv'",
    "EXPLAIN ANALYZE COPY readings TO '{tables}/copy.csv'",
    "EXPORT DATABASE '{tables}/copy'",
    "ATTACH '{tables}/more.db'",
    "INSTALL httpfs",
    "LOAD httpfs",
    "SET enable_external_access = true",
    "PRAGMA enable_profiling",
    "CREATE SECRET more (TYPE s3)",
    "SELECT * FROM read_text('/etc/hostname')",
    "SELECT * FROM read_csv('/etc/hostname')",
    "SELECT * FROM '/etc/hostname'",
    "SELECT * FROM glob('/etc/*')",
    "SELECT * FROM 'http://localhost/readings.parquet'",
    "SELECT * FROM delta_scan('{tables}/readings')",
    "SELECT * FROM folder",
    "",
    "-- nothing",
)


@pytest.mark.parametrize("sql", BEYOND_THE_TABLES)
def test_query_reaches_no_other_file_no_network_and_no_setting(tables: Path, sql: str) -> None:
    before = {path: path.read_bytes() for path in tables.rglob("*") if path.is_file()}
    result = run("--tables", str(tables), "--", sql.format(tables=tables))
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (2, "", 1), result.output
    assert {path: path.read_bytes() for path in tables.rglob("*") if path.is_file()} == before


@ENGINES
def test_refusal_names_the_statement_and_what_is_carried_out(tables: Path, engine: list[str]) -> None:
    result = run("DELETE FROM readings", "--tables", str(tables), *engine)
    refused = "DELETE is refused: a query only reads (SELECT, WITH, VALUES, TABLE, FROM, DESCRIBE, EXPLAIN)"
    assert result.stderr == f"holdfast query: {refused}\n"


@pytest.fixture(scope="module")
def views(spark: SparkSession, tables: Path) -> SparkSession:
    """A session with the views, which take Spark some seconds to plan."""
    open_views(spark, tables)
    return spark


def test_view_of_a_table_cannot_be_deleted_from_by_spark_itself(views: SparkSession) -> None:
    with pytest.raises(AnalysisException):
        views.sql("DELETE FROM readings")
    assert views.table("readings").count() > 0


BY_BOTH = (
    "WITH one AS (SELECT 1 AS n) SELECT * FROM one;",
    "(VALUES (1), (2)) ORDER BY 1 DESC",
    "TABLE quarantine",
    "DESCRIBE readings",
    "EXPLAIN SELECT * FROM readings",
    "SELECT 'DELETE FROM readings' AS text -- INSERT",
)
BY_SPARK = ("FROM readings |> WHERE seq = 1 |> SELECT origin",)
BY_DUCKDB = (
    "FROM readings SELECT origin WHERE seq = 1",
    "PIVOT (SELECT seq, metric, value FROM readings) ON metric IN ('load', 'memory') USING first(value)",
    "SUMMARIZE readings",
    "SHOW TABLES",
)


@pytest.mark.parametrize(
    ("sql", "engine"), [*((sql, []) for sql in (*BY_BOTH, *BY_DUCKDB)), *((sql, ["--spark"]) for sql in BY_SPARK)]
)
def test_statement_that_reads_is_carried_out(tables: Path, sql: str, engine: list[str]) -> None:
    result = run(sql, "--tables", str(tables), "--csv", *engine)
    assert result.exit_code == 0, result.output
    assert len(result.stdout.splitlines()) > 1


def test_statements_that_read_in_both_engines_are_carried_out_by_spark(views: SparkSession) -> None:
    for sql in BY_BOTH:
        assert select(views, sql).rows, sql


@pytest.mark.long
def test_tables_that_are_not_used_yet_are_empty_ones(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "landing").mkdir()
    ingest(spark, tmp_path / "landing", tmp_path / "tables")
    for table, engine in product(TABLES, ([], ["--spark"])):
        result = run(f"SELECT * FROM {table.name}", "--tables", str(tmp_path / "tables"), "--csv", *engine)
        assert result.exit_code == 0, result.output
        (header,) = csv.reader(io.StringIO(result.stdout))
        assert header == [name for name in table.column_names if "batch" not in name or table is not LEDGER]
    listed = json.loads(run("--json", "--tables", str(tmp_path / "tables")).stdout)
    assert {table["rows"] for table in listed["tables"]} == {0}
    assert listed["devices"] == []


def test_where_there_are_no_tables_it_says_where_it_looked_and_what_makes_some(tmp_path: Path) -> None:
    result = run("--tables", str(tmp_path / "nowhere"))
    assert result.exit_code == 2
    assert str(tmp_path / "nowhere") in result.stderr and "holdfast demo" in result.stderr


def test_plot_shows_each_text_as_a_line_with_its_sign(tables: Path) -> None:
    result = run("SELECT event_time, metric, value FROM readings", "--tables", str(tables), "--plot")
    assert result.exit_code == 0, result.output
    *chart, key = result.stdout.splitlines()
    assert key == "⠤ load   x memory"
    assert any("x" in line for line in chart)
    assert "08:53:21" in chart[-2]


def test_plot_names_each_column_of_numbers(tables: Path) -> None:
    sql = "SELECT seq, min(value) AS lowest, sum(value) AS sum FROM readings GROUP BY seq"
    result = run(sql, "--tables", str(tables), "--plot")
    assert result.stdout.splitlines()[-1] == "⠤ lowest   x sum"


@pytest.mark.parametrize("columns", ["metric, value", "event_time", "event_time, metric", "value_string, value"])
def test_plot_of_rows_without_two_columns_of_numbers_says_what_it_needs(tables: Path, columns: str) -> None:
    result = run(f"SELECT {columns} FROM readings", "--tables", str(tables), "--plot")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "a time or a number" in result.stderr


def test_ways_to_print_exclude_each_other(tables: Path) -> None:
    result = run("SELECT 1", "--tables", str(tables), "--plot", "--csv")
    assert (result.exit_code, result.stderr) == (2, "holdfast query: --csv, --json and --plot exclude each other\n")


def test_watch_asks_again_and_shows_what_has_come(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "landing").mkdir()
    land(tmp_path / "landing", [row(1)])
    ingest(spark, tmp_path / "landing", tmp_path / "tables")
    sql = "SELECT max(seq) AS last FROM readings"
    arguments = ["query", sql, "--tables", str(tmp_path / "tables"), "--json", "--watch", "0.1s"]
    with subprocess.Popen(
        [sys.executable, "-m", "tools.cli.main", *arguments], stdout=subprocess.PIPE, text=True, bufsize=1
    ) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == '[{"last": 1}]\n'
            land(tmp_path / "landing", [row(2)], boot=2)
            ingest(spark, tmp_path / "landing", tmp_path / "tables")
            while (line := process.stdout.readline()) == '[{"last": 1}]\n':
                pass
            assert line == '[{"last": 2}]\n'
        finally:
            process.send_signal(signal.SIGINT)
        process.stdout.read()
    assert process.returncode == 130
