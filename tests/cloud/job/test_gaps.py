"""What is missing, and why: by the route numbers and the statements of routes, in DuckDB. test_views has Spark find the
same."""

from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.cloud.engine import Engine
from tests.cloud.job.scenarios import SCENARIOS, Gap, landings
from tests.cloud.lake import Lake
from tests.cloud.messages import land


@pytest.fixture(scope="module")
def engine(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Engine:
    folder = tmp_path_factory.mktemp("gaps")
    (folder / "landing").mkdir()
    land(folder / "landing", *landings())
    lake = Lake(spark, folder / "landing", folder / "tables")
    report = lake.ingest()
    assert report.quarantined == 0, lake.rows("quarantine")
    return Engine("duckdb", lake)


@pytest.fixture(scope="module")
def gaps(engine: Engine) -> dict[str, list[dict[str, Any]]]:
    """The gaps of each origin."""
    found: dict[str, list[dict[str, Any]]] = {}
    for one in engine.rows("SELECT * FROM gaps ORDER BY origin, lo"):
        found.setdefault(one["origin"], []).append(one)
    return found


def shown(found: list[dict[str, Any]]) -> list[Gap]:
    return [(one["lo"], one["hi"], one["missing"], one["place"], one["reason"]) for one in found]


@pytest.mark.parametrize("name", SCENARIOS)
def test_each_gap_has_the_reason_that_links_and_statements_tell(
    gaps: dict[str, list[dict[str, Any]]], name: str
) -> None:
    found = gaps.get(f"x-{name}", [])
    assert shown(found) == SCENARIOS[name][1]
    assert {(one["gateway"], one["route"]) for one in found} <= {(name, "central")}


def test_gaps_without_numbers_of_a_link_are_unknown(gaps: dict[str, list[dict[str, Any]]]) -> None:
    found = gaps["x-numberless"]
    assert shown(found) == [(1, 1, 1, "head", "unknown"), (4, 5, 2, "middle", "unknown")]
    assert [(one["gateway"], one["previous"], one["next"]) for one in found] == [(None, None, 2), (None, 3, 6)]


def test_what_a_later_route_does_not_take_is_unknown(gaps: dict[str, list[dict[str, Any]]]) -> None:
    assert shown(gaps["x-chain"]) == [(4, 5, 2, "middle", "unknown"), (7, 7, 1, "middle", "unknown")]


def test_completeness_counts_what_should_have_arrived(engine: Engine) -> None:
    found = {one["origin"]: one for one in engine.rows("SELECT * FROM completeness")}
    expected = {
        "whole": (1, 9, 9, 0, 1.0),
        "left-out": (3, 9, 4, 0, 1.0),
        "no-word": (3, 9, 4, 5, 4 / 9),
        "tail": (1, 9, 7, 2, 7 / 9),
        "evicted": (1, 9, 7, 2, 7 / 9),
        "selected": (1, 9, 7, 0, 1.0),
    }
    for name, numbers in expected.items():
        one = found[f"x-{name}"]
        assert (one["first"], one["last"], one["arrived"], one["missing"], one["share"]) == numbers


def test_messages_that_are_missing_are_spread_over_the_hours_between_their_neighbours(engine: Engine) -> None:
    sql = "SELECT hour, expected, arrived, share FROM completeness_by_hour WHERE device = 'x-hours' ORDER BY hour"
    hours = [(one["hour"].hour, one["expected"], one["arrived"], one["share"]) for one in engine.rows(sql)]
    assert hours == [(8, 1, 1, 1.0), (9, 7, 0, 0.0), (10, 7, 0, 0.0), (11, 3, 1, 1 / 3), (12, 1, 1, 1.0)]
    (total,) = engine.rows("SELECT * FROM completeness WHERE origin = 'x-hours'")
    assert sum(expected for _, expected, _, _ in hours) == total["arrived"] + total["missing"]
