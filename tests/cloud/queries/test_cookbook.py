"""The recipes of the cookbook run and find what they promise."""

import csv
import re
import shlex
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from cloud import BadQuery, OpenTables, ingest
from tests.cloud.messages import land, row
from tools.cli.main import make_app
from tools.cli.paths import source_root

PAGE = (source_root() / "docs/how-to/cookbook.md").read_text()
RECIPES = dict(re.findall(r"^## ([^\n]+)\n(?:(?!^## ).)*?^```\w+\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL))
MIDNIGHT = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
START_S = round((MIDNIGHT - timedelta(hours=12)).timestamp())


def pack(seq: int) -> bytes:
    return f'[{{"bn":"garage:","n":"load","bt":{START_S + 600 * seq},"v":{seq}.5}}]'.encode()


@pytest.fixture(scope="module")
def tables(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Half a day of yesterday: a message each ten minutes, without the fourth and the fifth."""
    place = tmp_path_factory.mktemp("site")
    (place / "landing").mkdir()
    at = (START_S + 36_000) * 1000
    land(
        place / "landing",
        [row(seq, "garage", pack(seq))._replace(landed_ms=at, received_ms=at) for seq in (1, 2, 3, 6, 7, 8)],
    )
    ingest(spark, place / "landing", place / "tables")
    return place / "tables"


def ask(tables: Path, heading: str) -> list[dict[str, Any]]:
    with OpenTables(tables) as opened:
        found = opened.select(RECIPES[heading])
    return [dict(zip(found.columns, values, strict=True)) for values in found.rows]


def command(tables: Path, heading: str) -> str:
    """Runs a recipe of the shell, without what goes to a file, and returns what it prints."""
    words = shlex.split(RECIPES[heading].partition(">")[0])
    done = CliRunner().invoke(make_app(), [*words[1:], "--tables", str(tables)])
    assert done.exit_code == 0, done.output
    return done.stdout


def run(heading: str, **names: Any) -> dict[str, Any]:
    exec(RECIPES[heading], names)
    return names


def test_yesterday_lacks_the_two_messages(tables: Path) -> None:
    rows = ask(tables, "Is yesterday complete")
    assert sum(one["expected"] - one["arrived"] for one in rows) == 2
    assert {one["device"] for one in rows} == {"garage"}


def test_last_value_and_silent_devices(tables: Path) -> None:
    assert [(one["device"], one["metric"], one["value"]) for one in ask(tables, "Last value")] == [
        ("garage", "load", 8.5)
    ]
    (silent,) = ask(tables, "Silent devices")
    assert silent["device"] == "garage" and silent["minutes"] >= 60


def test_gap_is_filled_with_the_value_before_it(tables: Path) -> None:
    rows = ask(tables, "Gap filling")
    assert [one["mean"] for one in rows] == [1.5, 2.5, 3.5, None, None, 6.5, 7.5, 8.5]
    assert [one["filled"] for one in rows] == [1.5, 2.5, 3.5, 3.5, 3.5, 6.5, 7.5, 8.5]


def test_percentiles(tables: Path) -> None:
    (found,) = ask(tables, "Percentiles")
    assert (found["median"], found["highest"]) == (5.0, 8.5)


def test_join_with_a_csv(tables: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sites.csv").write_text("device,place\ngarage,hall 1\n")
    monkeypatch.chdir(tmp_path)
    assert "hall 1" in command(tables, "Join with a CSV") and "8.5" in command(tables, "Join with a CSV")


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("a b", "x\n1\n", "is no name for a table"),
        ("readings", "x\n1\n", "is a table already"),
        ("ok", "", "is no CSV file"),
    ],
)
def test_file_that_is_no_table_is_refused(tables: Path, tmp_path: Path, name: str, content: str, reason: str) -> None:
    (tmp_path / "x.csv").write_text(content)
    with pytest.raises(BadQuery, match=reason):
        OpenTables(tables, {name: tmp_path / "x.csv"})


def test_exports_have_all_readings_and_duckdb_reads_them(
    tables: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert len(list(csv.reader(command(tables, "Export to CSV").splitlines()))) == 7
    run("Export to Parquet", tables=tables)
    assert pq.read_table("readings.parquet").column("value").to_pylist() == [1.5, 2.5, 3.5, 6.5, 7.5, 8.5]
    assert run("DuckDB")["means"] == [("garage", "load", 30.0 / 6)]


def test_pandas_and_spark(tables: Path, spark: SparkSession) -> None:
    assert run("pandas", tables=tables)["frame"].value.sum() == 30.0
    (mean,) = run("Spark", tables=tables)["means"]["mean"]
    assert mean == pytest.approx(30.0 / 6)


def test_polars(tables: Path) -> None:
    assert run("polars", tables=tables)["means"]["value"].to_list() == [pytest.approx(30.0 / 6)]


def test_page_has_a_recipe_for_each_heading() -> None:
    assert len(RECIPES) == PAGE.count("\n## ") == 12
