"""The page about a first board: its files as they stand there make a simulated board deliver readings to its client."""

import asyncio
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.device.boards.powered import Board
from tests.device.firmware import DEADLINE_S
from tests.support.mosquitto import mosquitto
from tools.micropython import MicroPython
from tools.paths import source_root

PAGE = (source_root() / "docs/how-to/first-board.md").read_text()


def block(kind: str) -> str:
    (found,) = re.findall(rf"^```{kind}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    return str(found)


def command(start: str) -> list[str]:
    (found,) = re.findall(rf"^{re.escape(start)} .*$", PAGE, re.MULTILINE)
    return shlex.split(found)


@pytest.fixture
def chip(tmp_path: Path) -> Path:
    """A board whose `lib` has what the page builds, and copies there."""
    words = command("holdfast device build")[1:]
    environment = {**os.environ, "PYTHONPATH": str(source_root())}
    subprocess.run([sys.executable, "-m", "tools.cli", *words], cwd=tmp_path, env=environment, check=True)
    *copied, target = command("mpremote cp -r")[3:]
    assert target == ":/lib/"
    (tmp_path / "lib").mkdir()
    for name in copied:
        shutil.move(tmp_path / name, tmp_path / "lib")
    return tmp_path


async def test_board_of_the_page_delivers_its_first_readings(micropython: MicroPython, chip: Path) -> None:
    keys = json.loads(block("json"))
    flash = keys.pop("flash") | {"sector_count": 16}  # as the simulated chip has it
    with mosquitto(chip) as port:
        keys["port"] |= {"host": "127.0.0.1", "port": port}
        board = Board("esp32", micropython, chip, keys["port"], block("python"), **keys, flash=flash)
        board.wifi("up")
        words = command("mosquitto_sub")
        words[words.index("gateway.local")] = "127.0.0.1"
        words[words.index("1883")] = str(port)
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as listener:
            try:
                await board.start()
                told, _ = await asyncio.to_thread(listener.communicate, timeout=3 * DEADLINE_S)
            finally:
                listener.kill()
        await board.end()
    readings = [json.loads(line)[0] for line in told.splitlines()]
    assert len(readings) == 3
    assert {(one["bn"], one["boot"], one["n"], one["u"]) for one in readings} == {("garage-1:", 1, "adc.voltage", "V")}
