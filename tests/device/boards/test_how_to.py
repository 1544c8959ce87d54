"""The page about a first board: its files and commands, as they stand there, make a simulated board deliver."""

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.device.firmware import DEADLINE_S
from tests.support.board_tools import NEEDS_BOARD_TOOLS
from tools.cli.board.content import MAIN
from tools.cli.paths import source_root
from tools.lab.micropython import MicroPython
from tools.lab.sim.loader.chips import ESP32
from tools.lab.sim.whole.esp import WholeBoard
from tools.lab.sim.whole.firmware_file import make_firmware
from tools.lab.testing.ports import free_port
from tools.lab.testing.process import Process, holdfast

PAGE = (source_root() / "docs/how-to/first-board.md").read_text()


def block(kind: str) -> str:
    (found,) = re.findall(rf"^```{kind}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    return str(found)


(SAMPLE,) = re.findall(r"^```text\n( +\d.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


def command(start: str) -> list[str]:
    (found,) = re.findall(rf"^{re.escape(start)} .*$", PAGE, re.MULTILINE)
    return shlex.split(found)


def run(words: list[str], folder: Path, typed: str = "") -> str:
    environment = {**os.environ, "PYTHONPATH": str(source_root())}
    command = [sys.executable, "-m", "tools.cli.main", *words]
    done = subprocess.run(command, cwd=folder, env=environment, input=typed, text=True, stdout=subprocess.PIPE)
    assert done.returncode == 0, done.stdout
    return done.stdout


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


def without_numbers(text: str) -> list[str]:
    """The lines of an output, without the numbers that differ from run to run."""
    return [re.sub(r" *\d+(\.\d+)*", " #", line) for line in text.splitlines()]


KEYS = json.loads(block("json"))
PASSWORDS = {KEYS["port"]["user"]: KEYS["port"]["password"], "me": "your password"}


@NEEDS_BOARD_TOOLS
def test_board_of_the_page_delivers_its_first_readings(micropython: MicroPython, tmp_path: Path) -> None:
    (tmp_path / "device.json").write_text(block("json"))
    run(command("./holdfast device check-config")[1:], tmp_path)
    (tmp_path / "ESP32_GENERIC.bin").write_bytes(make_firmware(ESP32, 8 * 1024))
    with gateway(tmp_path) as port, WholeBoard(tmp_path / "board", micropython=micropython) as board:
        place = KEYS["port"] | {"host": "127.0.0.1", "port": port}
        (tmp_path / "device.json").write_text(json.dumps(KEYS | {"port": place}))
        words = command("./holdfast flash esp32")[1:]
        words[words.index("/dev/ttyUSB0")] = board.port
        told = run(words, tmp_path)
        assert without_numbers(told.replace(board.port, "/dev/ttyUSB0")) == without_numbers(SAMPLE)
        words = command("mosquitto_sub")
        words[words.index(KEYS["port"]["host"])] = "127.0.0.1"
        words[words.index("1883")] = str(port)
        listener = subprocess.run(words, stdout=subprocess.PIPE, text=True, timeout=DEADLINE_S, check=True)
    readings = [json.loads(line)[0] for line in listener.stdout.splitlines()]
    assert {one["bn"] for one in readings} == {"garage-1:"}
    assert "adc.voltage" in {one["n"] for one in readings}
    assert len(readings) == 3


def test_main_of_the_page_is_the_one_that_flash_writes() -> None:
    assert block("python").encode() == MAIN
