"""The page about a first board: its files as they stand there make a simulated board deliver readings to its client."""

import asyncio
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.device.boards.powered import Board
from tests.device.firmware import DEADLINE_S
from tools.cli.paths import source_root
from tools.lab.micropython import MicroPython
from tools.lab.testing.ports import free_port
from tools.lab.testing.process import Process, holdfast

PAGE = (source_root() / "docs/how-to/first-board.md").read_text()


def block(kind: str) -> str:
    (found,) = re.findall(rf"^```{kind}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    return str(found)


def command(start: str) -> list[str]:
    (found,) = re.findall(rf"^{re.escape(start)} .*$", PAGE, re.MULTILINE)
    return shlex.split(found)


def run(words: list[str], folder: Path, typed: str = "") -> None:
    environment = {**os.environ, "PYTHONPATH": str(source_root())}
    command = [sys.executable, "-m", "tools.cli.main", *words]
    subprocess.run(command, cwd=folder, env=environment, input=typed, text=True, check=True, stdout=subprocess.PIPE)


@pytest.fixture
def chip(tmp_path: Path) -> Path:
    """A board whose `lib` has what the page builds, and copies there."""
    run(command("./holdfast device build")[1:], tmp_path)
    *copied, target = command("mpremote cp -r")[3:]
    assert target == ":/lib/"
    (tmp_path / "lib").mkdir()
    for name in copied:
        shutil.move(tmp_path / name, tmp_path / "lib")
    return tmp_path


@contextmanager
def gateway(folder: Path) -> Iterator[int]:
    """The gateway of the page, with its accounts, at a port of its own."""
    port = free_port()
    configuration = block("toml").replace('"0.0.0.0"', '"127.0.0.1"').replace("1883", str(port))
    (folder / "gateway.toml").write_text(configuration)
    for words in (line.split()[1:] for line in re.findall(r"^\./holdfast gateway passwd .*$", PAGE, re.MULTILINE)):
        run(words, folder, f"{PASSWORDS[words[-1]]}\n")
    words = command("./holdfast gateway run")[1:]
    process = Process("gateway", ["env", "-C", str(folder), *holdfast(*words)], ready=port)
    process.start()
    try:
        process.wait_ready()
        yield port
    finally:
        process.stop()


KEYS = json.loads(block("json"))
PASSWORDS = {KEYS["port"]["user"]: KEYS["port"]["password"], "me": "your password"}


async def test_board_of_the_page_delivers_its_first_readings(micropython: MicroPython, chip: Path) -> None:
    (chip / "device.json").write_text(block("json"))
    run(command("./holdfast device check-config")[1:], chip)
    flash = KEYS["flash"] | {"sector_count": 16}  # as the simulated chip has it
    with gateway(chip) as port:
        place = KEYS["port"] | {"host": "127.0.0.1", "port": port}
        keys = {name: value for name, value in KEYS.items() if name not in ("flash", "port")}
        board = Board("esp32", micropython, chip, place, block("python"), **keys, flash=flash)
        board.wifi("up")
        words = command("mosquitto_sub")
        words[words.index(KEYS["port"]["host"])] = "127.0.0.1"
        words[words.index("1883")] = str(port)
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as listener:
            try:
                await board.start()
                told, _ = await asyncio.to_thread(listener.communicate, timeout=3 * DEADLINE_S)
            finally:
                listener.kill()
        await board.end()
    readings = [json.loads(line)[0] for line in told.splitlines()]
    assert [(one["bn"], one["boot"]) for one in readings] == [("garage-1:", 1)] * 3
    assert {(one["n"], one.get("u"), one.get("vs")) for one in readings} == {
        ("adc.voltage", "V", None),
        ("clock", None, "gateway"),
    }
