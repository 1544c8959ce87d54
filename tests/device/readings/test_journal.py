"""The count that lies beside the messages' way."""

from pathlib import Path

import pytest

from device.readings.journal import Journal


def test_journal_counts_over_all_boots(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    first = Journal(str(path))
    first.add(0xAB, 1, 6)
    first.add(0xAB, 2, 5)
    second = Journal(str(path))
    assert second.made == 11
    second.add(0xCD, 1, 2)
    assert second.made == 13
    assert path.read_text() == "000000ab 1 6\n000000ab 2 5\n000000cd 1 2\n"


@pytest.mark.parametrize("torn", ["0", "000000ab 3", "000000ab 3 6"])
def test_torn_last_line_is_no_count_and_spoils_no_later_one(torn: str, tmp_path: Path) -> None:
    path = tmp_path / "journal"
    lines = "".join(f"000000ab {seq} 6\n" for seq in range(1, 100))
    path.write_text(lines + torn)
    journal = Journal(str(path))
    assert journal.made == 99 * 6
    journal.add(0xAB, 101, 6)
    assert path.read_text() == lines + "000000ab 101 6\n"


def test_line_of_another_form_is_named(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    path.write_text("000000ab 1 6\nhello world\n")
    with pytest.raises(ValueError, match="line 2: expected 'epoch seq readings'"):
        Journal(str(path))
