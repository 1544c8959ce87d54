"""The whole board: what esptool wrote starts, and the firmware on its file system delivers readings."""

import asyncio
import json
import time
from pathlib import Path

import pytest
from littlefs import LittleFS

from tests.device.firmware import published, reached, seqs, tcp
from tests.support.board_tools import NEEDS_BOARD_TOOLS, esptool, mpremote
from tests.support.scripted_broker import scripted_broker
from tools.cli.device.build import Board, compile_for_heap
from tools.lab.micropython import MicroPython
from tools.lab.sim.loader.chips import ESP32, ESP32S3
from tools.lab.sim.whole.esp import WholeBoard
from tools.lab.sim.whole.firmware_file import TABLE, make_firmware

KIB = 1024
FILES_AT, FILES_BYTES = 0x200000, 0x1C0000
STORE_AT = FILES_AT + FILES_BYTES
WITH_STORE = (
    TABLE.replace("0x200000, 0x200000", "0x200000, 0x1C0000") + "holdfast, data, undefined, 0x3C0000, 0x40000,\n"
)
MAIN = "import device.main\n\ndevice.main.main('device.json')\n"


def image_of(files: dict[str, bytes]) -> bytes:
    """A littlefs image of the partition's size."""
    image = LittleFS(block_size=4 * KIB, block_count=FILES_BYTES // (4 * KIB), prog_size=32, read_size=32)
    for name, content in files.items():
        image.makedirs(str(Path(name).parent), exist_ok=True)
        with image.open(name, "wb") as file:
            file.write(content)
    return bytes(image.context.buffer)


def firmware(table: str = TABLE) -> bytes:
    return make_firmware(ESP32, KIB, table)


@NEEDS_BOARD_TOOLS
async def test_what_esptool_wrote_delivers_readings_to_a_broker(tmp_path: Path, micropython: MicroPython) -> None:
    async with scripted_broker() as broker:
        config = {
            "client_id": "garage-1",
            "topic": "telemetry/garage",
            "network": {"ssid": "attic", "password": "under the roof"},
            "port": tcp(broker.port),
            "flash": {"path": "holdfast"},
            "interval_ms": 20,
            "sensors": [{"kind": "adc", "pin": 34, "full_scale_mv": 3300}],
        }
        files = {f"lib/{name}": content for name, content in compile_for_heap(Board.ESP32).items()}
        files |= {"main.py": MAIN.encode(), "device.json": json.dumps(config).encode()}
        for name, content in (("firmware", firmware(WITH_STORE)), ("files", image_of(files))):
            (tmp_path / name).write_bytes(content)
        written = ["0x1000", str(tmp_path / "firmware"), hex(FILES_AT), str(tmp_path / "files")]
        with WholeBoard(tmp_path / "board", micropython=micropython) as board:
            await asyncio.to_thread(esptool, board.port, "write-flash", *written)
            await published(broker, 0, 5)
            received = seqs(broker.publishes[0])
            await asyncio.to_thread(board.wait_printed, b"Wi-Fi attic joined")
            assert board.flash.read(STORE_AT, 64) != b"\xff" * 64
            board.reset()
            await reached(broker, 1, max(received) + 1)  # the store is where the board left it
        assert received[0] == 1


@NEEDS_BOARD_TOOLS
def test_partitions_are_the_ranges_that_the_written_table_names(tmp_path: Path, micropython: MicroPython) -> None:
    board = WholeBoard(tmp_path / "board", micropython=micropython)
    board.flash.program(ESP32.bootloader_at, firmware(WITH_STORE))
    board.flash.program(STORE_AT + 4 * KIB, b"here")
    program = (
        "from esp32 import Partition; p = Partition.find(Partition.TYPE_DATA, label='holdfast')[0]; "
        "b = bytearray(4); p.readblocks(1, b, 0); print(p.info(), bytes(b)); p.writeblocks(2, b'there', 0)"
    )
    with board:
        board.wait_printed(b">>> ")
        told = mpremote(board.port, "exec", program).stdout
        assert told == f"(1, 6, {STORE_AT}, 262144, 'holdfast', False) b'here'\n"
        assert board.flash.read(STORE_AT + 8 * KIB, 5) == b"there"


@NEEDS_BOARD_TOOLS
def test_file_system_has_the_rest_of_the_chip_where_the_table_has_no_line_for_it(
    tmp_path: Path, micropython: MicroPython
) -> None:
    table = "".join(line for line in TABLE.splitlines(keepends=True) if not line.startswith("vfs"))
    board = WholeBoard(tmp_path / "board", micropython=micropython)
    board.flash.program(ESP32.bootloader_at, firmware(table))
    with board:
        board.wait_printed(b">>> ")
        program = "from esp32 import Partition; print(Partition.find(Partition.TYPE_DATA, label='vfs')[0].info()[2:4])"
        assert mpremote(board.port, "exec", program).stdout == "(2097152, 2097152)\n"


def broken(what: str) -> bytes:
    """A firmware with a fault, from the flash's begin."""
    whole = bytearray(b"\xff" * ESP32.bootloader_at + firmware())
    at = {"bootloader": ESP32.bootloader_at + 300, "table": 0x8004, "program": 0x10200}[what]
    whole[at] ^= 1
    return bytes(whole)


def large_for(chip_mib: int) -> bytes:
    rows = TABLE if chip_mib == 4 else TABLE.replace("0x200000, 0x200000", "0x200000, 0x600000")
    return b"\xff" * ESP32.bootloader_at + firmware(rows)


@pytest.mark.parametrize(
    ("flash", "why"),
    [
        (b"", b"invalid header: 0xffffffff"),
        (broken("bootloader"), b"checksum failed"),
        (broken("table"), b"flash_parts: MD5 checksums don't match!"),
        (broken("program"), b"esp_image: checksum failed"),
        (b"\xff" * ESP32.bootloader_at + make_firmware(ESP32S3, app_bytes=KIB), b"image has chip id 9, expected 0"),
        (large_for(8), b"partition vfs invalid - offset 0x200000 size 0x600000 exceeds flash chip size 0x400000"),
    ],
    ids=["blank", "bootloader", "table", "program", "another chip", "a larger chip"],
)
def test_board_that_cannot_start_says_why_again_and_again(
    flash: bytes, why: bytes, tmp_path: Path, micropython: MicroPython
) -> None:
    board = WholeBoard(tmp_path / "board", micropython=micropython)
    board.flash.program(0, flash)
    with board:
        board.wait_printed(why)
        board.wait_started(board.starts + 1)
        board.wait_printed(why)


def test_corrupt_file_system_is_not_erased(tmp_path: Path, micropython: MicroPython) -> None:
    board = WholeBoard(tmp_path / "board", micropython=micropython)
    board.flash.program(ESP32.bootloader_at, firmware())
    board.flash.program(FILES_AT, b"not a file system")
    with board:
        board.wait_printed(b"appears to be corrupted")
        assert board.flash.read(FILES_AT, 17) == b"not a file system"


def test_board_is_the_same_after_its_power_was_off(tmp_path: Path, micropython: MicroPython) -> None:
    first = WholeBoard(tmp_path / "board", micropython=micropython)
    first.flash.program(ESP32.bootloader_at, firmware())
    with first:
        first.wait_printed(b"Performing initial setup")
        first.wait_printed(b">>> ")
    with WholeBoard(tmp_path / "board", micropython=micropython) as again:
        again.wait_printed(b">>> ")
        assert b"Performing initial setup" not in again.printed


def test_chip_of_another_size_is_refused(tmp_path: Path, micropython: MicroPython) -> None:
    WholeBoard(tmp_path / "board", micropython=micropython)
    with pytest.raises(ValueError, match="has 4194304 bytes, expected 2097152"):
        WholeBoard(tmp_path / "board", micropython=micropython, flash_size=2048 * KIB)


def test_paced_line_takes_the_time_of_its_bytes(tmp_path: Path, micropython: MicroPython) -> None:
    lines = 300
    image = image_of({"main.py": f"for n in range({lines}):\n    print('x' * 9)\nprint('end')\n".encode()})
    board = WholeBoard(tmp_path / "board", micropython=micropython, paced=True)
    board.flash.program(ESP32.bootloader_at, firmware(WITH_STORE))
    board.flash.program(FILES_AT, image)
    with board:
        board.wait_printed(b"x" * 9)
        began_s = time.monotonic()
        board.wait_printed(b"end\r\n")
        took_s = time.monotonic() - began_s
    assert took_s > 0.7 * lines * 11 * 10 / 115_200


@NEEDS_BOARD_TOOLS
def test_chips_are_wired_to_the_board(tmp_path: Path, micropython: MicroPython) -> None:
    wiring = """
import machine
from tools.lab.sim.chips.sht31 import Sht31
machine.connect_i2c(Sht31(lambda: 0, 0x6000, 0x8000), 0, 0x44)
"""
    board = WholeBoard(tmp_path / "board", micropython=micropython, wiring=wiring)
    board.flash.program(ESP32.bootloader_at, firmware())
    with board:
        board.wait_printed(b">>> ")
        program = "import sys, machine; print(machine.I2C(0, scl=None, sda=None).scan(), 'tools' in sys.modules)"
        assert mpremote(board.port, "exec", program).stdout == "[68] False\n"


@NEEDS_BOARD_TOOLS
def test_board_tells_its_architecture(tmp_path: Path, micropython: MicroPython) -> None:
    board = WholeBoard(tmp_path / "board", micropython=micropython)
    board.flash.program(ESP32.bootloader_at, firmware())
    with board:
        board.wait_printed(b">>> ")
        assert mpremote(board.port, "eval", "__import__('sys').implementation._mpy >> 10").stdout == "10\n"


def test_board_is_off_while_its_cable_is_pulled_unless_it_has_power_of_its_own(
    tmp_path: Path, micropython: MicroPython
) -> None:
    for has_own_power in (False, True):
        board = WholeBoard(tmp_path / str(has_own_power), micropython=micropython, has_own_power=has_own_power)
        board.flash.program(ESP32.bootloader_at, firmware())
        with board:
            board.wait_printed(b">>> ")
            starts = board.starts
            board.pull_cable()
            assert not Path(board.port).exists()
            board.plug_cable()
            assert Path(board.port).exists()
            if not has_own_power:
                board.wait_started(starts + 1)
                continue
            assert board.starts == starts
