import fcntl
import os
import shutil
from collections.abc import Iterable
from datetime import UTC, date, datetime
from pathlib import Path

import pytest

from cloud.landing.file import Row
from cloud.tables.batch import Counts, ProofFailed
from cloud.tables.job import JobRunning, Report
from cloud.tables.plan import SetAside
from cloud.tables.tables import JOB_LOCK
from tests.cloud.lake import Lake
from tests.cloud.messages import EPOCH, land, row


def rows(seqs: Iterable[int], origin: str = "garage") -> list[Row]:
    return [row(seq, origin) for seq in seqs]


def other(seqs: Iterable[int]) -> list[Row]:
    """Returns rows with the same identities and another payload."""
    return [row(seq, content=b"other") for seq in seqs]


def test_messages_become_rows_of_the_tables(lake: Lake) -> None:
    plain = row(2, content=b"21,5")._replace(content_type=None, received_ms=None, gateway=None)
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
        "epoch": EPOCH,
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
    assert (aside["seq"], aside["payload"], aside["file"]) == (2, b"21,5", manifests[0].file)
    assert aside["reason"] == "it is neither JSON nor a number nor ON or OFF"


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
    monkeypatch.setattr("cloud.tables.batch.count", lambda _: Counts(1, 0, 0, 0, 2))
    with pytest.raises(ProofFailed, match="batch 1: 2 rows in, but 1 new \\+ 0 duplicates \\+ 0 quarantined"):
        lake.ingest()
    assert lake.rows("bronze_messages") == []


def test_manifest_that_lies_about_its_numbers_fails_loudly(lake: Lake) -> None:
    (described,) = land(lake.landing, rows([1, 2]))
    path = (lake.landing / described.file).with_suffix(".json")
    path.write_bytes(path.read_bytes().replace(b",1,2]", b",1,3]"))
    with pytest.raises(ProofFailed, match="the manifests bring 3 new identities, the rows 2 new"):
        lake.ingest()
    assert lake.rows("bronze_messages") == []


def test_large_backlog_is_several_batches_in_order(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cloud.tables.plan.ROWS_MAX", 4)
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
