"""Which field tells the time, and which number is one."""

import json
from typing import Any

import pytest

from cloud.transforms.sender.times import AFTER_DAYS, BEFORE_DAYS
from tests.cloud.transforms.decoding import LANDED_US, decode_one, times_us, values

LANDED_S = LANDED_US // 1_000_000
DAY_S = 86_400
UNITS = {"seconds": 1, "milliseconds": 1_000, "microseconds": 1_000_000, "nanoseconds": 1_000_000_000}


def read(fields: dict[str, Any], **got: int | None) -> tuple[set[int | None], dict[str, object]]:
    records = decode_one("t", json.dumps(fields | {"v": 1.0}), **got)  # type: ignore[arg-type]
    found = values(records)
    assert found.pop("v") == 1.0
    return times_us(records), found


@pytest.mark.parametrize("field", ["timestamp", "ts", "time", "Epoch", "unixtime", "last_seen"])
@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("days", [-BEFORE_DAYS, -1, 0, AFTER_DAYS])
def test_number_near_the_landing_is_a_time_in_each_unit(field: str, unit: str, days: int) -> None:
    moment_s = LANDED_S + days * DAY_S
    assert read({field: moment_s * UNITS[unit]}) == ({moment_s * 1_000_000}, {})


@pytest.mark.parametrize("field", ["timestamp", "ts", "time"])
@pytest.mark.parametrize("days", [-BEFORE_DAYS - 1, AFTER_DAYS + 1, -2000, 40_000])
def test_number_that_is_not_near_stays_a_value(field: str, days: int) -> None:
    number = LANDED_S + days * DAY_S
    assert read({field: number}) == ({None}, {field: float(number)})


@pytest.mark.parametrize("tick_s", [1, 1e-3, 1e-6])
@pytest.mark.parametrize("days", [0, 1, 3, 4, 19, 22, 49, 400, 4000])
def test_counter_of_the_uptime_is_a_value_on_each_day(tick_s: float, days: int) -> None:
    count = round((days * DAY_S + 17) / tick_s)
    assert read({"timestamp": count}) == ({None}, {"timestamp": float(count)})


def test_number_is_near_what_the_gateway_accepted_long_before_it_landed() -> None:
    accepted_s = LANDED_S - 300 * DAY_S
    got = {"received_us": accepted_s * 1_000_000, "landed_us": LANDED_US}
    assert read({"ts": accepted_s - 60}, **got) == ({(accepted_s - 60) * 1_000_000}, {})


def test_no_number_is_a_time_where_it_is_not_known_when_the_message_was_got() -> None:
    assert read({"ts": LANDED_S}, landed_us=None) == ({None}, {"ts": float(LANDED_S)})


@pytest.mark.parametrize("text", [str(LANDED_S), f"{LANDED_S}.0", str(LANDED_S * 1000)])
def test_number_as_a_text_is_a_time(text: str) -> None:
    assert read({"ts": text}) == ({LANDED_US}, {})


@pytest.mark.parametrize("text", ["", "172800000", "1e9", "٣" * 10, "9" * 400, "nan"])
def test_other_text_stays_a_value(text: str) -> None:
    assert read({"ts": text}) == ({None}, {"ts": text})


@pytest.mark.parametrize(
    "field",
    [
        "tst",
        "Epoch",
        "publishedAt",
        "unixtime",
        "observedAt",
        "measured_at",
        "SourceTimestamp",
        "CreatedAt",
        "lastSeen",
    ],
)
def test_time_has_many_names(field: str) -> None:
    assert read({field: LANDED_S}) == ({LANDED_US}, {})


def test_time_of_the_measurement_comes_before_the_time_when_it_was_sent() -> None:
    fields = {"created_at": LANDED_S, "tst": LANDED_S - 5}
    assert read(fields) == ({(LANDED_S - 5) * 1_000_000}, {"created_at": float(LANDED_S)})


def test_local_time_leaves_the_time_to_another_field() -> None:
    fields = {"Time": "2026-03-14T15:09:26", "Epoch": LANDED_S}
    assert read(fields) == ({LANDED_US}, {"Time": "2026-03-14T15:09:26"})


def test_time_may_be_within_objects_that_hold_nothing_else() -> None:
    records = decode_one("t", json.dumps({"state": {"reported": {"ts": LANDED_S * 1000, "66": 12742}}}))
    assert times_us(records) == {LANDED_US}
    assert values(records) == {"state.reported.66": 12742.0}
