"""Messages in quarantine are decoded again: messages that a decoder of today decodes join `readings`, once."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from cloud import ingest, requarantine
from cloud.job import take_in
from cloud.job.proof import ProofFailed
from cloud.job.run import Report
from cloud.job.take_in import Done
from cloud.landing.file import Row
from cloud.tables.schema import BATCHES, QUARANTINE, READINGS, Table
from tests.cloud.job.cut_job import cut_after
from tests.cloud.lake import Lake
from tests.cloud.messages import land, row
from tests.cloud.transforms.sparkplug_encoder import T0_MS, metric, number_field, payload

METER = """
from cloud import Record, decoder

@decoder("meters/#")
def meter(message):
    if message.payload == b"empty":
        return
    yield Record(metric="count", value=int.from_bytes(message.payload, "big"))
"""
OTHER = METER.replace("count", "other")


def metered(seq: int, content: bytes = b"\xff\x02") -> Row:
    return row(seq, content=content)._replace(topic="meters/7", content_type=None)


LANDED = [
    row(1),
    metered(2),
    metered(3, b"\xff\x03"),
    metered(4, b"empty"),
    row(5, content=b"no SenML"),
    row(1, content=b"another payload"),
]


@pytest.fixture
def meter(tmp_path: Path) -> Path:
    file = tmp_path / "meter.py"
    file.write_text(METER)
    return file


@pytest.fixture
def lake(lake: Lake) -> Lake:
    land(lake.landing, LANDED[:3], LANDED[3:])
    lake.ingest()
    return lake


def again(lake: Lake, *decoders: Path) -> Report:
    return requarantine(lake.spark, lake.landing, lake.folder, decoders=decoders)


def readings(lake: Lake) -> list[tuple[int, str, float]]:
    return sorted((one["seq"], one["metric"], one["value"]) for one in lake.rows("readings"))


def left(lake: Lake) -> list[tuple[str, int]]:
    return sorted((one["kind"], one["seq"]) for one in lake.rows("quarantine"))


def check_decoded(lake: Lake) -> None:
    assert readings(lake) == [(1, "load", 1.5), (1, "memory", 1.5), (2, "count", 65282.0), (3, "count", 65283.0)]
    assert left(lake) == [("conflict", 1), ("undecodable", 5)]
    assert sorted(one["seq"] for one in lake.rows("bronze_messages")) == [1, 2, 3, 4, 5]
    batches = lake.rows("batches")
    assert sum(one["readings"] for one in batches) == 4
    driven = [one for one in batches if one["files"] == 0]
    assert sum(one["new"] for one in driven) == 3
    assert all(one["rows_in"] == one["new"] + one["undecodable"] for one in driven)


def test_messages_that_decode_now_join_the_readings_and_leave_the_quarantine(lake: Lake, meter: Path) -> None:
    assert again(lake, meter) == Report(1, 0, rows_in=4, new=3, quarantined=1, readings=2)
    check_decoded(lake)
    (two,) = (one for one in lake.rows("readings") if one["seq"] == 2)
    (raw,) = (one for one in lake.rows("bronze_messages") if one["seq"] == 2)
    assert {name: two[name] for name in ("origin", "epoch", "topic", "received_at")} == {
        name: raw[name] for name in ("origin", "epoch", "topic", "received_at")
    }
    assert (two["event_time"], two["batch"]) == (raw["received_at"], 2)


def test_a_second_time_adds_nothing_and_the_next_batch_goes_on(lake: Lake, meter: Path) -> None:
    again(lake, meter)
    assert again(lake, meter) == Report(1, 0, rows_in=1, quarantined=1)
    land(lake.landing, [metered(2), metered(6, b"\xff\x06")], boot=2)
    assert ingest(lake.spark, lake.landing, lake.folder, decoders=[meter]).new == 1
    assert readings(lake)[-1] == (6, "count", 65286.0)
    assert left(lake) == [("conflict", 1), ("undecodable", 5)]


def test_nothing_is_done_without_undecodable_messages(lake: Lake, meter: Path) -> None:
    again(lake, meter)
    (last,) = land(lake.landing, [row(9)], boot=2)
    assert again(lake, meter).rows_in == 1
    assert last.file not in {one["file"] for one in lake.rows("landing_files")}


@pytest.mark.parametrize(
    ("point", "checkpoint"),
    [(READINGS, "kept"), (QUARANTINE, "kept"), (BATCHES, "kept"), (READINGS, "lost"), (QUARANTINE, "lost")],
    ids=lambda value: value if isinstance(value, str) else value.name,
)
def test_run_after_a_cut_at_any_write_completes_the_tables(
    lake: Lake, meter: Path, monkeypatch: pytest.MonkeyPatch, point: Table, checkpoint: str
) -> None:
    cut_after(point, lake, monkeypatch, lambda: again(lake, meter))
    if checkpoint == "lost":
        shutil.rmtree(lake.folder / "_checkpoint")
    again(lake, meter)
    check_decoded(lake)


def test_the_job_completes_what_was_interrupted(lake: Lake, meter: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cut_after(READINGS, lake, monkeypatch, lambda: again(lake, meter))
    ingest(lake.spark, lake.landing, lake.folder, decoders=[meter])
    again(lake, meter)
    check_decoded(lake)


def test_batch_that_other_decoders_have_begun_is_taken_back(
    lake: Lake, meter: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut_after(READINGS, lake, monkeypatch, lambda: again(lake, meter))
    assert lake.ingest().taken_back == [2]
    assert [metric for _, metric, _ in readings(lake)] == ["load", "memory"]
    land(lake.landing, [metered(6, b"\xff\x06")], boot=2)
    cut_after(READINGS, lake, monkeypatch, lambda: ingest(lake.spark, lake.landing, lake.folder, decoders=[meter]))
    lake.ingest()
    assert [one for one in left(lake) if one[1] == 6] == [("undecodable", 6)]
    assert [one for one in readings(lake) if one[0] == 6] == []


def test_message_of_sparkplug_whose_birth_came_in_a_later_batch_is_decoded(lake: Lake) -> None:
    birth = payload(metric("a", alias=0, datatype=3), timestamp=T0_MS)
    data = payload(metric(None, number_field(10, 7), alias=0), timestamp=T0_MS + 1)
    for seq, kind, content in ((11, "NDATA", data), (12, "NBIRTH", birth)):
        message = row(seq, content=content)._replace(topic=f"spBv1.0/g/{kind}/n", content_type=None)
        land(lake.landing, [message], boot=seq)
        lake.ingest()
    assert ("undecodable", 11) in left(lake)
    assert again(lake).new == 1
    assert (11, "a", 7.0) in readings(lake)


def test_the_change_feed_has_the_rows_that_left_and_no_others(lake: Lake, meter: Path) -> None:
    again(lake, meter)
    changes = (
        lake.spark.read.format("delta")
        .option("readChangeFeed", "true")
        .option("startingVersion", 0)
        .load(str(lake.folder / "quarantine"))
    )
    found = changes.groupBy("seq", "kind", "_change_type").count().collect()
    assert {(one[0], one[2]) for one in found if one[1] == "undecodable"} == {
        *((seq, "insert") for seq in (2, 3, 4, 5)),
        *((seq, "delete") for seq in (2, 3, 4)),
    }
    assert all(one["count"] == 1 for one in found)


def test_a_reading_whose_message_does_not_leave_quarantine_fails_loudly_and_writes_nothing(
    lake: Lake, meter: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_parts = take_in.run_parts

    def run(*arguments: Any) -> list[Done]:
        done = run_parts(*arguments)
        for one in done:  # as if the task had written readings alone
            one.files.pop(QUARANTINE.name)
            one.new, one.undecodable = 0, one.new + one.undecodable
        return done

    with monkeypatch.context() as patch:
        patch.setattr("cloud.job.batch.run_parts", run)
        with pytest.raises(ProofFailed, match=r"batch 2: garage 0000cafe . has left quarantine 0 times, not once"):
            again(lake, meter)
    assert readings(lake) == [(1, "load", 1.5), (1, "memory", 1.5)]
    again(lake, meter)
    check_decoded(lake)
