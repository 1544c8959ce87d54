"""Tables of another version are left alone; a table that does not exist yet is made by the job alone."""

import shutil
from pathlib import Path

import pytest

from cloud import OlderTables, ingest, verify
from cloud.tables.schema import CHECKS, LANDING_FILES, VERSION
from cloud.tables.version import NewerTables
from tests.cloud.lake import Lake
from tests.cloud.messages import land, row


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def taken_in(landing: Path, lake: Lake) -> Lake:
    land(landing, [row(1)])
    lake.ingest()
    return lake


def set_version(lake: Lake, version: int) -> None:
    commit = lake.folder / "readings" / "_delta_log" / f"{0:020}.json"
    ours, other = (f'"holdfast.schemaVersion":"{one}"' for one in (VERSION, version))
    commit.write_text(commit.read_text().replace(ours, other))


@pytest.mark.parametrize(
    ("version", "refusal", "text"),
    [
        (VERSION + 1, NewerTables, "the tables readings were written by a later version"),
        (VERSION - 1, OlderTables, r"readings in .* version 4, and this is 5: .*holdfast cloud rebuild"),
    ],
    ids=["later", "earlier"],
)
def test_tables_of_another_version_are_left_alone(
    taken_in: Lake, version: int, refusal: type[Exception], text: str
) -> None:
    set_version(taken_in, version)
    land(taken_in.landing, [row(2)], boot=2)
    before = contents(taken_in.folder)
    for command in (ingest, verify):
        with pytest.raises(refusal, match=text):
            command(taken_in.spark, taken_in.landing, taken_in.folder)
    assert contents(taken_in.folder) == before


def test_verify_makes_no_table_and_names_the_command_that_does(taken_in: Lake) -> None:
    shutil.rmtree(taken_in.folder / LANDING_FILES.name)
    shutil.rmtree(taken_in.folder / CHECKS.name)
    before = contents(taken_in.folder)
    with pytest.raises(OlderTables, match=r"not all there yet: landing_files; .*holdfast cloud ingest"):
        verify(taken_in.spark, taken_in.landing, taken_in.folder)
    assert contents(taken_in.folder) == before
    taken_in.ingest()
    assert all(check.holds for check in verify(taken_in.spark, taken_in.landing, taken_in.folder, fresh_s=1e12))
