"""The table of boards."""

from pathlib import Path

import pytest

from tools.cli.fleet.table import TableError, read_table


def test_rows_have_their_lines_and_no_empty_cells(tmp_path: Path) -> None:
    path = tmp_path / "boards.csv"
    path.write_text('\ufeffname, port,topic\n\ngarage-1,/dev/ttyUSB0,\nattic ,,"a, b"\n', encoding="utf-8")
    first, second = read_table(path)
    assert (first.name, first.port, dict(first.cells)) == (
        "garage-1",
        "/dev/ttyUSB0",
        {"name": "garage-1", "port": "/dev/ttyUSB0"},
    )
    assert (second.where, second.port, second.cells["topic"]) == (f"{path}:4", "", "a, b")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", ": expected a line of column names, and one row a board"),
        ("name\n", ": expected a line of column names, and one row a board"),
        ("port\n/dev/a\n", ":1: the column name is missing"),
        ("name,colour\na,red\n", ":1: there is no column 'colour', expected some of name, port,"),
        ("name,name\na,b\n", ":1: the column name is there twice"),
        ("name,wifi_password\na,b\n", ":1: no password belongs into the table, expected the column wifi_password_file"),
        ("name,port\na\n", ":2: 1 columns, expected 2"),
        ("name\na b\n", ":2: name is 'a b', expected at most 64 letters"),
        ("name\n-\n", ":2: name is '-'"),
        ("name\na\nb\na\n", ":4: name a is also that of {path}:2"),
        ("name,port\na,/dev/x\nb,/dev/x\n", ":3: port /dev/x is also that of {path}:2"),
        ('name\n"a\n', ":2: unexpected end of data"),
    ],
)
def test_a_fault_is_named_with_file_and_line(text: str, why: str, tmp_path: Path) -> None:
    path = tmp_path / "boards.csv"
    path.write_text(text)
    with pytest.raises(TableError) as told:
        read_table(path)
    assert str(told.value).startswith(str(path) + why.format(path=path))


def test_all_faults_are_named_at_once(tmp_path: Path) -> None:
    path = tmp_path / "boards.csv"
    path.write_text("name\n/\nok\n*\n")
    with pytest.raises(TableError) as told:
        read_table(path)
    assert [line.split(": ")[0] for line in str(told.value).splitlines()] == [f"{path}:2", f"{path}:4"]
