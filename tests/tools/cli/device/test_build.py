"""`holdfast device build`: what goes on a board, and that it runs."""

import json
from pathlib import Path

import pytest

from tests.support.command import holdfast
from tools.cli.device.build import Board, build_board, needed
from tools.cli.paths import source_root


def names(board: Board) -> set[str]:
    return {path.relative_to(source_root()).as_posix() for path in needed(board)}


@pytest.mark.parametrize(
    ("board", "theirs", "others"),
    [
        (Board.ESP32, "esp32", {"rp2", "unix"}),
        (Board.RP2, "rp2", {"esp32", "unix"}),
        (Board.UNIX, "unix", {"esp32", "rp2", "wifi", "microcontroller"}),
    ],
)
def test_board_gets_its_own_modules_and_no_others(board: Board, theirs: str, others: set[str]) -> None:
    found = names(board)
    assert {f"device/boards/{theirs}.py", "device/ports/tls.py", "device/sensors/bme280.py"} <= found
    assert not found & {f"device/boards/{other}.py" for other in others}
    assert not found & {"wire/connection/server.py", "wire/bulk/connection.py"}


def test_same_sources_make_the_same_bytes_and_mip_finds_each_file(tmp_path: Path) -> None:
    first, again = tmp_path / "first", tmp_path / "again"
    sizes = build_board(Board.ESP32, first)
    assert build_board(Board.ESP32, again) == sizes
    for path in [*sizes, "package.json"]:
        assert (first / path).read_bytes() == (again / path).read_bytes()
    package = json.loads((first / "package.json").read_text())
    assert package["urls"] == [[name, name] for name in sizes]


def test_frozen_modules_are_the_sources_as_they_are(tmp_path: Path) -> None:
    build_board(Board.ESP32, tmp_path)
    frozen = tmp_path / "frozen"
    manifest = (frozen / "manifest.py").read_text().splitlines()
    assert manifest == [f'package("{name}", opt=3)' for name in ("wire", "flash_store", "device")] + [
        'module("holdfast.py", opt=3)'
    ]
    library = "device/library.py"
    for name in names(Board.ESP32):
        on_board = "holdfast.py" if name == library else name
        assert (frozen / on_board).read_text() == (source_root() / name).read_text()


def test_a_folder_with_other_files_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "precious").touch()
    done = holdfast("device", "build", "--board", "rp2", "--out", str(tmp_path))
    assert done.exit_code == 2
    assert "nothing was changed" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["precious"]
