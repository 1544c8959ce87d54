"""Tables of earlier versions become tables of this version: those of version 0.1.0 as Spark wrote them."""

import json
import shutil
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from cloud import OlderTables, OpenTables, verify
from cloud.tables.job import Report
from cloud.tables.migrate import NewerTables
from cloud.tables.schema import DATA_TABLES, STATEMENT_LEFT_OUT, TABLES, VERSION, Table
from tests.cloud.lake import Lake
from tests.cloud.messages import EPOCH, land, payload, row
from tests.cloud.tables.links import handed, stated

NOON = datetime(2025, 10, 9, 12, tzinfo=UTC)
DAY = NOON.date()
OLD = {
    "bronze_messages": (
        "origin STRING, epoch BIGINT, seq BIGINT, topic STRING, payload BINARY, qos TINYINT, retain BOOLEAN, "
        "content_type STRING, received_at TIMESTAMP, gateway STRING, landed_at TIMESTAMP, lander STRING, file STRING, "
        "batch BIGINT, ingest_date DATE"
    ),
    "readings": (
        "origin STRING, epoch BIGINT, seq BIGINT, record INT, device STRING, metric STRING, unit STRING, "
        "time TIMESTAMP, boot_id BIGINT, uptime_ms BIGINT, value DOUBLE, value_string STRING, value_bool BOOLEAN, "
        "value_data BINARY, sum DOUBLE, topic STRING, received_at TIMESTAMP, batch BIGINT, event_date DATE"
    ),
    "quarantine": (
        "kind STRING, reason STRING, origin STRING, epoch BIGINT, seq BIGINT, topic STRING, payload BINARY, "
        "content_type STRING, received_at TIMESTAMP, landed_at TIMESTAMP, file STRING, batch BIGINT, ingest_date DATE"
    ),
    "ledger": "origin STRING, epoch BIGINT, lo BIGINT, hi BIGINT, batch BIGINT",
    "batches": (
        "batch BIGINT, checkpoint STRING, files INT, rows_in BIGINT, new BIGINT, duplicates BIGINT, "
        "quarantined BIGINT, undecodable BIGINT, conflicts BIGINT, readings BIGINT, planned_at TIMESTAMP, "
        "proved_at TIMESTAMP"
    ),
    "landing_files": (
        "file STRING, lander STRING, boot BIGINT, number BIGINT, rows BIGINT, bytes BIGINT, sha256 STRING, "
        "status STRING, reason STRING, batch BIGINT, recorded_at TIMESTAMP"
    ),
}
PARTITIONS = {"bronze_messages": "ingest_date", "readings": "event_date"}


def write_old(lake: Lake, name: str, rows: list[tuple[Any, ...]]) -> None:
    writer = lake.spark.createDataFrame(rows, OLD[name]).coalesce(1).write.format("delta").mode("append")
    if name in PARTITIONS:
        writer = writer.partitionBy(PARTITIONS[name])
    writer.save(str(lake.folder / name))


def old_reading(seq: int, metric: str, record: int, time: datetime | None, event_date: date) -> tuple[Any, ...]:
    values = (None, 2, 1000 * seq, seq + 0.5, None, None, None, None)
    told = ("garage", metric, *values[:1], time, *values[1:])
    return ("garage", EPOCH, seq, record, *told, "telemetry/garage", NOON, 1, event_date)


@pytest.fixture
def old(lake: Lake) -> Lake:
    """Returns tables of version 0.1.0 with messages 1 and 2; the clock of the second was never set."""
    lake.folder.mkdir()
    (file,) = land(lake.landing, [row(1), row(2)])
    rest = (NOON, "lander-1", file.file, 1, DAY)
    received = [
        ("garage", EPOCH, seq, "telemetry/garage", payload("garage", seq), 1, False, None, NOON, "gw-1", *rest)
        for seq in (1, 2)
    ]
    write_old(lake, "bronze_messages", received)
    wrong = datetime(1979, 1, 1, tzinfo=UTC)
    readings = [old_reading(1, metric, place, NOON, DAY) for place, metric in enumerate(("load", "memory"))]
    readings += [old_reading(2, metric, place, wrong, wrong.date()) for place, metric in enumerate(("load", "memory"))]
    write_old(lake, "readings", readings)
    write_old(lake, "ledger", [("garage", EPOCH, 1, 2, 1)])
    write_old(lake, "batches", [(1, "old", 1, 2, 2, 0, 0, 0, 0, 4, NOON, NOON)])
    described = (file.file, file.lander, file.boot, file.number, file.rows, file.bytes, file.sha256)
    write_old(lake, "landing_files", [(*described, "ingested", None, 1, NOON)])
    return lake


def test_old_tables_go_on_with_their_rows(old: Lake) -> None:
    land(old.landing, [row(2), row(3)])
    assert old.ingest() == Report(1, 1, rows_in=2, new=1, duplicates=1, readings=2)
    old.check([row(1), row(2), row(3)])
    for table in TABLES:
        found = DeltaTable(old.folder / table.name)
        assert [field.name for field in found.schema().fields] == table.column_names
        assert found.metadata().configuration["holdfast.schemaVersion"] == str(VERSION)
    readings = sorted(old.rows("readings"), key=lambda one: (one["seq"], one["record"]))
    assert [(one["event_time"], one["event_time_by"], one["quality"]) for one in readings[1:3]] == [
        (NOON, "device", "good"),
        (NOON, "gateway", "wrong time"),
    ]
    assert {one["ingest_date"] for one in readings[:4]} == {DAY}
    assert old.ingest() == Report()


@pytest.mark.parametrize(("version", "new"), [(2, DATA_TABLES[3:]), (3, (STATEMENT_LEFT_OUT,))])
def test_tables_of_earlier_versions_get_the_tables_that_are_new_since(
    landing: Path, lake: Lake, version: int, new: tuple[Table, ...]
) -> None:
    land(landing, [row(1), row(2)])
    lake.ingest()
    for table in new:
        shutil.rmtree(lake.folder / table.name)
    for table in TABLES:
        commit = lake.folder / table.name / "_delta_log" / f"{0:020}.json"
        if commit.exists():
            commit.write_text(
                commit.read_text().replace(
                    f'"holdfast.schemaVersion":"{VERSION}"', f'"holdfast.schemaVersion":"{version}"'
                )
            )
    land(landing, [row(2), handed("garage", 3, 1, "barn"), stated("barn", 1, 1, 1)], boot=2)
    assert lake.ingest() == Report(1, 1, rows_in=3, new=2, duplicates=1, readings=2)
    for table in TABLES:
        assert DeltaTable(lake.folder / table.name).metadata().configuration["holdfast.schemaVersion"] == str(VERSION)
    assert [(one["lo"], one["hi"]) for one in lake.rows("links")] == [(1, 2)]
    assert len(lake.rows("statements")) == 1
    assert len(lake.rows("bronze_messages")) == 4
    assert lake.ingest() == Report()


def test_verify_changes_no_table_of_an_earlier_version_and_names_the_command_that_does(
    landing: Path, lake: Lake
) -> None:
    land(landing, [row(1)])
    lake.ingest()
    shutil.rmtree(lake.folder / STATEMENT_LEFT_OUT.name)
    commit = lake.folder / "readings" / "_delta_log" / f"{0:020}.json"
    ours, earlier = (f'"holdfast.schemaVersion":"{number}"' for number in (VERSION, 3))
    commit.write_text(commit.read_text().replace(ours, earlier))
    before = {path: path.read_bytes() for path in lake.folder.rglob("*") if path.is_file()}
    with pytest.raises(OlderTables, match=r"3: readings; not there yet: statement_left_out.*holdfast cloud ingest"):
        verify(lake.spark, lake.landing, lake.folder)
    assert {path: path.read_bytes() for path in lake.folder.rglob("*") if path.is_file()} == before
    lake.ingest()
    assert all(check.holds for check in verify(lake.spark, lake.landing, lake.folder, fresh_s=1e12))


def test_the_files_that_a_migration_writes_have_digests(old: Lake) -> None:
    old.ingest()
    assert all(check.holds for check in verify(old.spark, old.landing, old.folder, fresh_s=1e12, full=True))


def test_readings_of_version_3_get_the_column_historical(landing: Path, lake: Lake) -> None:
    land(landing, [row(1)])
    lake.ingest()
    folder = lake.folder / "readings"
    commit = folder / "_delta_log" / f"{0:020}.json"
    actions = [json.loads(line) for line in commit.read_text().splitlines()]
    (metadata,) = (action["metaData"] for action in actions if "metaData" in action)
    fields = json.loads(metadata["schemaString"])
    fields["fields"] = [field for field in fields["fields"] if field["name"] != "historical"]
    metadata["schemaString"] = json.dumps(fields)
    metadata["configuration"]["holdfast.schemaVersion"] = "3"
    commit.write_text("".join(json.dumps(action) + "\n" for action in actions))
    for file in folder.rglob("*.parquet"):
        pq.write_table(pq.read_table(file, partitioning=None).drop_columns("historical"), file)
    land(landing, [row(2)], boot=2)
    assert lake.ingest() == Report(1, 1, rows_in=1, new=1, readings=2)
    assert DeltaTable(folder).metadata().configuration["holdfast.schemaVersion"] == str(VERSION)
    readings = lake.spark.read.format("delta").load(str(folder))
    assert [one["historical"] for one in readings.collect()] == [None] * 4
    with OpenTables(lake.folder) as tables:
        assert tables.select("SELECT count(*), count(historical) FROM readings").rows == [(4, 0)]


def test_tables_of_a_later_version_are_left_alone(spark: SparkSession, landing: Path, lake: Lake) -> None:
    land(landing, [row(1)])
    lake.ingest()
    log = lake.folder / "readings" / "_delta_log"
    commit = log / f"{0:020}.json"
    ours, later = (f'"holdfast.schemaVersion":"{number}"' for number in (VERSION, VERSION + 1))
    commit.write_text(commit.read_text().replace(ours, later))
    land(landing, [row(2)], boot=2)
    with pytest.raises(NewerTables, match="the tables readings were written by a later version"):
        lake.ingest()
    lake.check([row(1)])
