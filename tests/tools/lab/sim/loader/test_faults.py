"""What goes wrong between esptool and a board, and that it ends with an error, or well."""

from pathlib import Path

import pytest

from tests.support.board_tools import NEEDS_BOARD_TOOLS, esptool
from tests.tools.lab.sim.loader.test_esptool import KIB, noise
from tools.lab.sim.loader.chips import ESP32
from tools.lab.sim.whole.esp import WholeBoard
from tools.lab.sim.whole.firmware_file import make_firmware

pytestmark = NEEDS_BOARD_TOOLS
FILE_BYTES = 40 * KIB


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "file"
    path.write_bytes(noise(FILE_BYTES))
    return path


def write(board: WholeBoard, file: Path, code: int | None = 0) -> int:
    return esptool(board.port, "write-flash", "0x10000", str(file), code=code).returncode


@pytest.mark.parametrize("at", [10, 50_000])
def test_cable_that_is_pulled_ends_esptool_and_the_write_is_repeated_well(at: int, file: Path, tmp_path: Path) -> None:
    with WholeBoard(tmp_path / "board") as board:
        board.faults.pull_after = at
        assert write(board, file, code=None) != 0
        assert not Path(board.port).exists()
        board.plug_cable()
        write(board, file)
        assert board.flash.read(0x10000, FILE_BYTES) == file.read_bytes()


def test_reset_amid_a_command_ends_esptool_and_the_write_is_repeated_well(file: Path, tmp_path: Path) -> None:
    with WholeBoard(tmp_path / "board") as board:
        board.faults.reset_after = 30_000
        assert write(board, file, code=None) != 0
        write(board, file)
        assert board.flash.read(0x10000, FILE_BYTES) == file.read_bytes()


@pytest.mark.parametrize("fault", ["noise", "lost"])
def test_bad_line_is_either_noticed_or_the_bytes_are_right(fault: str, file: Path, tmp_path: Path, seed: int) -> None:
    with WholeBoard(tmp_path / "board", seed=seed) as board:
        setattr(board.faults, fault, 20_000)
        code = write(board, file, code=None)
        assert code != 0 or board.flash.read(0x10000, FILE_BYTES) == file.read_bytes()
        setattr(board.faults, fault, 0)
        write(board, file)
        assert board.flash.read(0x10000, FILE_BYTES) == file.read_bytes()


def test_power_that_goes_in_an_erase_leaves_half_of_it(file: Path, tmp_path: Path) -> None:
    with WholeBoard(tmp_path / "board") as board:
        board.flash.program(0x10000, bytes(8 * KIB))
        board.flash.cut_after = 5 * KIB
        done = esptool(board.port, "--no-stub", "erase-region", "0x10000", "0x2000", code=None)
        assert done.returncode != 0
        assert board.flash.read(0x10000, 8 * KIB) == b"\xff" * 5 * KIB + bytes(3 * KIB)


def test_board_that_prints_without_end_is_flashed(file: Path, tmp_path: Path) -> None:
    with WholeBoard(tmp_path / "board") as board:
        board.flash.program(0x1000, make_firmware(ESP32, app_bytes=KIB, project="blink"))
        board.reset()
        board.wait_printed(b"blink: still here")
        write(board, file)
        assert board.flash.read(0x10000, FILE_BYTES) == file.read_bytes()


def test_wrong_speed_is_noise(tmp_path: Path) -> None:
    with WholeBoard(tmp_path / "board", guesses=False) as board:
        board.reset(loader=True)
        board.wait_for("loader")
        stay = ("--no-stub", "--before", "no-reset", "--after", "no-reset")
        esptool(board.port, *stay, "--baud", "460800", "flash-id")
        done = esptool(board.port, *stay, "--connect-attempts", "1", "flash-id", code=2)
        assert "Failed to connect" in done.stdout + done.stderr
