"""The file with the views' SQL: any Spark session and DuckDB run it as it is, and find the same rows."""

import re
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from cloud import open_views
from cloud.queries.views import VIEWS_FILE, name_in_sql, views
from cloud.tables.schema import TABLES
from tests.cloud.engine import open_duckdb
from tests.cloud.job.links import handed, handed_on, stated, without
from tests.cloud.job.scenarios import landings
from tests.cloud.lake import Lake
from tests.cloud.messages import land, row
from tests.cloud.test_reference import REFERENCE

ANCHOR = b'[{"bn":"attic:","bt":1760000300,"boot":7,"up":60000,"n":"clock","vs":"ntp"},{"n":"clock_error","v":0.02}]'
BEFORE = b'[{"bn":"attic:","boot":7,"up":%d,"n":"load","v":4.5}]'


@pytest.fixture(scope="module")
def folder(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tables with gaps of every reason, a message left out, several hours, a text, an anchor and readings that get UTC
    from it."""
    place = tmp_path_factory.mktemp("lake")
    (place / "landing").mkdir()
    garage = [handed("garage", seq, number, "barn") for number, seq in enumerate((2, 3, 5, 3000, 9000), 1)]
    attic = [row(1, "attic", BEFORE % 1000), row(2, "attic", ANCHOR), row(3, "attic", b'[{"n":"door","vs":"open"}]')]
    said = stated("barn", 1, 1, 5, [handed_on("garage", 5, 2, 9000)], left_out=[without("garage", (4, 4))])
    land(place / "landing", garage, attic, [row(4, "attic", BEFORE % 59_999)], [said], *landings())
    lake = Lake(spark, place / "landing", place / "tables")
    lake.ingest()
    return lake.folder


@pytest.fixture(scope="module")
def catalog(spark: SparkSession, folder: Path) -> Iterator[SparkSession]:
    """A session with the tables in a schema of Spark's catalog and, by the file's own statements, the views."""
    session = spark.newSession()
    session.sql("CREATE SCHEMA site")
    session.sql("USE site")
    for table in TABLES:
        session.sql(f"CREATE TABLE {name_in_sql(table)} USING delta LOCATION '{folder / table.name}'")
    for statement in VIEWS_FILE.read_text().split(";\n"):
        if statement.strip():
            session.sql(statement)
    yield session
    session.sql("DROP SCHEMA site CASCADE")


@pytest.fixture(scope="module")
def engine(folder: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    with open_duckdb(folder) as connection:
        yield connection


def rows(found: pa.Table) -> list[str]:
    return sorted(map(repr, found.to_pylist()))


@pytest.mark.parametrize("name", views())
def test_spark_and_duckdb_find_the_same_rows_in_a_view(
    catalog: SparkSession, engine: duckdb.DuckDBPyConnection, name: str
) -> None:
    by_spark = catalog.table(name).toArrow()
    by_duckdb = engine.sql(f"SELECT * FROM {name}").to_arrow_table()
    assert by_spark.num_rows > 0
    assert [field.type for field in by_duckdb.schema] == [field.type for field in by_spark.schema]
    assert rows(by_duckdb) == rows(by_spark)


def test_latest_is_the_last_by_utc_and_not_by_arrival(engine: duckdb.DuckDBPyConnection) -> None:
    last = engine.sql(
        "SELECT device, metric, seq, utc_by, coalesce(value_string, value::VARCHAR) FROM latest"
        " WHERE device IN ('attic', 'garage') ORDER BY ALL"
    )
    assert last.fetchall() == [
        *[("attic", "clock", 2, "device", "ntp"), ("attic", "clock_error", 2, "device", "0.02")],
        *[("attic", "door", 3, "gateway", "open"), ("attic", "load", 4, "anchor", "4.5")],
        *[("garage", "load", 9000, "device", "9000.5"), ("garage", "memory", 9000, "device", "9000.5")],
    ]


def test_hours_and_devices_are_summed_up(engine: duckdb.DuckDBPyConnection) -> None:
    hours = "SELECT strftime(hour, '%H:%M'), readings, lowest, mean, highest FROM readings_hourly"
    found = engine.sql(f"{hours} WHERE device = 'garage' AND metric = 'load' ORDER BY hour").fetchall()
    assert found == [("08:00", 3, 2.5, 11.5 / 3, 5.5), ("09:00", 1, *[3000.5] * 3), ("11:00", 1, *[9000.5] * 3)]
    summed = "SELECT device, metrics, readings, epoch(first) FROM devices WHERE device IN ('attic', 'garage')"
    devices = engine.sql(f"{summed} ORDER BY device").fetchall()
    assert devices == [("attic", 4, 5, 1_760_000_000.003), ("garage", 2, 10, 1_760_000_002.0)]


def test_file_can_be_run_again(engine: duckdb.DuckDBPyConnection) -> None:
    before = engine.sql("SELECT * FROM gaps ORDER BY ALL").fetchall()
    engine.execute(VIEWS_FILE.read_text())
    assert engine.sql("SELECT * FROM gaps ORDER BY ALL").fetchall() == before


@pytest.mark.parametrize("name", views())
def test_every_column_of_a_view_is_documented(engine: duckdb.DuckDBPyConnection, name: str) -> None:
    section = (REFERENCE / "tables.md").read_text().partition("\n## Views\n")[2]
    (line,) = [line for line in section.splitlines() if line.startswith(f"| `{name}` |")]
    columns = line.split("|")[2].strip()
    found = engine.sql(f"SELECT * FROM {name}").columns
    if columns.startswith("those of `readings`, "):
        columns = ", ".join([*(f"`{name}`" for name in engine.sql("SELECT * FROM readings").columns), columns[21:]])
    assert columns == ", ".join(f"`{column}`" for column in found)


def test_a_query_that_comes_again_has_the_same_plan_in_spark(spark: SparkSession, folder: Path) -> None:
    """Spark writes the seed of random() into the code that it compiles for a query."""
    session = spark.newSession()
    open_views(session, folder)
    (row,) = session.sql("EXPLAIN EXTENDED SELECT * FROM gaps").collect()
    assert set(re.findall(r"rand(?:om)?\(([-\d]+)\)", row.plan)) == {"0"}
