"""The hours of a device that has fallen silent: nothing tells what it should have sent, and each hour says so."""

from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from cloud.queries.views import VIEWS_FILE, name_in_sql
from cloud.tables.schema import TABLES

Hour = tuple[datetime, int | None, int, float | None]  # hour, expected, arrived, share


def at(hour: int, minute: int = 0, day: int = 9) -> datetime:
    return datetime(2025, 10, day, hour, minute, tzinfo=UTC)


def reading(device: str, seq: int, time: datetime) -> dict[str, Any]:
    identity = {"origin": device, "epoch": "00000007", "seq": seq, "record": 0}
    return {
        **identity,
        "device": device,
        "metric": "load",
        "value": 1.5,
        "time": time,
        "event_time": time,
        "event_time_by": "device",
        "received_at": time,
    }


def arrived(device: str, lo: int, hi: int) -> dict[str, Any]:
    return {"origin": device, "epoch": "00000007", "lo": lo, "hi": hi, "batch": 1, "first_batch": 1}


SILENT = [reading("silent", 1, at(8, 10)), reading("silent", 2, at(9, 50))]


def hours_of(device: str, **rows: list[dict[str, Any]]) -> list[Hour]:
    """Returns the hours of a device by the view, with these rows in the tables and no other ones."""
    engine = duckdb.connect()
    engine.execute("SET TimeZone = 'UTC'")
    for table in TABLES:
        filled = pa.Table.from_pylist(rows.get(table.name, []), schema=table.empty().schema)
        engine.register(name_in_sql(table), filled)
    engine.execute(VIEWS_FILE.read_text())
    columns = "hour, expected, arrived, share"
    found = engine.execute(f"SELECT {columns} FROM completeness_by_hour WHERE device = ? ORDER BY hour", [device])
    return [(hour.astimezone(UTC), *rest) for hour, *rest in found.fetchall()]


def test_hours_behind_the_last_message_of_a_device_are_unknown_up_to_the_last_message_of_another() -> None:
    other = [reading("other", 1, at(12, 5))]
    found = hours_of("silent", readings=SILENT + other, ledger=[arrived("silent", 1, 2), arrived("other", 1, 1)])
    assert found == [
        (at(8), 1, 1, 1.0),
        (at(9), 1, 1, 1.0),
        *[(at(hour), None, 0, None) for hour in (10, 11, 12)],
    ]


def test_a_statement_of_a_gateway_is_a_word_as_well() -> None:
    said = {
        "gateway": "gateway-1",
        "route": "central",
        "epoch": "0000001f",
        "statement": 1,
        "first": 1,
        "last": 0,
        "backfill": False,
        "seq": 1,
        "stated_at": at(11, 59),
        "batch": 1,
    }
    found = hours_of("silent", readings=SILENT, ledger=[arrived("silent", 1, 2)], statements=[said])
    assert found[2:] == [(at(10), None, 0, None), (at(11), None, 0, None)]


def test_the_device_that_spoke_last_has_no_unknown_hour() -> None:
    found = hours_of("silent", readings=SILENT, ledger=[arrived("silent", 1, 2)])
    assert [share for *_, share in found] == [1.0, 1.0]


def test_a_gap_before_the_silence_counts_in_its_own_hours_alone() -> None:
    late = reading("silent", 4, at(9, 50))
    rows = [SILENT[0], late, reading("other", 1, at(11))]
    found = hours_of("silent", readings=rows, ledger=[arrived("silent", 1, 1), arrived("silent", 4, 4)])
    assert sum((expected or 0) - count for _, expected, count, _ in found) == 2
    assert found[2:] == [(at(10), None, 0, None), (at(11), None, 0, None)]


@pytest.mark.parametrize(("day", "count"), [(10, 24 + 2), (59, 1000)])
def test_a_long_silence_has_its_last_thousand_hours(day: int, count: int) -> None:
    upto = datetime.fromtimestamp(at(11).timestamp() + (day - 9) * 86_400, UTC)
    rows = [*SILENT, reading("other", 1, upto)]
    found = hours_of("silent", readings=rows, ledger=[arrived("silent", 1, 2), arrived("other", 1, 1)])
    unknown = [hour for hour, _, _, share in found if share is None]
    assert len(unknown) == count
    assert unknown[-1] == upto
    assert {second - first for first, second in pairwise(unknown)} == {at(11) - at(10)}
