"""All tables are made anew from the landing files."""

from pathlib import Path

import pytest

from cloud import CannotRebuild, maintain, rebuild, verify
from cloud.tables.schema import READINGS
from tests.cloud.job.cut_job import Cut, cut_after
from tests.cloud.lake import Lake
from tests.cloud.upkeep.conftest import LANDED


def test_tables_are_made_anew_and_the_old_ones_are_kept(lake: Lake) -> None:
    assert rebuild(lake.spark, lake.landing, lake.folder).rows_in == len(LANDED)
    lake.check(LANDED)
    old = lake.folder.with_name("tables.replaced")
    assert len(Lake(lake.spark, lake.landing, old).rows("readings")) == 12
    with pytest.raises(CannotRebuild, match="move it away"):
        rebuild(lake.spark, lake.landing, lake.folder)


def test_rebuild_that_was_cut_is_completed(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    def again() -> None:
        rebuild(lake.spark, lake.landing, lake.folder)

    cut_after(READINGS, Lake(lake.spark, lake.landing, lake.folder.with_name("tables.rebuilt")), monkeypatch, again)
    lake.check(LANDED)
    rename = Path.rename

    def rename_and_end(self: Path, target: Path) -> Path:
        rename(self, target)
        raise Cut

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", rename_and_end)
        with pytest.raises(Cut):
            again()
    again()
    lake.check(LANDED)


def test_what_was_forgotten_stays_forgotten(lake: Lake) -> None:
    maintain(lake.spark, lake.landing, lake.folder, devices=["garage"])
    rebuild(lake.spark, lake.landing, lake.folder)
    assert (lake.rows("readings"), lake.rows("bronze_messages"), lake.rows("quarantine")) == ([], [], [])
    checks = verify(lake.spark, lake.landing, lake.folder, fresh_s=1e12)
    assert [check for check in checks if not check.holds] == []


@pytest.mark.parametrize("suffix", [".json", ".parquet"])
def test_tables_stay_when_a_landing_file_is_gone(lake: Lake, suffix: str) -> None:
    min(lake.landing.glob(f"*{suffix}")).unlink()
    with pytest.raises(CannotRebuild, match="1 landing files that the tables hold cannot be used"):
        rebuild(lake.spark, lake.landing, lake.folder)
    lake.check(LANDED)


def test_a_file_in_the_place_of_the_tables_stays_there(lake: Lake, tmp_path: Path) -> None:
    file = tmp_path / "precious"
    file.write_text("precious")
    with pytest.raises(CannotRebuild, match="precious is no folder"):
        rebuild(lake.spark, lake.landing, file)
    assert (file.read_text(), file.with_name("precious.rebuilt").exists()) == ("precious", False)
