"""Rows of `readings`: times, and what a sender says of quality."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

from cloud.transforms.rows import decode, read_times, reading_rows

ACCEPTED = datetime(2026, 3, 14, 15, 9, 26, tzinfo=UTC)
LANDED = ACCEPTED + timedelta(days=3)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def ms(moment: datetime) -> int:
    return (moment - EPOCH) // timedelta(milliseconds=1)


def rows(payload: str, accepted: datetime | None = ACCEPTED) -> list[dict[str, Any]]:
    columns = {
        "origin": pa.array(["garage"]),
        "epoch": pa.array([1]),
        "seq": pa.array([1]),
        "topic": pa.array(["t"]),
        "payload": pa.array([payload.encode()]),
        "content_type": pa.array(["application/json"]),
        "received_ms": pa.array([None if accepted is None else ms(accepted)], pa.int64()),
        "landed_ms": pa.array([ms(LANDED)]),
    }
    decoded = decode(read_times(pa.table(columns), ms(LANDED), "file", 1))
    assert decoded.problems.to_pylist() == [None]
    return reading_rows(decoded).to_pylist()


# By columns, and one by one: a base value is in no plain pack.
@pytest.mark.parametrize("field", ["", '"bv":0,'])
@pytest.mark.parametrize("base", ["", '"bt":-5,'])
def test_relative_times_of_senml_are_before_the_acceptance(field: str, base: str) -> None:
    records = ",".join(
        f'{{{field * (not at)}{base * (not at)}"n":"t{at}","v":1,"t":{t}}}' for at, t in enumerate((-10, -5.5, 0))
    )
    found = rows(f"[{records}]".replace('"t":0', '"t":0.0'))
    earlier = 5 if base else 0
    assert [ACCEPTED - row["event_time"] for row in found] == [timedelta(seconds=ago + earlier) for ago in (10, 5.5, 0)]
    assert {(row["event_time_by"], row["quality"], row["time"]) for row in found} == {("gateway", "good", None)}


def test_relative_time_is_before_the_landing_where_no_gateway_told_a_time() -> None:
    (row,) = rows('[{"n":"t","v":1,"t":-60}]', accepted=None)
    assert (LANDED - row["event_time"], row["event_time_by"]) == (timedelta(seconds=60), "landing")


@pytest.mark.parametrize("field", ["", '"bv":0,'])
def test_relative_time_that_is_still_to_come_is_wrong(field: str) -> None:
    (row,) = rows(f'[{{{field}"n":"t","v":1,"t":3600}}]')
    assert (row["event_time"], row["quality"]) == (ACCEPTED, "wrong time")


def test_quality_of_the_sender_comes_before_that_of_the_time() -> None:
    wrong = '"t":"1999-01-01T00:00:00Z"'
    found = rows(f'{{"values":[{{"id":"a","v":1,"q":false,{wrong}}},{{"id":"b","v":1,"q":true,{wrong}}}]}}')
    assert [(row["metric"], row["quality"], row["event_time_by"]) for row in found] == [
        ("a", "bad", "gateway"),
        ("b", "wrong time", "gateway"),
    ]
