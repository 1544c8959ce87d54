"""Files that commands write where a user names them."""

from pathlib import Path

import pytest

from tests.gateway.store.support import disk_full
from tools.cli.output import is_unfinished, replaced_whole, write_whole


def test_a_file_is_written_in_place_of_a_link_and_not_where_the_link_leads(tmp_path: Path) -> None:
    precious, out = tmp_path / "precious", tmp_path / "out"
    precious.write_text("precious")
    out.symlink_to(precious)
    write_whole(out, b"new")
    assert (precious.read_text(), out.read_text(), out.is_symlink()) == ("precious", "new", False)


def test_nothing_remains_of_a_file_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    with pytest.raises(OSError, match="out"):
        write_whole(tmp_path / "out", b"new")
    assert [one.name for one in tmp_path.iterdir()] == ["out"]


def test_a_full_disk_is_reported_with_the_file_that_was_to_be_written(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("old")
    with disk_full(), pytest.raises(OSError, match="out") as raised:
        write_whole(tmp_path / "out", bytes(10_000))
    assert raised.value.filename == str(tmp_path / "out")
    assert [(one.name, one.read_text()) for one in tmp_path.iterdir()] == [("out", "old")]


def test_a_folder_has_all_new_files_or_the_old_ones(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    (folder / "part").mkdir(parents=True)
    (folder / "part/old").write_text("old")
    (folder / "list").write_text("old")
    with disk_full(), pytest.raises(OSError, match="folder"), replaced_whole(folder, last="list") as making:
        (making / "new").write_bytes(bytes(10_000))
    assert sorted(str(one.relative_to(folder)) for one in folder.rglob("*")) == ["list", "part", "part/old"]
    with replaced_whole(folder, last="list") as making:
        (making / "new").write_bytes(bytes(10_000))
        (making / "list").write_text("new")
    assert sorted(str(one.relative_to(folder)) for one in folder.rglob("*")) == ["list", "new"]


def test_no_folder_remains_of_one_that_cannot_be_filled(tmp_path: Path) -> None:
    with disk_full(), pytest.raises(OSError, match="folder"), replaced_whole(tmp_path / "folder", last="x") as making:
        (making / "x").write_bytes(bytes(10_000))
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_a_killed_program_was_filling_is_known_and_filled_anew(tmp_path: Path) -> None:
    with replaced_whole(tmp_path, last="x") as making:
        (making / "x").touch()
        assert is_unfinished(tmp_path)
    making.mkdir()
    (making / "half").touch()
    with replaced_whole(tmp_path, last="x") as again:
        (again / "x").touch()
    assert (is_unfinished(tmp_path), [one.name for one in tmp_path.iterdir()]) == (False, ["x"])
