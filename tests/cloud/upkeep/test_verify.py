"""The tables are counted again: each kind of damage is found by the check that names it."""

from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from msgspec import structs

from cloud import Check, verify
from cloud.tables.data_file import write_rows
from cloud.tables.schema import BATCHES, BRONZE_MESSAGES, LANDING_FILES, LEDGER, QUARANTINE, READINGS, TABLES, Table
from cloud.tables.tables import Tables
from tests.cloud.job.cut_job import cut_after
from tests.cloud.lake import Lake
from tests.cloud.messages import land, row


def faults(lake: Lake, fresh_s: float = 1e12) -> list[Check]:
    return [check for check in verify(lake.spark, lake.landing, lake.folder, fresh_s=fresh_s) if not check.holds]


def change(lake: Lake, table: Table, condition: pc.Expression, rows: Callable[[pa.Table], pa.Table]) -> None:
    """Puts other rows in the place of the file that has a row of the condition."""
    tables = Tables(lake.spark, lake.folder)
    for file in tables.files(table):
        found = tables.read_files(table, [file])
        if found.filter(condition).num_rows:
            tables.replace(table, [file], rows(found))
            return


def test_sound_tables_have_no_fault_and_each_check_is_a_row(lake: Lake) -> None:
    checks = verify(lake.spark, lake.landing, lake.folder, fresh_s=1e12)
    assert [check for check in checks if not check.holds] == []
    rows = lake.rows("checks")
    assert sorted((one["check"], one["table"], one["holds"], one["faults"]) for one in rows) == sorted(
        (check.check, check.table, True, 0) for check in checks
    )
    assert {check.table for check in checks} == {table.name for table in TABLES}
    assert len({one["checked_at"] for one in rows}) == 1
    verify(lake.spark, lake.landing, lake.folder)
    assert len({one["checked_at"] for one in lake.rows("checks")}) == 2


def twice(rows: pa.Table) -> pa.Table:
    return pa.concat_tables([rows, rows.slice(0, 1)])


def fewer(rows: pa.Table) -> pa.Table:
    return rows.slice(1)


def no(rows: pa.Table) -> pa.Table:
    return rows.slice(0, 0)


def renamed(rows: pa.Table) -> pa.Table:
    return rows.set_column(0, "origin", pa.repeat(pa.scalar("attic"), len(rows)))


SECOND = pc.field("batch") == 2


@pytest.mark.parametrize(
    ("table", "rows", "expected"),
    [
        (BRONZE_MESSAGES, twice, ("each row once", "bronze_messages", "garage 0000cafe in 4 to 6")),
        (BRONZE_MESSAGES, fewer, ("each message of the ledger", "bronze_messages", "garage 0000cafe 4")),
        (BRONZE_MESSAGES, renamed, ("no message that the ledger lacks", "bronze_messages", "attic 0000cafe 4 to 6")),
        (READINGS, twice, ("each row once", "readings", "garage 0000cafe in 4 to 6")),
        (READINGS, fewer, ("as many rows as each batch has written", "readings", "batch 2: 5 rows, 6 were written")),
        (READINGS, renamed, ("each row has its message in bronze_messages", "readings", "attic 0000cafe 4 to 6")),
        (QUARANTINE, no, ("as many rows as each batch has written", "quarantine", "batch 3: 0 conflicts, 1 were")),
        (BATCHES, fewer, ("its landing files have the rows of each batch", "batches", "batch 2 is not in batches")),
        (LEDGER, fewer, ("no message that the ledger lacks", "bronze_messages", "garage 0000cafe 4 to 6")),
        (LEDGER, twice, ("each number in one interval", "ledger", None)),
        (LANDING_FILES, fewer, ("no landing file is missing", "landing_files", None)),
    ],
    ids=lambda value: getattr(value, "name", getattr(value, "__name__", "")),
)
def test_damage_is_found(
    lake: Lake, table: Table, rows: Callable[[pa.Table], pa.Table], expected: tuple[str, str, str | None]
) -> None:
    if table is LANDING_FILES:
        for path in sorted(lake.landing.glob("*"))[2:4]:
            path.unlink()
    change(lake, table, pc.field("batch") == 3 if table is QUARANTINE else SECOND, rows)
    check, name, detail = expected
    (found,) = (one for one in faults(lake) if (one.check, one.table) == (check, name))
    assert detail is None or (found.detail or "").startswith(detail)


def test_missing_data_file_is_told_and_nothing_else_is_counted(lake: Lake) -> None:
    tables = Tables(lake.spark, lake.folder)
    tables.of(QUARANTINE).remove(tables.files(QUARANTINE)[0].place)
    (found,) = faults(lake)
    assert (found.table, found.faults, "missing" in (found.detail or "")) == ("quarantine", 1, True)


def test_rows_of_a_batch_that_was_interrupted_are_no_fault(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    land(lake.landing, [row(20)], boot=2)
    cut_after(BATCHES, lake, monkeypatch)
    assert faults(lake) == []


def test_message_that_waits_too_long_and_file_that_was_changed_are_faults(lake: Lake) -> None:
    (late,) = land(lake.landing, [row(20)], boot=2)
    first = min(lake.landing.glob("*.json"))
    first.write_text(first.read_text().replace('"rows":3', '"rows":4'))
    found = {check.check: check.detail or "" for check in faults(lake, fresh_s=60)}
    assert set(found) == {"messages are in the tables in time", "each manifest is the one that was ingested"}
    assert late.file in found["messages are in the tables in time"]


def test_row_that_another_program_wrote_without_a_required_value_is_found(lake: Lake) -> None:
    tables = Tables(lake.spark, lake.folder)
    (file, *_) = tables.files(BATCHES)
    rows = tables.read_files(BATCHES, [file])
    written = write_rows(tables.of(BATCHES), BATCHES, 0, rows)
    bad = rows.set_column(1, "checkpoint", pa.nulls(len(rows), pa.string()))
    pa.parquet.write_table(bad, tables.of(BATCHES).path("another.parquet"))
    size = tables.of(BATCHES).size("another.parquet")
    tables.stored(BATCHES).commit([structs.replace(written, path="another.parquet", size=size, stats=None)], [file])
    assert ("no required value missing", "batches") in {(one.check, one.table) for one in faults(lake)}


def test_a_landing_folder_that_is_away_is_a_fault(lake: Lake) -> None:
    """Its disk may not be mounted: then nothing tells that all its messages are in the tables."""
    lake.landing.rename(lake.landing.with_name("away"))
    (fault,) = faults(lake)
    assert (fault.check, fault.detail) == ("landing files can be used", f"there is no folder {lake.landing}")
