"""Upkeep of the tables: fewer files with the same rows, old landing files, devices that are forgotten."""

import os
import time
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from cloud import Check, maintain, verify
from cloud.landing.folder import LandingFolder
from cloud.landing.manifest import read_manifest
from cloud.upkeep.maintain import Upkeep
from tests.cloud.lake import Lake
from tests.cloud.messages import land, row
from tests.cloud.upkeep.conftest import LANDED


def upkeep(lake: Lake, landing_days: float | None = None, *devices: str) -> Upkeep:
    return maintain(lake.spark, lake.landing, lake.folder, landing_days=landing_days, devices=devices)


def faults(lake: Lake, fresh_s: float = 1e12) -> list[Check]:
    return [check for check in verify(lake.spark, lake.landing, lake.folder, fresh_s=fresh_s) if not check.holds]


def landed(lake: Lake) -> list[str]:
    return sorted(path.name for path in lake.landing.iterdir() if not path.name.startswith("."))


def test_small_files_become_one_in_the_order_of_devices_and_the_rows_stay(lake: Lake) -> None:
    land(lake.landing, [row(3, origin="attic"), row(1, origin="attic")], boot=2)
    lake.ingest()
    done = upkeep(lake)
    assert (done.written, done.merged >= 6) == (2, True)
    readings = lake.rows("readings")
    assert [(one["device"], one["seq"]) for one in readings[:4]] == [("attic", 1)] * 2 + [("attic", 3)] * 2
    lake.check([*LANDED, row(3, origin="attic"), row(1, origin="attic")])
    assert upkeep(lake).written == 0
    land(lake.landing, [row(1), row(8)], boot=3)
    assert (lake.ingest().new, faults(lake)) == (1, [])


def test_files_that_no_version_of_the_last_week_needs_are_deleted(lake: Lake) -> None:
    upkeep(lake)
    kept = set((lake.folder / "readings").glob("*/*.parquet"))
    assert len(kept) == 3  # two of the batches, which the last week's versions have, and the one of both
    orphan = lake.folder / "readings" / "part-of-a-task-that-died.parquet"
    pq.write_table(pq.read_table(next(iter(kept))), orphan)
    os.utime(orphan, (time.time() - 8 * 86_400,) * 2)
    assert upkeep(lake).deleted == 1
    assert not orphan.exists()
    assert set((lake.folder / "readings").glob("*/*.parquet")) == kept


def test_landing_files_stay_without_an_age_and_go_when_the_tables_have_held_them_for_so_long(lake: Lake) -> None:
    before = landed(lake)
    assert (upkeep(lake).landing_files, upkeep(lake, 1).landing_files) == (0, 0)
    assert landed(lake) == before
    assert upkeep(lake, 0).landing_files == 2
    assert landed(lake) == before[-2:]  # the newest manifest and its file
    assert (lake.ingest().missing, faults(lake)) == ([], [])
    land(lake.landing, [row(1), row(9)], boot=4)
    assert lake.ingest().new == 1
    lake.check([*LANDED, row(9)])


def test_landing_files_whose_acknowledgements_may_be_lost_stay(lake: Lake) -> None:
    own = [row(0)._replace(origin="lander-2", epoch=0, lander="lander-2") for _ in range(3)]
    folder = LandingFolder(lake.landing, "lander-2", 9)
    first, second, third = (folder.land([one], np.array([number])) for number, one in enumerate(own, start=7))
    folder.confirm(1)
    fourth = folder.land([own[0]])
    folder.close()
    lake.ingest()
    upkeep(lake, 0)
    assert [one.file in landed(lake) for one in (first, second, third, fourth)] == [False, True, True, True]
    again = LandingFolder(lake.landing, "lander-2", 10)
    assert again.own.find(8, own[1].topic, own[1].payload) == (9, 2)
    again.close()


def test_landing_file_that_another_one_has_replaced_stays_and_is_told(lake: Lake) -> None:
    manifests = sorted(lake.landing.glob("*.json"))
    described = read_manifest(manifests[0])
    manifests[0].write_text(manifests[0].read_text().replace(described.sha256, "0" * 64))
    done = upkeep(lake, 0)
    assert done.landing_files == 1
    assert [text.endswith("is not the file that the tables hold") for text in done.kept_back] == [True]


def test_device_that_is_forgotten_has_no_message_and_no_reading_and_does_not_come_again(lake: Lake) -> None:
    other = row(4, origin="gateway", content=b'[{"bn":"attic:","n":"load","v":1}]')
    land(lake.landing, [other, row(5, origin="gateway")], boot=2)
    lake.ingest()
    assert upkeep(lake, None, "garage", "attic", "cellar").forgotten == 8
    assert {(one["origin"], one["seq"]) for one in lake.rows("readings")} == {("gateway", 5)}
    assert {(one["origin"], one["seq"]) for one in lake.rows("bronze_messages")} == {("gateway", 5)}
    assert lake.rows("quarantine") == []
    land(lake.landing, [row(1), row(2, content=b"other"), other], boot=3)
    assert lake.ingest().duplicates == 3
    assert faults(lake) == []


@pytest.mark.parametrize("cut", ["bronze_messages", "quarantine"])
def test_forgetting_that_was_cut_is_completed(lake: Lake, monkeypatch: pytest.MonkeyPatch, cut: str) -> None:
    from cloud.upkeep import forget as module

    delete = module.delete

    def delete_and_end(tables: object, table: object, listed: object) -> int:
        count = delete(tables, table, listed)  # type: ignore[arg-type]
        if table.name == cut:  # type: ignore[attr-defined]
            raise InterruptedError
        return count

    with monkeypatch.context() as patch:
        patch.setattr(module, "delete", delete_and_end)
        with pytest.raises(InterruptedError):
            upkeep(lake, None, "garage")
    upkeep(lake, None, "garage")
    assert (lake.rows("readings"), lake.rows("bronze_messages"), lake.rows("quarantine")) == ([], [], [])
    assert faults(lake) == []


def test_folder_of_landing_files_that_is_gone_stops_nothing_that_needs_none(lake: Lake, tmp_path: Path) -> None:
    assert maintain(lake.spark, tmp_path / "none", lake.folder).landing_files == 0
    with pytest.raises(FileNotFoundError):
        maintain(lake.spark, tmp_path / "none", lake.folder, landing_days=1)
