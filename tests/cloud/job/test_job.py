import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Iterable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from cloud.job.plan import SetAside
from cloud.job.proof import ProofFailed
from cloud.job.run import Report
from cloud.job.take_in import Done
from cloud.landing.file import Row
from cloud.landing.manifest import Manifest
from cloud.tables.schema import BATCHES, BRONZE_MESSAGES, TABLES
from cloud.tables.stored_table import JobRunning
from cloud.tables.tables import JOB_LOCK, Tables
from tests.cloud.job.cut_job import cut_after
from tests.cloud.lake import Lake
from tests.cloud.messages import BASE_TIME_S, EPOCH, land, row


def rows(seqs: Iterable[int], origin: str = "garage") -> list[Row]:
    return [row(seq, origin) for seq in seqs]


def other(seqs: Iterable[int]) -> list[Row]:
    """Returns rows with the same identities and another payload."""
    return [row(seq, content=b"other") for seq in seqs]


def test_messages_become_rows_of_the_tables(lake: Lake) -> None:
    plain = row(2, content=b"warm")._replace(content_type=None, received_ms=None, gateway=None)
    timeless = row(3, content=b'[{"n":"load","u":"1","v":3,"boot":4,"up":99}]')
    landed = [row(1), plain, timeless]
    manifests = land(lake.landing, landed)
    assert lake.ingest() == Report(1, 1, rows_in=3, new=2, duplicates=0, quarantined=1, readings=3)
    lake.check(landed)
    first = min(lake.rows("bronze_messages"), key=lambda found: found["seq"])
    ingest_date = first.pop("ingest_date")
    assert abs((ingest_date - datetime.now(UTC).date()).days) <= 1
    assert first == {
        "origin": "garage",
        "epoch": "0000cafe",
        "seq": 1,
        "topic": "telemetry/garage",
        "payload": row(1).payload,
        "qos": 1,
        "retain": False,
        "content_type": "application/senml+json",
        "received_at": datetime.fromtimestamp(1_760_000_000, UTC).replace(microsecond=1000),
        "gateway": "gw-1",
        "landed_at": datetime.fromtimestamp(1_760_000_000, UTC).replace(microsecond=8000),
        "lander": "lander-1",
        "file": manifests[0].file,
        "batch": 1,
    }
    readings = sorted(lake.rows("readings"), key=lambda found: (found["seq"], found["record"]))
    assert [(one["device"], one["metric"], one["time"], one["uptime_ms"], one["value"]) for one in readings] == [
        ("garage", "load", datetime.fromtimestamp(1_760_000_001, UTC), 1000, 1.5),
        ("garage", "memory", datetime.fromtimestamp(1_760_000_001, UTC), 1000, 1.5),
        ("garage", "load", None, 99, 3.0),
    ]
    assert {one["event_date"] for one in readings} == {date(2025, 10, 9)}
    (aside,) = lake.rows("quarantine")
    assert (aside["seq"], aside["payload"], aside["file"]) == (2, b"warm", manifests[0].file)
    assert (
        aside["reason"]
        == "it is neither JSON nor a number nor ON or OFF; with the content type text/plain it is a text"
    )


def test_repeated_message_adds_nothing_in_any_batch(lake: Lake) -> None:
    land(lake.landing, rows(range(10, 17)), rows([15, 16, 16]), rows(range(17, 19)))
    assert lake.ingest() == Report(1, 3, rows_in=12, new=9, duplicates=3, readings=18)
    files = land(lake.landing, rows(range(1, 19)), [*rows([22, 21, 22]), *other([3, 22])])
    for described in files:  # from a lander with a clock that is years behind
        for path in lake.landing.glob(f"{Path(described.file).stem}.*"):
            os.utime(path, (1_000_000, 1_000_000))
    assert lake.ingest() == Report(1, 2, rows_in=23, new=11, duplicates=10, quarantined=2, readings=22)
    land(lake.landing, [*other([3]), *rows([20])])
    assert lake.ingest() == Report(1, 1, rows_in=2, new=1, duplicates=1, readings=2)
    lake.check([*rows([*range(1, 19), 20, 21, 22]), *other([3, 22])])


def test_deleting_the_checkpoint_and_replaying_every_file_adds_nothing(lake: Lake) -> None:
    landed = [*rows(range(1, 6)), *rows(range(4, 9)), *other([2]), row(9, content=b"no SenML")]
    land(lake.landing, landed[:6], landed[6:])
    lake.ingest()
    before = {name: lake.rows(name) for name in ("bronze_messages", "readings", "quarantine", "ledger")}
    shutil.rmtree(lake.folder / "_checkpoint")
    assert lake.ingest() == Report()
    shutil.rmtree(lake.folder / "landing_files")
    report = lake.ingest()
    assert (report.rows_in, report.new, report.duplicates, report.quarantined) == (12, 0, 12, 0)
    assert {name: lake.rows(name) for name in before} == before


def test_unsound_files_are_set_aside_with_a_reason_and_the_others_are_taken(lake: Lake) -> None:
    files = land(lake.landing, *[rows([seq]) for seq in range(1, 6)])
    missing, truncated, changed, bad, _ = (lake.landing / described.file for described in files)
    kept = missing.read_bytes()
    missing.unlink()
    truncated.write_bytes(truncated.read_bytes()[:-100])
    changed.write_bytes(changed.read_bytes()[:-1] + b"?")
    bad.with_suffix(".json").write_bytes(b"{")
    report = lake.ingest()
    assert (report.files, report.new) == (1, 1)
    recorded = [found for found in lake.rows("landing_files") if found["status"] == "set aside"]
    assert sorted(SetAside(found["file"], found["reason"]) for found in recorded) == sorted(report.set_aside)
    assert [file for file, _ in report.set_aside] == [path.name for path in (missing, truncated, changed, bad)]
    for word, (_, reason) in zip(("missing", "bytes", "SHA-256", "manifest"), report.set_aside, strict=True):
        assert word in reason
    missing.write_bytes(kept)
    report = lake.ingest()
    assert (report.new, len(report.set_aside)) == (1, 3)
    assert len([found for found in lake.rows("landing_files") if found["status"] == "set aside"]) == 4
    lake.check(rows([1, 5]))


def test_batch_that_does_not_add_up_fails_loudly_and_writes_nothing(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    land(lake.landing, rows([1, 2]))
    with monkeypatch.context() as patch:
        patch.setattr("cloud.job.batch.run_parts", lambda *_: [Done(new=1)])
        with pytest.raises(ProofFailed, match="batch 1: 2 rows in, but 1 new \\+ 0 duplicates \\+ 0 quarantined"):
            lake.ingest()
    assert lake.rows("bronze_messages") == []
    lake.ingest()
    lake.check(rows([1, 2]))


def test_rows_that_were_not_written_fail_loudly(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    land(lake.landing, rows([1, 2]))
    with monkeypatch.context() as patch:
        patch.setattr("cloud.job.batch.run_parts", lambda *_: [Done(new=2, readings=4)])
        with pytest.raises(ProofFailed, match="the manifests bring 2 new identities, 0 rows with other ones"):
            lake.ingest()
    assert lake.rows("bronze_messages") == []


def test_files_that_do_not_prove_are_set_aside_and_the_rest_goes_on(lake: Lake) -> None:
    lying, short, no_parquet, other_columns, _ = land(lake.landing, *[rows([seq, seq + 1]) for seq in range(1, 10, 2)])
    rewrite_manifest(lake.landing, lying, intervals=[("garage", EPOCH, 1, 3)])
    rewrite_manifest(lake.landing, short, rows=1)
    replace_content(lake.landing, no_parquet, b"a complete file, and no Parquet")
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"origin": ["garage"]}), sink)
    replace_content(lake.landing, other_columns, sink.getvalue().to_pybytes())
    report = lake.ingest()
    assert (report.files, report.new) == (1, 2)
    assert [file for file, _ in report.set_aside] == [one.file for one in (lying, short, no_parquet, other_columns)]
    words = ("other numbers than its manifest", "2 rows, its manifest says 1", "no landing file", "no landing file")
    for word, (_, reason) in zip(words, report.set_aside, strict=True):
        assert word in reason
    rewrite_manifest(lake.landing, lying)
    report = lake.ingest()
    assert (report.new, len(report.set_aside)) == (2, 3)
    lake.check(rows([1, 2, 9, 10]))


def unknown_files(lake: Lake) -> list[Path]:
    """Returns the data files that no version of a table has had."""
    tables = Tables(lake.spark, lake.folder)
    known = {Path(tables.of(table).path(file.place)) for table in TABLES for file in tables.files(table)}
    return [path for path in lake.folder.glob("*/**/*.parquet") if path not in known]


def test_batch_that_cannot_go_on_leaves_no_files(lake: Lake) -> None:
    """A job that tries again each minute would fill the disk with them."""
    first, _ = land(lake.landing, rows(range(1, 9)), rows(range(9, 17)))
    rewrite_manifest(lake.landing, first, intervals=[("garage", EPOCH, 101, 108)])
    assert lake.ingest().new == 8
    assert unknown_files(lake) == []


@pytest.mark.parametrize("checkpoint", ["kept", "lost"])
def test_run_after_a_kill_deletes_the_files_that_were_not_committed(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, checkpoint: str
) -> None:
    land(lake.landing, [*rows(range(1, 9)), row(9, content=b"no SenML")])
    cut_after(BRONZE_MESSAGES, lake, monkeypatch)
    cut = set(unknown_files(lake))
    if checkpoint == "lost":
        shutil.rmtree(lake.folder / "_checkpoint")
    lake.ingest()
    assert {path.relative_to(lake.folder).parts[0] for path in cut} == {"readings", "quarantine", "ledger"}
    assert cut.isdisjoint(unknown_files(lake))


def test_landing_file_of_version_0_1_0_is_taken(lake: Lake) -> None:
    (old,) = land(lake.landing, rows([1, 2]))
    sink = pa.BufferOutputStream()
    pq.write_table(pq.ParquetFile(lake.landing / old.file).read().drop_columns(["via"]), sink)
    replace_content(lake.landing, old, sink.getvalue().to_pybytes())
    assert lake.ingest().set_aside == []
    lake.check(rows([1, 2]))


def rewrite_manifest(landing: Path, described: Manifest, **changes: object) -> None:
    content = msgspec.json.encode(msgspec.structs.replace(described, **changes))
    (landing / described.file).with_suffix(".json").write_bytes(content)


def replace_content(landing: Path, described: Manifest, content: bytes) -> None:
    (landing / described.file).write_bytes(content)
    rewrite_manifest(landing, described, bytes=len(content), sha256=hashlib.sha256(content).hexdigest())


@pytest.mark.parametrize("received_ms", [253_402_300_800_000, 2**63 - 1, -1])
def test_time_of_acceptance_that_no_timestamp_can_be_brings_the_message_to_quarantine(
    lake: Lake, received_ms: int
) -> None:
    land(lake.landing, [row(1), row(2)._replace(received_ms=received_ms), row(3)])
    assert lake.ingest() == Report(1, 1, rows_in=3, new=2, quarantined=1, readings=4)
    (aside,) = lake.rows("quarantine")
    assert (aside["kind"], aside["seq"], aside["received_at"]) == ("undecodable", 2, None)
    assert aside["reason"] == "the gateway's time of acceptance is beyond the year 9999"
    assert sorted(found["seq"] for found in lake.rows("bronze_messages")) == [1, 2, 3]


def test_last_moment_of_the_year_9999_is_taken_in(lake: Lake) -> None:
    land(lake.landing, [row(1, content=b'[{"n":"a","v":1,"t":253402300799.9999}]')])
    assert lake.ingest() == Report(1, 1, rows_in=1, new=1, readings=1)
    (found,) = lake.rows("readings")
    assert (found["time"].year, found["quality"]) == (9999, "wrong time")


def test_message_with_each_record_on_another_day_makes_one_file(lake: Lake) -> None:
    days = [{"n": f"garage:{day}", "v": day, "t": BASE_TIME_S - 86_400 * day} for day in range(2_000)]
    land(lake.landing, [row(1, content=json.dumps(days).encode())])
    assert lake.ingest().readings == 2_000
    assert len(list((lake.folder / "readings").rglob("*.parquet"))) == 1
    assert len({found["event_date"] for found in lake.rows("readings")}) == 2_000


def test_reading_has_the_best_time_that_is_known_and_says_where_it_comes_from(lake: Lake) -> None:
    timed = b'[{"n":"a","v":1,"t":1760000001}]'
    never_set = b'[{"n":"a","v":1,"t":300000000}]'
    ahead = b'[{"n":"a","v":1,"t":253402300799}]'
    timeless = b'[{"n":"a","v":1}]'
    landed = [row(seq, content=content) for seq, content in enumerate((timed, never_set, ahead, timeless), 1)]
    landed.append(row(5, content=timeless)._replace(received_ms=None, gateway=None))
    land(lake.landing, landed)
    lake.ingest()
    received, day = datetime.fromtimestamp(BASE_TIME_S, UTC), date(2025, 10, 9)
    found = sorted(lake.rows("readings"), key=lambda one: one["seq"])
    assert [(one["event_time"], one["event_time_by"], one["quality"]) for one in found] == [
        (received + timedelta(seconds=1), "device", "good"),
        (received + timedelta(milliseconds=2), "gateway", "wrong time"),
        (received + timedelta(milliseconds=3), "gateway", "wrong time"),
        (received + timedelta(milliseconds=4), "gateway", "good"),
        (received + timedelta(milliseconds=12), "landing", "good"),
    ]
    assert {one["event_date"] for one in found} == {day}
    assert found[1]["time"] == datetime.fromtimestamp(300_000_000, UTC)


def test_lost_landing_file_is_reported_by_its_number(lake: Lake) -> None:
    files = land(lake.landing, *[rows([seq]) for seq in range(1, 7)])
    for described in (files[1], files[3], files[4]):
        for path in lake.landing.glob(f"{Path(described.file).stem}.*"):
            path.unlink()
    report = lake.ingest()
    assert (report.new, report.set_aside) == (3, [])
    reasons = ["lander-1 has no file with the number 2", "lander-1 has no file with the numbers 4 to 5"]
    assert [reason for _, reason in report.missing] == reasons
    for path in lake.landing.glob("*"):
        path.unlink()
    assert [reason for _, reason in lake.ingest().missing] == reasons


def test_every_table_exists_before_the_first_message(lake: Lake) -> None:
    assert lake.ingest() == Report()
    for table in TABLES:
        found = DeltaTable(lake.folder / table.name)
        assert [field.name for field in found.schema().fields] == table.column_names
        assert found.to_pyarrow_table().num_rows == 0


@pytest.mark.parametrize("interrupted", [False, True], ids=["after a whole run", "after a cut"])
def test_checkpoint_that_a_power_cut_emptied_is_replaced(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, interrupted: bool
) -> None:
    land(lake.landing, rows([1, 2]))
    lake.ingest()
    land(lake.landing, rows([2, 3, 4]))
    if interrupted:
        cut_after(BATCHES, lake, monkeypatch)
    for path in (lake.folder / "_checkpoint").rglob("*"):
        if path.is_file():
            path.write_bytes(b"")
    lake.ingest()
    lake.check(rows([1, 2, 3, 4]))


def test_large_backlog_is_several_batches_in_order(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cloud.job.plan.ROWS_MAX", 4)
    land(lake.landing, rows([1, 2]), rows([2, 3]), rows([3, 4, 5]), rows([6]))
    report = lake.ingest()
    assert (report.batches, report.files, report.new, report.duplicates) == (2, 4, 6, 2)
    assert sorted((found["batch"], found["rows_in"]) for found in lake.rows("batches")) == [(1, 4), (2, 4)]
    lake.check(rows(range(1, 7)))


def test_second_job_on_the_same_tables_is_refused(lake: Lake) -> None:
    lake.folder.mkdir()
    with (lake.folder / JOB_LOCK).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(JobRunning, match="another job"):
            lake.ingest()
