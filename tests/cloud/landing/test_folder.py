import hashlib
from contextlib import closing
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from cloud.landing import manifest
from cloud.landing.file import FileNumber, Link, Row, parse_stem
from cloud.landing.folder import LanderRunning, LandingFolder
from tests.cloud.messages import EPOCH, land, row
from tools.lab.bench.cloud.landing import FILE_ROWS, Fleet


def visible(landing: Path) -> list[str]:
    return sorted(path.name for path in landing.iterdir() if not path.name.startswith("."))


def test_a_lock_is_closed_to_other_users(tmp_path: Path) -> None:
    """A user who can open a file for reading can lock it, and so keep every lander or job out."""
    (tmp_path / ".new.lock").touch(0o644)  # as a release before has made it
    for name in ("new", "other"):
        with closing(LandingFolder(tmp_path, name, 1)):
            assert (tmp_path / f".{name}.lock").stat().st_mode & 0o777 == 0o600


def test_landed_rows_read_back_as_they_were(landing: Path) -> None:
    rows = [
        row(1),
        row(2, content=b"")._replace(via=[Link(31, 8, "gw-1", "up")]),
        row(7, origin="größe/α", content=b"\x00\xff")._replace(gateway=None),
    ]
    (described,) = land(landing, rows)
    table = pq.read_table(landing / described.file)
    for record, one in zip(table.to_pylist(), rows, strict=True):
        links = [Link(**link) for link in record.pop("via")]
        assert Row(**record, via=links) == one._replace(via=list(one.via))


def test_messages_of_an_origin_are_neighbours_and_keep_their_order(landing: Path) -> None:
    names = ["garage", "cellar", "garage", "attic", "cellar", "garage"]
    (described,) = land(landing, [row(9 - place, name) for place, name in enumerate(names)])
    rows = pq.read_table(landing / described.file, columns=["origin", "seq"]).to_pylist()
    assert [(one["origin"], one["seq"]) for one in rows] == [
        *[("garage", 9), ("garage", 7), ("garage", 4)],
        *[("cellar", 8), ("cellar", 5)],
        ("attic", 6),
    ]


def test_packet_identifiers_are_those_of_the_rows_as_they_are_in_the_file(landing: Path) -> None:
    own = [row(0, "lander-1", content)._replace(epoch=0) for content in (b"21.5", b"22")]
    packets = np.array([0, 7, 0, 9], np.uint16)
    with closing(LandingFolder(landing, "lander-1", boot=1)) as folder:
        described = folder.land([row(1), own[0], row(2), own[1]], packets)
    assert described.own is not None and described.own.packets == [(2, 7, 1), (3, 9, 1)]
    with closing(LandingFolder(landing, "lander-1", boot=2)) as again:
        found = [
            again.own.find(packet, one.topic, one.payload)
            for packet, one in zip((7, 9, 9), (*own, own[0]), strict=True)
        ]
    assert found == [(1, 1), (1, 2), None]


def test_file_of_a_thousand_devices_takes_sixteen_bytes_a_message_with_its_manifest(tmp_path: Path) -> None:
    assert Fleet(tmp_path, seed=1, devices=1000).land(FILE_ROWS) / FILE_ROWS <= 16


def test_manifest_says_what_the_file_holds(landing: Path) -> None:
    (described,) = land(landing, [row(3), row(1), row(2), row(9), row(9), row(1, "cellar")])
    content = (landing / described.file).read_bytes()
    assert manifest.read_manifest(landing / described.file.replace("parquet", "json")) == described
    assert (described.rows, described.bytes) == (6, len(content))
    assert described.sha256 == hashlib.sha256(content).hexdigest()
    assert described.intervals == [("cellar", EPOCH, 1, 1), ("garage", EPOCH, 1, 3), ("garage", EPOCH, 9, 9)]
    assert described.streams() == {("cellar", EPOCH): [(1, 1)], ("garage", EPOCH): [(1, 3), (9, 9)]}


def test_numbers_go_on_over_boots(landing: Path) -> None:
    land(landing, [row(1)], [row(2)], boot=0xA)
    land(landing, [row(3)], boot=0xB)
    land(landing, [row(4)], lander="lander-2", boot=0xB)
    stems = [Path(name).stem for name in visible(landing) if name.endswith(".json")]
    assert stems == [
        "lander-1-0000000a-00000001",
        "lander-1-0000000a-00000002",
        "lander-1-0000000b-00000003",
        "lander-2-0000000b-00000001",
    ]
    assert parse_stem(stems[2]) == FileNumber("lander-1", 0xB, 3)


def test_leftovers_of_a_killed_lander_are_named_and_removed(landing: Path) -> None:
    land(landing, [row(1)], [row(2)])
    (landing / "lander-1-00000001-00000002.json").unlink()
    hidden = ".lander-1-00000001-00000003.parquet"
    others = ["lander-2-00000001-00000001.parquet", "notes.parquet", "lander-1.txt"]
    for name in (hidden, *others):
        (landing / name).touch()
    folder = LandingFolder(landing, "lander-1", boot=2)
    assert folder.leftovers == [hidden, "lander-1-00000001-00000002.parquet"]
    assert folder.land([row(2)]).file == "lander-1-00000002-00000002.parquet"
    folder.close()
    assert not (landing / hidden).exists()
    assert set(others) <= set(visible(landing))


def test_second_lander_of_the_same_name_is_refused(landing: Path) -> None:
    first = LandingFolder(landing, "lander-1", boot=1)
    with pytest.raises(LanderRunning, match="lander-1 is already landing"):
        LandingFolder(landing, "lander-1", boot=2)
    other = LandingFolder(landing, "lander-2", boot=2)
    first.close()
    LandingFolder(landing, "lander-1", boot=3).close()
    other.close()


def test_failed_landing_leaves_nothing_that_counts_and_keeps_its_number(landing: Path) -> None:
    folder = LandingFolder(landing, "lander-1", boot=1)
    blocked = landing / ".lander-1-00000001-00000001.json"
    blocked.mkdir()  # the landing file can be written, and the manifest cannot
    with pytest.raises(OSError, match="directory"):
        folder.land([row(1)])
    assert visible(landing) == ["lander-1-00000001-00000001.parquet"]
    blocked.rmdir()
    assert folder.land([row(1), row(2)]).number == 1
    folder.close()
    assert manifest.read_manifest(landing / "lander-1-00000001-00000001.json").rows == 2


@pytest.mark.parametrize(
    "stem", ["lander-1", "lander-1-xyz-00000001", "-00000001-00000001", "l-00000001-1", "a/b-00000001-00000001"]
)
def test_other_names_are_not_of_landing_files(stem: str) -> None:
    assert parse_stem(stem) is None
