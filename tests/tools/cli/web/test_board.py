"""A board that a browser has written: told its Wi-Fi by the client of Improv's makers, it sends its first reading."""

import asyncio
import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import serial

from device.config import load
from device.field import improv
from device.field.improv import packet
from tests.support.board_tools import NEEDS_BOARD_TOOLS, esptool, mpremote
from tests.support.scripted_broker import ScriptedBroker, scripted_broker
from tests.tools.cli.web.packages import PLAIN, improv_client, make_package
from tests.tools.cli.web.test_build import KEYS
from tools.cli.web.esp_web_tools import read_package
from tools.cli.web.folder import WebFolder, make_folder
from tools.lab.micropython import MicroPython
from tools.lab.sim.loader.chips import ESP32
from tools.lab.sim.whole.esp import WholeBoard
from tools.lab.sim.whole.firmware_file import make_firmware

pytestmark = NEEDS_BOARD_TOOLS
CLIENT = Path(__file__).with_name("improv_client.mjs")
WAITS = b"no Wi-Fi: it waits to be told one over its console"
START_S, READING_S = 60.0, 60.0


def built(folder: Path, broker_port: int, **change: Any) -> WebFolder:
    keys = {**KEYS, "port": {"host": "127.0.0.1", "port": broker_port}, "interval_ms": 200, **change}
    config, micropython = folder / "device.json", folder / "micropython.bin"
    config.write_text(json.dumps(keys))
    micropython.write_bytes(make_firmware(ESP32, 8192))
    package = read_package(make_package(folder / "package.tgz", PLAIN))
    return make_folder(config, load(str(config)), micropython, package)


@pytest.fixture
def board(tmp_path: Path, micropython: MicroPython) -> Iterator[WholeBoard]:
    made = WholeBoard(tmp_path / "board", micropython=micropython)
    made.wifi("up attic cellar")
    with made:
        yield made


def put(board: WholeBoard, made: WebFolder) -> None:
    """Puts each part where the manifest has it, in its order."""
    for name, at in made.parts:
        content = made.files[name]
        board.flash.erase(at, -(-len(content) // 4096) * 4096)
        board.flash.program(at, content)
    board.reset()


def ask(line: serial.Serial, command: int, content: bytes = b"") -> bytes:
    """Sends a command and returns what came within a second."""
    line.write(packet(improv.COMMAND, bytes([command, len(content)]) + content) + b"\n")
    return line.read(4096)


async def client(folder: Path, board: WholeBoard, *settings: str) -> Any:
    if shutil.which("node") is None:
        assert "CI" not in os.environ, "node is not installed"
        pytest.skip("node is not installed")
    words = ["node", str(CLIENT), str(improv_client(folder)), board.port, *settings]
    done = await asyncio.to_thread(subprocess.run, words, capture_output=True, text=True, timeout=150)
    assert done.returncode == 0, done.stderr + str(board.printed[-2000:])
    return json.loads(done.stdout)


async def first_reading(broker: ScriptedBroker) -> bytes:
    async with asyncio.timeout(READING_S):
        while not any(broker.publishes):
            await asyncio.sleep(0.05)
    return next(publishes[0].payload for publishes in broker.publishes if publishes)


@pytest.mark.long  # the board starts four times
async def test_board_without_wifi_is_told_one_and_sends_its_first_reading(tmp_path: Path, board: WholeBoard) -> None:
    """The client begins while the board still starts: none of its bytes may end the program."""
    async with scripted_broker() as broker:
        await asyncio.to_thread(put, board, built(tmp_path, broker.port))
        told = await client(tmp_path, board, "nowhere", "wrong", "attic", "under the roof")
        assert told["info"]["firmware"] == "Holdfast" and told["info"]["name"] == "garage-1"
        assert told["info"]["chipFamily"] == "Simulated ESP32 module with ESP32"
        assert told["state"] == improv.READY
        assert [one["name"] for one in told["networks"]] == ["attic", "cellar"]
        assert told["joined"] == ["UNABLE_TO_CONNECT", improv.PROVISIONED]
        assert b'"bn":"garage-1:"' in await first_reading(broker)
        starts = len(broker.publishes)
        board.reset()
        async with asyncio.timeout(READING_S):
            while len(broker.publishes) == starts or not broker.publishes[-1]:
                await asyncio.sleep(0.05)
        assert b"connected to 127.0.0.1" in board.printed


async def test_packets_with_the_byte_of_ctrl_c_do_not_end_a_program_that_starts(
    tmp_path: Path, board: WholeBoard
) -> None:
    await asyncio.to_thread(put, board, built(tmp_path, 9))
    with serial.Serial(board.port, 115_200, timeout=0.3) as line:
        until_s = time.monotonic() + START_S
        while b"IMPROV\x01\x01\x01\x02\xe2\n" not in ask(line, improv.GET_STATE):
            assert time.monotonic() < until_s, board.printed[-2000:]
    assert b">>> " not in board.printed and b"KeyboardInterrupt" not in board.printed


async def test_tools_still_reach_the_prompt_of_a_board_that_listens(tmp_path: Path, board: WholeBoard) -> None:
    await asyncio.to_thread(put, board, built(tmp_path, 9))
    await asyncio.to_thread(board.wait_printed, WAITS, START_S)
    done = await asyncio.to_thread(mpremote, board.port, "exec", "import gc; print('free', gc.mem_free() > 0)")
    assert done.stdout == "free True\n"


async def test_board_whose_configuration_has_a_fault_reaches_its_prompt(tmp_path: Path, board: WholeBoard) -> None:
    await asyncio.to_thread(put, board, built(tmp_path, 9))
    await asyncio.to_thread(board.wait_printed, WAITS, START_S)
    program = "f = open('device.json', 'w'); f.write('{'); f.close()"
    await asyncio.to_thread(mpremote, board.port, "exec", program)
    board.reset()
    await asyncio.to_thread(board.wait_printed, b"client_id is missing", START_S)
    assert (await asyncio.to_thread(mpremote, board.port, "eval", "6 * 7")).stdout == "42\n"


@pytest.mark.long
def test_real_esptool_writes_the_parts(tmp_path: Path, board: WholeBoard) -> None:
    made = built(tmp_path, 9)
    for name, content in made.files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(content)
    first, *rest = [(f"0x{at:x}", str(tmp_path / name)) for name, at in made.parts]
    esptool(board.port, "write-flash", *first)
    esptool(board.port, "write-flash", *(word for part in rest for word in part))
    board.wait_printed(WAITS, START_S)
