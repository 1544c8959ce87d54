"""The benchmark of the job: what it lands, and what it measures of a process."""

import sys
from pathlib import Path

from cloud import read_manifest
from cloud.landing import intervals
from tools.lab.bench.cloud.landing import DEVICES, Fleet
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
