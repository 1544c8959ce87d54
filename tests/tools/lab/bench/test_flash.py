"""`holdfast lab bench flash` as its users call it, on a workload small enough for a test."""

import json
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from flash_store.log import Log
from tests.support.result_shape import faults_of
from tools.lab.bench.flash.command import flash
from tools.lab.bench.flash.file_queue import FileQueue
from tools.lab.bench.flash.metered_flash import MeteredFlash
from tools.lab.bench.flash.workload import SECTORS, Workload, run

MESSAGES = 200


@pytest.fixture(scope="module")
def report() -> Any:
    app = typer.Typer()
    app.command()(flash)
    result = CliRunner().invoke(app, ["--messages", str(MESSAGES), "--json"])
    report = json.loads(result.stdout.splitlines()[-1])
    assert (faults_of(report, "bench"), result.exit_code) == ([], 0 if report["holds"] else 1)
    return report


@pytest.fixture(scope="module")
def figures(report: Any) -> dict[str, Any]:
    return {row["what"]: row for row in report["rows"]}


@pytest.mark.parametrize(
    "name",
    [
        "bytes programmed / message",
        "erases / message",
        "bytes read / append, times what it programs",
        "erases inside appends",
        "page programs of the worst append",
        f"wear, max - min of sectors, after {10 * MESSAGES:,} messages",
        "QoS 2: bytes programmed more / message",
        "QoS 2: synchronous writes more / message",
        "RAM: bytes / live message",
        f"RAM: bytes more after {10 * MESSAGES:,} appends",
        "mount: bytes read, 64 sectors, empty",
        "mount: s of reads at 20 MB/s, 256 KiB, full",
        "mount: s of reads at 20 MB/s, 4 MiB, full",
    ],
)
def test_the_store_stays_within_its_bar(name: str, figures: dict[str, Any]) -> None:
    figure = figures[name]
    assert figure["holds"], figure
    assert figure["ours"] <= float(figure["goal"].removeprefix("<= "))


def test_littlefs_was_measured_beside_it_and_costs_more(figures: dict[str, Any]) -> None:
    for name in ("bytes programmed / message", "erases / message", "bytes read / append"):
        assert figures[name]["peer"] > figures[name]["ours"] > 0


def test_what_is_compared_is_said(report: Any) -> None:
    assert "200 messages of 128 bytes, 16 of them topic, 8 outstanding" in report["workload"]
    assert report["littlefs"].startswith("littlefs-python ")
    assert report["vm"].startswith("MicroPython 1.")


def test_a_mount_reads_in_proportion_to_what_is_stored(figures: dict[str, Any]) -> None:
    ratio = figures["mount: bytes read, 4 MiB as a multiple of 256 KiB"]["ours"]
    assert ratio == pytest.approx(16, rel=0.1)


def test_a_workload_costs_what_its_records_take() -> None:
    device = MeteredFlash(SECTORS, 16)
    Log.format(device, 1)
    use = run(Workload(27, is_warm=False), device, Log(device))
    records, acknowledgements = 27 * (16 + 128), 2 * 16  # the sector was opened by the mount
    assert use.total.programmed == records + acknowledgements
    assert use.append.records == 27
    assert use.total.erases == sum(use.erases) == 0


def test_littlefs_keeps_to_one_program_a_granule() -> None:
    device = MeteredFlash(SECTORS, 32)
    run(Workload(MESSAGES), device, FileQueue(device))
    assert device.violations == 0
