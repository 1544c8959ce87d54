"""The benchmark of the job: what it lands, and what it measures of a process, of batches and of queries."""

import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from cloud import OpenTables, read_manifest
from cloud.landing import intervals
from tools.lab.bench.cloud.lake import Lake, without_readings
from tools.lab.bench.cloud.landing import DEVICES, LOST_EACH, Fleet
from tools.lab.bench.cloud.steady import steady
from tools.lab.bench.cloud.usage import Usage


def landed(folder: Path) -> list[tuple[int, int]]:
    """Returns the rows of each landing file, and how many of its identities no file before had."""
    known: dict[tuple[str, int], intervals.Intervals] = {}
    found = []
    for path in sorted(folder.glob("*.json"), key=lambda path: path.stem.rpartition("-")[2]):
        described = read_manifest(path)
        new = 0
        for stream, spans in described.streams().items():
            before = known.get(stream, [])
            new += intervals.count(intervals.subtract(spans, before))
            known[stream] = intervals.merge([*before, *spans])
        found.append((described.rows, new))
    return found


def test_fleet_lands_new_messages_and_the_repeated_ones_that_it_is_asked_for(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path, seed=1)
    size = fleet.land(150_000)
    assert 150_000 < size < 150_000 * 60
    fleet.land(50_000, repeated=1_000, boot=2)
    assert landed(tmp_path) == [(100_000, 100_000), (50_000, 50_000), (51_000, 50_000)]
    assert len({origin for origin, _ in read_manifest(next(tmp_path.glob("*.json"))).streams()}) == DEVICES


def test_usage_counts_a_process_and_its_children() -> None:
    child = "import time; data = bytearray(100_000_000)\nwhile time.process_time() < 1: pass"
    usage = Usage([sys.executable, "-c", f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"])
    assert usage.exit_code == 0
    assert usage.cpu_s >= 0.2
    assert usage.peak_bytes > 100_000_000


def test_a_fleet_with_losses_lands_all_but_the_lost_messages(tmp_path: Path) -> None:
    Fleet(tmp_path, seed=1, devices=100, has_losses=True).land(2 * LOST_EACH)
    manifest = read_manifest(next(tmp_path.glob("*.json")))
    assert manifest.rows == 2 * LOST_EACH - 2
    assert len(manifest.streams()) == 100
    # The first message that is lost is inside its stream; the second one is the last of all.
    assert sorted(map(len, manifest.streams().values()))[-2:] == [1, 2]


@pytest.mark.long
def test_steady_measures_batches_beside_the_copy_and_keeps_to_the_goals(spark: SparkSession, tmp_path: Path) -> None:
    figures = list(steady(Lake(spark, tmp_path, Fleet(tmp_path / "landing", seed=1)), 1_000))
    assert [(figure.at_most, figure.theirs is not None) for figure in figures] == [
        (False, True),
        (False, True),
        (True, False),
        (True, False),
    ]
    bars = [figure.bar and figure.bar / (figure.theirs or 1) for figure in figures]
    assert bars == pytest.approx([0.9, 0.5, 1.3, 2])
    with OpenTables(tmp_path / "tables") as engine:
        found = engine.select("SELECT sum(new), sum(duplicates), sum(quarantined) FROM batches").rows
    assert found == [(1_000 + 3 * 3 * 1_000 + 5, 3 * 10, 0)]


def test_without_readings_the_job_takes_in_messages_alone(spark: SparkSession, tmp_path: Path) -> None:
    lake = Lake(spark, tmp_path, Fleet(tmp_path / "landing", seed=1))
    lake.land(1_000)
    with without_readings():
        lake.ingest()
    with OpenTables(lake.tables) as engine:
        sql = "SELECT (SELECT count(*) FROM bronze_messages), (SELECT count(*) FROM readings)"
        assert engine.select(sql).rows == [(1_000, 0)]
