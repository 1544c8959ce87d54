"""The questions of the how-to and the notebook find what they promise, by both engines."""

import json
import random
import re
from datetime import datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from cloud import OpenTables, Result, ingest, open_views, select
from tests.cloud.messages import BASE_TIME_S, land, row
from tools.cli.paths import source_root

HOW_TO = source_root() / "docs/how-to"
QUESTIONS = dict(
    re.findall(
        r"^## ([^\n]+)\n(?:(?!^## ).)*?^```sql\n(.*?)^```",
        (HOW_TO / "ask-the-tables.md").read_text(),
        re.MULTILINE | re.DOTALL,
    )
)
READINGS, SPIKE, EVERY_S = 600, 500, 300
LAST_S = BASE_TIME_S + 4 * 3600


def measured_s(seq: int) -> int:
    return LAST_S - (READINGS - seq) * EVERY_S


def temperature(seq: int, value: float) -> bytes:
    return json.dumps([{"bn": "machine:", "n": "temperature", "u": "Cel", "bt": measured_s(seq), "v": value}]).encode()


@pytest.fixture(scope="module")
def tables(spark: SparkSession, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two days of a machine that gets far too cold once, and a device that was silent for its last hours."""
    noise = random.Random(request.config.option.seed)
    values = {seq: 20.0 if seq == SPIKE else noise.uniform(79, 81) for seq in range(1, READINGS + 1)}
    machine = [row(seq, "machine", temperature(seq, value)) for seq, value in values.items()]
    place = tmp_path_factory.mktemp("site")
    (place / "landing").mkdir()
    land(place / "landing", machine[:-2], [row(1), row(2)])
    ingest(spark, place / "landing", place / "tables")
    land(place / "landing", machine[-2:], boot=2)
    ingest(spark, place / "landing", place / "tables")
    return place / "tables"


@pytest.fixture(scope="module")
def views(spark: SparkSession, tables: Path) -> SparkSession:
    """A session with the views, which take Spark some seconds to plan."""
    open_views(spark, tables)
    return spark


def answer(views: SparkSession, tables: Path, heading: str) -> Result:
    """Returns the rows of the page's question, after both engines have found the same."""
    with OpenTables(tables) as opened:
        found = opened.select(QUESTIONS[heading])
    by_spark = select(views, QUESTIONS[heading])
    assert by_spark.columns == found.columns
    assert [tuple(map(_comparable, row)) for row in by_spark.rows] == [
        tuple(map(_comparable, row)) for row in found.rows
    ]
    return found


def _comparable(value: object) -> object:
    return pytest.approx(value) if isinstance(value, float) else value


def test_page_has_the_questions() -> None:
    assert list(QUESTIONS) == [
        *["The last value of each metric", "Devices that are silent", "Resampling", "A join with a registry"],
        *["Only what is new", "Anomalies"],
    ]


def test_last_value_of_each_metric(views: SparkSession, tables: Path) -> None:
    found = answer(views, tables, "The last value of each metric")
    assert [row[:2] for row in found.rows] == [("garage", "load"), ("garage", "memory"), ("machine", "temperature")]
    last = found.rows[-1][-1]
    assert isinstance(last, datetime) and last.timestamp() == LAST_S


def test_silent_device_is_found(views: SparkSession, tables: Path) -> None:
    assert [device for device, _ in answer(views, tables, "Devices that are silent").rows] == ["garage"]


def test_ten_minutes_have_two_readings_of_one_every_five(views: SparkSession, tables: Path) -> None:
    rows = [row for row in answer(views, tables, "Resampling").rows if row[0] == "machine"]
    assert sum(int(str(row[-1])) for row in rows) == READINGS
    assert {row[-1] for row in rows[1:-1]} == {2}


def test_registry_says_where_a_value_is_too_high(views: SparkSession, tables: Path) -> None:
    rows = answer(views, tables, "A join with a registry").rows
    assert [(place, device, too_high) for place, device, *_, too_high in rows] == [
        ("hall 1", "machine", False),
        *[("house", "garage", False)] * 2,
    ]


def test_later_batches_have_what_is_new(views: SparkSession, tables: Path) -> None:
    rows = answer(views, tables, "Only what is new").rows
    assert [row[:2] for row in rows] == [(2, "machine")] * 2


def test_anomaly_is_found_and_nothing_else(views: SparkSession, tables: Path) -> None:
    (found,) = answer(views, tables, "Anomalies").rows
    at = found[1]
    assert isinstance(at, datetime) and at.timestamp() == measured_s(SPIKE)
    assert found[2] == 20.0


def test_notebook_runs_from_its_first_cell_to_its_last(
    spark: SparkSession, tables: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tables.parent)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    notebook = json.loads((HOW_TO / "ask-the-tables.ipynb").read_text())
    names: dict[str, object] = {}
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            assert cell["outputs"] == [] and cell["execution_count"] is None
            exec("".join(cell["source"]), names)
    assert len(names["suspicious"]) == 1  # type: ignore[arg-type]
    assert dict(names["by_metric"].values.tolist())["temperature"] == READINGS  # type: ignore[attr-defined]
