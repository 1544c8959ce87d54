"""The simulated loader against the real esptool."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.board_tools import NEEDS_BOARD_TOOLS, esptool
from tools.lab.sim.loader.chips import CHIPS, ESP32, ESP32C3, Chip
from tools.lab.sim.whole.esp import WholeBoard
from tools.lab.sim.whole.firmware_file import make_firmware

pytestmark = NEEDS_BOARD_TOOLS
EACH_CHIP = pytest.mark.parametrize("chip", CHIPS.values(), ids=CHIPS)
STUB_OR_NOT = pytest.mark.parametrize("stub", [(), ("--no-stub",)], ids=["stub", "ROM"])
KIB = 1024


@pytest.fixture
def board(tmp_path: Path) -> Iterator[WholeBoard]:
    with WholeBoard(tmp_path / "board") as board:
        yield board


def noise(size: int) -> bytes:
    return random.Random(size).randbytes(size)


@STUB_OR_NOT
@EACH_CHIP
def test_chip_and_flash_are_recognized(chip: Chip, stub: tuple[str, ...], tmp_path: Path) -> None:
    with WholeBoard(tmp_path, chip, flash_size=2048 * KIB) as board:
        told = esptool(board.port, *stub, "flash-id").stdout
    assert f"Detecting chip type... {chip.title}\n" in told
    assert "MAC:                24:6f:28:aa:bb:cc" in told
    assert "Manufacturer: ef" in told and "Detected flash size: 2MB" in told


@STUB_OR_NOT
@EACH_CHIP
def test_firmware_that_was_written_is_on_the_flash_and_starts(
    chip: Chip, stub: tuple[str, ...], tmp_path: Path
) -> None:
    firmware = make_firmware(chip, app_bytes=20 * KIB)
    (tmp_path / "firmware.bin").write_bytes(firmware)
    with WholeBoard(tmp_path / "board", chip) as board:
        file = (hex(chip.bootloader_at), str(tmp_path / "firmware.bin"))
        esptool(board.port, "--baud", "460800", *stub, "write-flash", *file)
        assert board.flash.read(chip.bootloader_at, len(firmware)) == firmware
        board.wait_for("program")
        verified = esptool(board.port, *stub, "verify-flash", *file)
    assert "Verification successful" in verified.stdout


@STUB_OR_NOT
def test_flash_is_read_back(stub: tuple[str, ...], board: WholeBoard, tmp_path: Path) -> None:
    content = noise(9_000)
    board.flash.program(0x3000, content)
    size = len(content) if not stub else 1_000  # the ROM reads 64 bytes at a time
    esptool(board.port, *stub, "read-flash", "0x3000", str(size), str(tmp_path / "copy"))
    assert (tmp_path / "copy").read_bytes() == content[:size]


@STUB_OR_NOT
def test_erased_region_is_erased_and_nothing_else(stub: tuple[str, ...], board: WholeBoard) -> None:
    content = noise(16 * KIB)
    board.flash.program(0x10000, content)
    esptool(board.port, *stub, "erase-region", "0x11000", "0x2000")
    expected = content[: 4 * KIB] + b"\xff" * 8 * KIB + content[12 * KIB :]
    assert board.flash.read(0x10000, len(content)) == expected


def test_erased_chip_is_erased(board: WholeBoard) -> None:
    board.flash.program(0, noise(KIB))
    board.flash.program(board.flash.size - KIB, noise(KIB))
    esptool(board.port, "erase-flash")
    assert board.flash.read(0, board.flash.size) == b"\xff" * board.flash.size


def test_bytes_that_were_not_erased_are_anded(board: WholeBoard) -> None:
    board.flash.program(0x1000, b"\xf0\x0f\xaa")
    board.flash.program(0x1000, b"\xff\x3c\x0f")
    assert board.flash.read(0x1000, 4) == b"\xf0\x0c\x0a\xff"


def test_other_chip_than_the_one_that_is_named_is_refused_and_nothing_is_written(
    tmp_path: Path,
) -> None:
    (tmp_path / "firmware.bin").write_bytes(make_firmware(ESP32, app_bytes=KIB))
    with WholeBoard(tmp_path / "board", ESP32C3) as board:
        done = esptool(board.port, "--chip", "esp32", "write-flash", "0x1000", str(tmp_path / "firmware.bin"), code=2)
        assert "This chip is ESP32-C3, not ESP32. Wrong chip argument?" in done.stdout + done.stderr
        assert board.flash.busy_us == 0


def test_file_that_is_larger_than_the_chip_is_refused(tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(noise(1100 * KIB))
    with WholeBoard(tmp_path / "board", flash_size=1024 * KIB) as board:
        done = esptool(board.port, "write-flash", "0", str(tmp_path / "large"), code=2)
        assert "will not fit in" in done.stdout + done.stderr
        assert board.flash.busy_us == 0


def test_stub_that_does_not_start_ends_esptool_with_its_reason(tmp_path: Path) -> None:
    with WholeBoard(tmp_path, runs_stub=False) as board:
        done = esptool(board.port, "flash-id", code=2)
        assert "Failed to start stub flasher" in done.stdout + done.stderr
        board.wait_started(3)
        esptool(board.port, "--no-stub", "flash-id")


@pytest.mark.parametrize("line", ["port", "url"])
def test_reset_by_the_tool_starts_the_program(line: str, tmp_path: Path) -> None:
    """On a terminal the board guesses it, over RFC 2217 it has DTR and RTS."""
    with WholeBoard(tmp_path / "board") as board:
        board.flash.program(0x1000, make_firmware(ESP32, app_bytes=KIB))
        board.reset(loader=True)
        board.wait_for("loader")
        if line == "port":
            esptool(board.port, "--no-stub", "--before", "no-reset", "chip-id")
        else:
            esptool(board.url, "--no-stub", "chip-id")
        board.wait_for("program")


def test_soft_reset_and_watchdog_need_no_lines(tmp_path: Path) -> None:
    for chip, after in ((ESP32, "soft-reset"), (ESP32C3, "watchdog-reset")):
        with WholeBoard(tmp_path / chip.name, chip, guesses=False) as board:
            board.flash.program(chip.bootloader_at, make_firmware(chip, app_bytes=KIB))
            board.reset(loader=True)
            board.wait_for("loader")
            esptool(board.port, "--no-stub", "--before", "no-reset", "--after", after, "chip-id")
            board.wait_for("program")


def test_stub_that_stays_serves_the_next_command(tmp_path: Path) -> None:
    with WholeBoard(tmp_path, guesses=False) as board:
        board.reset(loader=True)
        board.wait_for("loader")
        esptool(board.port, "--before", "no-reset", "--after", "no-reset-stub", "flash-id")
        told = esptool(board.port, "--before", "no-reset", "--after", "no-reset", "flash-id").stdout
        assert "Stub flasher is already running" in told
        told = esptool(board.port, "--before", "no-reset", "--after", "no-reset", "flash-id").stdout
        assert "Uploading stub flasher" in told
