"""The torture of a gateway's store: what a power cut leaves of files, and that the torture finds a store that does not
sync."""

import json
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from tests.support.result_shape import faults_of
from tools.lab.strace import StraceUnavailable
from tools.lab.torture.store import command, trace
from tools.lab.torture.store.command import Torture
from tools.lab.torture.store.disk import SECTOR_SIZE, Disk
from tools.lab.torture.store.trace import Event, SyncBegun, SyncEnded, Truncate, Write

CHANCES = 400  # the rarest outcome comes once in 12

app = typer.Typer()
app.command()(command.store)


def left(disk: Disk, folder: Path, seed: int) -> set[bytes]:
    """What may be left of the file "f"."""
    dice = random.Random(seed)
    found = set()
    for number in range(CHANCES):
        (own := folder / str(number)).mkdir()
        disk.cut(dice, own)
        found.add((own / "f").read_bytes())
    return found


def disk_after(folder: Path, *events: Event) -> Disk:
    (folder / "before").mkdir()
    disk = Disk(folder / "before")
    for event in events:
        disk.take(event)
    return disk


def test_what_is_synced_stays_and_of_the_rest_any_sectors(tmp_path: Path, seed: int) -> None:
    old, new = b"o" * 2 * SECTOR_SIZE, b"n" * 2 * SECTOR_SIZE
    events = Write("f", 0, old), SyncBegun("f", "1"), SyncEnded("f", "1"), Write("f", 0, new)
    halves = {first + second for first in (old[:SECTOR_SIZE], new[:SECTOR_SIZE]) for second in (old[:512], new[:512])}
    assert left(disk_after(tmp_path, *events), tmp_path, seed) == halves


def test_a_sync_covers_what_was_written_when_it_began(tmp_path: Path, seed: int) -> None:
    events = Write("f", 0, b"a"), SyncBegun("f", "1"), Write("f", 1, b"b"), SyncEnded("f", "1")
    assert left(disk_after(tmp_path, *events), tmp_path, seed) == {b"a", b"ab"}


def test_a_sync_that_has_not_ended_covers_nothing_for_sure(tmp_path: Path, seed: int) -> None:
    events = Write("f", 0, b"abc"), SyncBegun("f", "1"), Truncate("f", 1)
    assert left(disk_after(tmp_path, *events), tmp_path, seed) == {b"", b"abc", b"a", b"\0"}


def test_a_store_loses_nothing_wherever_the_power_goes(seed: int) -> None:
    done = CliRunner().invoke(app, ["--steps", "24", "--attempts", "1", "--seed", str(seed), "--json"])
    if done.exit_code == 2:
        pytest.skip(done.stderr)
    report = json.loads(done.stdout)
    assert faults_of(report, "torture") == report["violations"] == [] and report["broken"] == done.exit_code == 0
    assert report["cuts"] > 100 and report["cuts_two_deep"] > 10


def test_a_disk_that_does_not_sync_is_found_out(tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def read_without_syncs(path: Path, folder: Path) -> Iterator[Event]:
        return (event for event in trace.read(path, folder) if not isinstance(event, SyncBegun | SyncEnded))

    monkeypatch.setattr(command, "read", read_without_syncs)
    torture = Torture(seed, 20, 1)
    try:
        torture.run(tmp_path / "store")
    except StraceUnavailable as error:
        pytest.skip(str(error))
    assert torture.counts["broken"]
