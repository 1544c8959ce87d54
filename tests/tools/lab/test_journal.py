from pathlib import Path

import pytest

from tools.lab.journal import Made, read_journal


def test_each_line_counts_one_message(tmp_path: Path) -> None:
    journal = tmp_path / "garage.journal"
    journal.write_text("0000abcd 1 8\n0000abcd 2 7\n")
    assert list(read_journal("garage", journal)) == [Made("garage", 0xABCD, 1, 8), Made("garage", 0xABCD, 2, 7)]


def test_a_line_torn_by_a_power_cut_is_not_a_count(tmp_path: Path) -> None:
    journal = tmp_path / "garage.journal"
    journal.write_text("0000abcd 1 8\n0000ab")
    assert [made.seq for made in read_journal("garage", journal)] == [1]


def test_a_device_that_has_not_started_has_counted_nothing(tmp_path: Path) -> None:
    assert list(read_journal("garage", tmp_path / "none")) == []


def test_a_line_that_is_no_count_is_named_with_its_file_and_number(tmp_path: Path) -> None:
    journal = tmp_path / "garage.journal"
    journal.write_text("0000abcd 1 8\nhello\n")
    with pytest.raises(ValueError, match=r"garage\.journal:2: expected 'epoch seq readings', found 'hello'"):
        list(read_journal("garage", journal))
