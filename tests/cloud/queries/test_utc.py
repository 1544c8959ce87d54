"""UTC by anchors: what a device measured before it knew the time, on a tiny frame."""

import random
import time
from bisect import bisect_left
from datetime import UTC, datetime, timedelta
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from cloud.queries.views import views
from cloud.tables.schema import READINGS

NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)
ARRIVED = NOON + timedelta(days=3)


def reading(seq: int, uptime_ms: int | None, **change: Any) -> dict[str, Any]:
    empty = dict.fromkeys(READINGS.column_names)
    named = {"origin": "garage", "epoch": "00000001", "device": "garage", "metric": "load", "record": 0, "value": 1.0}
    row = {**empty, **named, "seq": seq, "boot_id": 7, "uptime_ms": uptime_ms, **change}
    told = row["time"] is not None
    arrived = {"event_time": row["time"] or ARRIVED, "event_time_by": "device" if told else "gateway"}
    return {**row, **arrived, **change}


def anchor(seq: int, uptime_ms: int, time: datetime, **change: Any) -> list[dict[str, Any]]:
    told = {"time": time, **change}
    return [
        reading(seq, uptime_ms, metric="clock", value=None, value_string="gateway", **told),
        reading(seq, uptime_ms, metric="clock_error", record=1, value=0.02, **told),
    ]


LOADS = "SELECT seq, utc, utc_by FROM timeline WHERE metric = 'load' ORDER BY seq"


def timeline(rows: list[dict[str, Any]], spark: SparkSession | None = None) -> dict[int, tuple[datetime, str]]:
    """Returns (utc, utc_by) of each message with a load, by seq: by DuckDB, or by Spark."""
    table = pa.Table.from_pylist(rows, schema=READINGS.empty().schema)
    count = "SELECT count(*) AS n FROM timeline"
    if spark is not None:
        spark.createDataFrame(table).createOrReplaceTempView("readings")
        for name in ("anchors", "timeline"):
            spark.sql(views()[name]).createOrReplaceTempView(name)
        counted, found = spark.sql(count).toArrow(), spark.sql(LOADS).toArrow()
    else:
        with duckdb.connect() as engine:
            engine.execute("SET TimeZone = 'UTC'")
            engine.register("readings", table)
            for name in ("anchors", "timeline"):
                engine.execute(f"CREATE VIEW {name} AS {views()[name]}")
            counted, found = engine.sql(count).to_arrow_table(), engine.sql(LOADS).to_arrow_table()
    assert counted.to_pylist() == [{"n": len(rows)}]
    return {row["seq"]: (row["utc"], row["utc_by"]) for row in found.to_pylist()}


def at(ms: int) -> datetime:
    return NOON + timedelta(milliseconds=ms)


def test_readings_before_the_anchor_get_utc_and_those_with_time_keep_it() -> None:
    rows = [reading(1, 0), reading(2, 59_999), *anchor(3, 60_000, NOON), reading(4, 61_000, time=at(1000))]
    assert timeline(rows) == {1: (at(-60_000), "anchor"), 2: (at(-1), "anchor"), 4: (at(1000), "device")}


def test_step_of_the_clock_moves_nothing_that_was_before_the_first_anchor() -> None:
    hour = timedelta(hours=1)
    rows = [
        *[reading(1, 1000), *anchor(2, 2000, NOON), reading(3, 3000, time=at(1000))],
        *[*anchor(4, 4000, at(2000) + hour), reading(5, 5000, time=at(3000) + hour)],
    ]
    assert timeline(rows) == {1: (at(-1000), "anchor"), 3: (at(1000), "device"), 5: (at(3000) + hour, "device")}


def test_nearest_anchor_after_a_reading_counts_and_else_the_last() -> None:
    second = timedelta(seconds=1)
    rows = [*anchor(1, 10_000, NOON), *anchor(2, 20_000, at(10_000) + second)]
    rows += [reading(seq, uptime_ms) for seq, uptime_ms in enumerate((9_000, 10_000, 10_001, 20_000, 30_000), 3)]
    assert [utc for utc, _ in timeline(rows).values()] == [
        *[at(-1000), at(0)],
        *[at(1) + second, at(10_000) + second, at(20_000) + second],
    ]


OTHERS: list[dict[str, Any]] = [
    {"boot_id": 8},
    {"epoch": "00000002"},
    {"origin": "cellar"},
    {"device": "cellar"},
    {"boot_id": None, "uptime_ms": None},
]


@pytest.mark.parametrize("other", OTHERS)
def test_anchor_serves_its_own_boot_only(other: dict[str, Any]) -> None:
    rows = [{**reading(1, 1000), **other}, *anchor(2, 2000, NOON)]
    assert timeline(rows) == {1: (ARRIVED, "gateway")}


def test_anchor_of_a_clock_that_is_wrong_serves_nothing() -> None:
    wrong = {"event_time": ARRIVED, "event_time_by": "gateway"}
    rows = [reading(1, 1000), *anchor(2, 2000, NOON - timedelta(days=20_000), **wrong)]
    assert timeline(rows) == {1: (ARRIVED, "gateway")}


def test_uptime_that_is_missing_takes_no_utc_from_an_anchor() -> None:
    rows = [reading(1, None), *anchor(2, 2000, NOON)]
    assert timeline(rows) == {1: (ARRIVED, "gateway")}


def among(anchors: int, seed: int) -> tuple[list[dict[str, Any]], dict[int, tuple[datetime, str]]]:
    """Returns readings among many anchors of a boot, and of other boots, with (utc, utc_by) of each by seq."""
    chance = random.Random(seed)
    uptimes = sorted(chance.choices(range(0, 50 * anchors, 10), k=anchors))  # some have the same uptime
    times = [NOON + timedelta(seconds=chance.randrange(10_000)) for _ in uptimes]
    rows = [
        one for seq, (up, time) in enumerate(zip(uptimes, times, strict=True), 1000) for one in anchor(seq, up, time)
    ]
    moments = {seq: chance.randrange(50 * anchors + 50) for seq in range(1, 100)}
    rows += [reading(seq, up) for seq, up in moments.items()] + [reading(100, None), reading(101, 5, time=NOON)]
    expected: dict[int, tuple[datetime, str]] = {100: (ARRIVED, "gateway"), 101: (NOON, "device")}
    for seq, up in moments.items():
        place = min(bisect_left(uptimes, up), anchors - 1)
        expected[seq] = (times[place] + timedelta(milliseconds=up - uptimes[place]), "anchor")
    for seq, other in enumerate(OTHERS, 200):
        rows.append({**reading(seq, 5), **other})
        expected[seq] = (ARRIVED, "gateway")
    return rows, expected


@pytest.mark.parametrize("anchors", [8, 9, 40])
def test_reading_between_many_anchors_takes_the_first_one_after_it(anchors: int, seed: int) -> None:
    rows, expected = among(anchors, seed)
    assert timeline(rows) == expected


def test_spark_gives_the_same_utc(seed: int, spark: SparkSession) -> None:
    rows, expected = among(40, seed)
    assert timeline(rows, spark) == expected


def test_many_anchors_in_one_boot_cost_about_as_much_as_in_many_boots() -> None:
    assert cost(boots=1) < 10 * cost(boots=1000)  # 100 times as much when each reading was compared with each anchor


def cost(boots: int) -> float:
    """Returns the processor time in which DuckDB gives 100,000 readings UTC by 10,000 anchors."""
    made = f"""CREATE TABLE readings AS SELECT 'garage' AS origin, '00000001' AS epoch, 'garage' AS device, i AS seq,
        0 AS record, i * {boots} // 100000 AS boot_id, i * 1000 AS uptime_ms, i % 10 = 9 AS is_anchor,
        CASE WHEN is_anchor THEN 'clock' ELSE 'load' END AS metric,
        CASE WHEN is_anchor THEN 'gateway' END AS value_string, CAST(NULL AS DOUBLE) AS value,
        CASE WHEN is_anchor THEN 'device' ELSE 'gateway' END AS event_time_by,
        make_timestamptz(i * 1000000) AS event_time, CASE WHEN is_anchor THEN event_time END AS time
        FROM range(100000) AS made(i)"""
    with duckdb.connect() as engine:
        engine.execute(made)
        for name in ("anchors", "timeline"):
            engine.execute(f"CREATE VIEW {name} AS {views()[name]}")
        began = time.process_time()
        found = engine.sql("SELECT count(*) FILTER (WHERE utc_by = 'anchor'), count(utc) FROM timeline").fetchall()
        assert found == [(90_000, 100_000)]
        return time.process_time() - began
