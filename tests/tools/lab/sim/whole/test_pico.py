"""The simulated Pico: its drive takes a UF2 file, and the board runs what was written."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.board_tools import NEEDS_BOARD_TOOLS, mpremote
from tools.lab.micropython import MicroPython
from tools.lab.sim.whole.pico import PicoBoard, make_pico_firmware
from tools.lab.sim.whole.uf2 import BLOCK_BYTES, RP2040_FAMILY, RP2350_FAMILY, Download, make_uf2

FIRMWARE = make_pico_firmware(8_000)
FLASH_BYTES = 2 * 1024 * 1024


@pytest.fixture
def board(tmp_path: Path, micropython: MicroPython) -> Iterator[PicoBoard]:
    with PicoBoard(tmp_path / "board", micropython=micropython) as board:
        yield board


def test_empty_board_shows_its_drive_and_starts_what_was_copied_there(board: PicoBoard, tmp_path: Path) -> None:
    board.wait_for("loader")
    assert "RPI-RP2" in (board.drive / "INFO_UF2.TXT").read_text()
    assert not Path(board.port).exists()
    (tmp_path / "firmware.uf2").write_bytes(FIRMWARE)
    shutil.copy(tmp_path / "firmware.uf2", board.drive)
    board.wait_printed(b"RP2040\r\nType")
    assert Path(board.port).exists() and not board.drive.exists()


def test_half_a_file_starts_nothing_until_the_rest_comes(board: PicoBoard) -> None:
    board.wait_for("loader")
    half = len(FIRMWARE) // 2 // BLOCK_BYTES * BLOCK_BYTES + 100
    with (board.drive / "firmware.uf2").open("wb") as file:
        file.write(FIRMWARE[:half])
        file.flush()
        with pytest.raises(TimeoutError):
            board.wait_for("program", deadline_s=0.3)
        file.write(FIRMWARE[half:])
    board.wait_for("program")


def test_blocks_for_another_chip_or_place_are_ignored() -> None:
    download = Download(RP2040_FAMILY, FLASH_BYTES)
    download.take(make_uf2(b"x" * 600, RP2350_FAMILY))
    download.take(make_uf2(b"x" * 600, address=0x1000_0000 + FLASH_BYTES))
    download.take(b"not a block at all".ljust(BLOCK_BYTES))
    assert not download.pages
    download.take(make_uf2(b"x" * 600))
    assert download.is_whole
    assert download.pages[1] == (256, b"x" * 256)


@NEEDS_BOARD_TOOLS
def test_program_of_the_board_uses_its_part_of_the_storage_area(tmp_path: Path, micropython: MicroPython) -> None:
    files = 64 * 1024
    with PicoBoard(tmp_path / "board", micropython=micropython, files=files) as board:
        board.wait_for("loader")
        (board.drive / "firmware.uf2").write_bytes(FIRMWARE)
        board.wait_printed(b">>> ")
        told = mpremote(
            board.port, "exec", "import rp2, os, sys; print(rp2.Flash().ioctl(4, 0), os.statvfs('/')[2], sys.platform)"
        )
        assert told.stdout == "212 16 rp2\n"
        program = f"import rp2; rp2.Flash(start={files}, len=8192).writeblocks(0, b'store' + b'\\xff' * 251, 0)"
        mpremote(board.port, "exec", program)
        starts = board.starts
        mpremote(board.port, "bootloader")
        board.wait_started(starts + 1)
        board.wait_for("loader")
        (board.drive / "again.uf2").write_bytes(FIRMWARE)
        board.wait_printed(b">>> ")
        assert board.flash.read(FLASH_BYTES - 848 * 1024 + files, 5) == b"store"
