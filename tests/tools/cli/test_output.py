"""Files that commands write where a user names them."""

from pathlib import Path

import pytest

from tools.cli.output import write_whole


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
