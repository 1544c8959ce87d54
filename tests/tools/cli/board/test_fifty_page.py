"""The page about fifty boards: its files and commands, as they stand there, make the boards of its table deliver."""

import json
import re
import shlex
from pathlib import Path

import pytest

from tests.support.board_tools import NEEDS_BOARD_TOOLS
from tests.support.command import holdfast
from tests.tools.cli.board.test_flash_many import mac_of
from tools.cli.fleet.table import read_table
from tools.cli.paths import source_root
from tools.lab.micropython import MicroPython
from tools.lab.sim.loader.chips import ESP32, with_mac
from tools.lab.sim.whole.esp import WholeBoard
from tools.lab.sim.whole.firmware_file import make_firmware
from tools.lab.testing.ports import free_port
from tools.lab.testing.process import Process
from tools.lab.testing.process import holdfast as words_of

PAGE = (source_root() / "docs/how-to/fifty-boards.md").read_text()


def block(kind: str) -> str:
    (found,) = re.findall(rf"^```{kind}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    return str(found)


def command(start: str) -> list[str]:
    (found,) = re.findall(rf"^\./holdfast {re.escape(start)} .*$", PAGE, re.MULTILINE)
    return shlex.split(found)[1:]


def run(words: list[str]) -> str:
    done = holdfast(*words)
    assert done.exit_code == 0, done.output
    return done.stdout


def start_gateway(folder: Path, port: int) -> Process:
    """Starts the gateway of the page, with the lines that its commands print, at a port of its own."""
    run(command("site init"))
    printed = run([*command("site gateway"), "--host", "localhost"])
    printed = printed.replace("8883", str(port)).replace("8884", str(free_port())).replace('"::"', '"127.0.0.1"')
    (folder / "gateway.toml").write_text(block("toml") + printed)
    process = Process("gateway", words_of(*command("gateway run")), ready=port)
    process.start()
    process.wait_ready()
    return process


@NEEDS_BOARD_TOOLS
def test_boards_of_the_page_deliver_after_its_one_command(
    tmp_path: Path, micropython: MicroPython, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    port = free_port()
    keys = json.loads(block("json"))
    (tmp_path / "device.json").write_text(json.dumps(keys | {"port": {"host": "localhost", "port": port}}))
    (tmp_path / "ESP32_GENERIC.bin").write_bytes(make_firmware(ESP32, 8 * 1024))
    gateway = start_gateway(tmp_path, port)
    boards = [
        WholeBoard(tmp_path / str(number), with_mac(ESP32, bytes.fromhex(mac_of(number).replace(":", ""))))
        for number in (1, 2, 3)
    ]
    try:
        with boards[0], boards[1], boards[2]:
            table = block("csv")
            for number, board in enumerate(boards):
                table = table.replace(f"/dev/ttyUSB{number}", board.port)
            (tmp_path / "boards.csv").write_text(table)
            words = command("flash esp32")
            words[words.index("--reload") + 1] = f"kill -HUP {gateway.pid}"
            told = run(words)
    finally:
        gateway.stop()
    assert "3 of 3 boards are ready" in told
    assert told.count("first reading: [") == 3


def test_configurations_of_the_page_are_written_from_its_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "boards.csv").write_text(block("csv"))
    (tmp_path / "attic.password").write_text("under the roof\n")
    (tmp_path / "attic.password").chmod(0o600)
    run(command("device new"))
    pattern = json.loads(block("json"))
    for row in read_table(tmp_path / "boards.csv"):
        made = json.loads((tmp_path / "devices" / row.name / "device.json").read_text())
        assert made == json.loads(json.dumps(pattern).replace("%u", row.name)) | {
            "port": pattern["port"] | {"port": 8883}
        }
