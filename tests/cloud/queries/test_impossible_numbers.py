"""The views with devices that number and date their messages as they like, in Spark and DuckDB."""

import pytest
from pyspark.sql import SparkSession

from cloud.landing.file import Link, Row
from tests.cloud.engine import Engine
from tests.cloud.job.links import handed_on, stated
from tests.cloud.lake import Lake
from tests.cloud.messages import BASE_TIME_S, land, row
from wire.identity import SEQ_MAX

YEAR_2001_S = 980_000_000
HOUR_S = 3600


def dated(origin: str, seq: int, at_s: int, epoch: int = 0xCAFE) -> Row:
    content = b'[{"bn":"%s:","bt":%d,"n":"t","v":1}]' % (origin.encode(), at_s)
    return row(1, origin, content, epoch)._replace(seq=seq)


@pytest.fixture(scope="module")
def lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    folder = tmp_path_factory.mktemp("impossible")
    (folder / "landing").mkdir()
    honest = [dated("honest", seq, BASE_TIME_S + seq * HOUR_S) for seq in (1, 2, 5)]
    ends = [dated("ends", seq, BASE_TIME_S + (seq > 1) * 5 * HOUR_S, epoch) for epoch in (1, 2) for seq in (1, SEQ_MAX)]
    # A message that comes again under the largest route number.
    again = [
        row(seq, "again")._replace(via=[Link(31, number, "gw", "central")])
        for seq, number in ((1, SEQ_MAX), (2, SEQ_MAX))
    ]
    last = dated("last", SEQ_MAX, BASE_TIME_S)._replace(via=[Link(31, 1, "barn", "central")])
    statement = stated("barn", 1, 1, 1, [handed_on("last", 1, SEQ_MAX, SEQ_MAX)])
    decades = [dated("decades", seq, at_s) for seq, at_s in ((1, YEAR_2001_S), (3, BASE_TIME_S))]
    land(folder / "landing", [*honest, *ends], [*again, last, statement], [*decades, again[0]])
    found = Lake(spark, folder / "landing", folder / "tables")
    assert found.ingest().quarantined == 0
    return found


# Spark plans and answers these for two minutes.
@pytest.fixture(scope="module", params=["duckdb", pytest.param("spark", marks=pytest.mark.long)])
def engine(request: pytest.FixtureRequest, lake: Lake) -> Engine:
    return Engine(request.param, lake)


def test_the_gaps_of_other_devices_are_found_beside_the_largest_numbers(engine: Engine) -> None:
    gaps = {(one["origin"], one["epoch"]): one for one in engine.rows("SELECT * FROM gaps")}
    assert [(one["lo"], one["hi"], one["missing"]) for (name, _), one in gaps.items() if name == "honest"] == [
        (3, 4, 2)
    ]
    assert gaps["ends", "00000001"]["missing"] == SEQ_MAX - 2
    (completeness,) = engine.rows("SELECT arrived, missing FROM completeness WHERE origin = 'honest'")
    assert (completeness["arrived"], completeness["missing"]) == (3, 2)


def test_the_hours_of_other_devices_are_found_beside_the_largest_numbers(engine: Engine) -> None:
    found = engine.rows("SELECT device, hour, expected, arrived FROM completeness_by_hour ORDER BY hour")
    honest = [(one["hour"].hour, one["expected"], one["arrived"]) for one in found if one["device"] == "honest"]
    assert honest == [(9, 1, 1), (10, 1, 1), (11, 1, 0), (12, 1, 0), (13, 1, 1)]
    assert sum(one["expected"] for one in found if one["device"] == "ends") == pytest.approx(2 * SEQ_MAX)


def test_a_gap_of_decades_is_some_rows_with_all_that_is_missing(engine: Engine) -> None:
    found = engine.rows("SELECT expected, arrived FROM completeness_by_hour WHERE device = 'decades'")
    assert sum(one["expected"] - one["arrived"] for one in found) == 1
    assert len(found) == 3
