"""The benchmarks of routes: what they count is what their next broker got."""

import os
from pathlib import Path

import pytest

from cloud import read_manifest
from tools.lab.bench.batch.fleet import BME280
from tools.lab.bench.uplink.command import (
    LIVE_RATE,
    beside_bridge,
    drain,
    waiting,
)
from tools.lab.bench.uplink.landed import landed

pytestmark = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="the benchmarks need two cores")


@pytest.fixture(autouse=True)
def short_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fresh messages are timed for a second at a time."""
    monkeypatch.setattr("tools.lab.bench.uplink.command.LIVE_PIECE_S", 0.6)


def test_a_route_is_measured_beside_the_bridge(tmp_path: Path) -> None:
    rate, cpu = beside_bridge(tmp_path, 1, 0.4)
    assert rate.ours > 0 and rate.theirs and rate.bar == pytest.approx(1.2 * rate.theirs)
    assert cpu.ours > 0


def test_readings_in_batches_are_measured_until_they_are_landed(tmp_path: Path) -> None:
    rate, *processor_times = landed(tmp_path, BME280, 2_000, 500)
    assert rate.ours > 0
    assert [figure.name.split()[-4] for figure in processor_times] == ["publisher", "gateway", "mosquitto", "lander"]
    assert sum(read_manifest(path).rows for path in (tmp_path / "landing").glob("[!.]*.json")) == 2_000


def test_a_backlog_drains_while_messages_come(tmp_path: Path) -> None:
    (rate,) = drain(tmp_path, 5_000, "strict")
    assert rate.ours > LIVE_RATE


def test_a_backlog_drains_behind_fresh_messages_and_these_are_timed(tmp_path: Path) -> None:
    rate, p99 = drain(tmp_path, 5_000, "live_first")
    assert rate.ours > 0
    assert p99.ours > 0 and p99.bar == 1000 and p99.at_most


def test_messages_that_wait_on_three_routes_are_measured(tmp_path: Path) -> None:
    assert [figure.unit for figure in waiting(tmp_path, 2_000)] == ["MB", "s", "MB"]
