"""What `holdfast flash` checks first, and what it says while it works: each in a process that has compiled nothing."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.support.board_tools import NEEDS_BOARD_TOOLS
from tools.cli.site.making import make_site
from tools.cli.site.site import Site
from tools.lab.micropython import MicroPython
from tools.lab.sim.loader.chips import ESP32, ESP32C3, Chip
from tools.lab.sim.whole.esp import WholeBoard
from tools.lab.sim.whole.firmware_file import make_firmware
from tools.lab.sim.whole.pico import make_pico_firmware

pytestmark = NEEDS_BOARD_TOOLS
KEYS: dict[str, Any] = {
    "client_id": "garage-1",
    "topic": "telemetry/garage",
    "network": {"ssid": "attic", "password": "under the roof"},
    "port": {"host": "localhost"},
    "flash": {"path": "holdfast", "sector_count": 16},
    "interval_ms": 1000,
    "sensors": [{"kind": "adc", "pin": 34, "full_scale_mv": 3300}],
}
DEADLINE_S = 170
COMPILING = "compiling the firmware"


def flash(
    folder: Path, family: str, port: str, firmware: bytes | None, *options: str, **keys: Any
) -> "subprocess.CompletedProcess[str]":
    (folder / "device.json").write_text(json.dumps(KEYS | keys))
    words = ["flash", family, "--port", port, "--config", str(folder / "device.json"), "--no-wait", *options]
    if firmware is not None:
        (folder / "micropython").write_bytes(firmware)
        words += ["--micropython", str(folder / "micropython")]
    environment = {**os.environ, "COLUMNS": "300"}
    command = [sys.executable, "-m", "tools.cli.main", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, env=environment)


def firmware(chip: Chip) -> bytes:
    return make_firmware(chip, 8 * 1024)


def test_a_file_that_no_board_could_take_is_refused_before_a_port_is_opened_and_a_site_gives_a_key(
    tmp_path: Path,
) -> None:
    make_site(tmp_path / "site", "hill")
    site = ("--site", str(tmp_path / "site"))
    for family, content, why in (
        ("esp32", make_pico_firmware(8 * 1024), "is a UF2 file, for an RP2"),
        ("esp32", firmware(ESP32C3), "sensors[0].pin is 34"),
        ("rp2", firmware(ESP32), "is no UF2 file"),
        ("rp2", None, 'flash.path is holdfast, expected "storage"'),
    ):
        done = flash(tmp_path, family, "/dev/no-such-port", content, *site)
        assert (done.returncode, why in done.stderr, done.stdout) == (2, True, ""), done
    assert Site.open(tmp_path / "site").lines() == {}


def test_a_wrong_board_is_refused_before_the_firmware_is_compiled(tmp_path: Path, micropython: MicroPython) -> None:
    with WholeBoard(tmp_path / "board", micropython=micropython) as board:
        wrong = flash(tmp_path, "esp32", board.port, make_firmware(ESP32, 8 * 1024, flash_size=8 << 20))
        other = flash(tmp_path, "esp32", board.port, firmware(ESP32C3), sensors=[])
        none = flash(tmp_path, "esp32", board.port, None)
    assert (wrong.returncode, "is for a flash of 8 MiB, and the board's has 4" in wrong.stderr) == (2, True), wrong
    assert (other.returncode, "is for ESP32-C3, and the board has an ESP32" in other.stderr) == (2, True), other
    assert (none.returncode, "the board has no MicroPython; give its .bin file" in none.stderr) == (2, True), none
    assert COMPILING not in wrong.stdout + other.stdout + none.stdout


def test_it_says_what_it_does_before_it_compiles(tmp_path: Path, micropython: MicroPython) -> None:
    with WholeBoard(tmp_path / "board", micropython=micropython) as board:
        done = flash(tmp_path, "esp32", board.port, firmware(ESP32))
    assert done.returncode == 0, done
    told = [re.sub(r"^ +[0-9.]+ s  |: [0-9.]+ s$", "", line) for line in done.stdout.splitlines()]
    assert told[:5] == [
        f"garage-1: the board at {board.port}",
        "looked at the board",
        "ESP32, 4 MiB of flash, nothing on it",
        f"{COMPILING}, which takes seconds to a minute",
        "compiled the firmware",
    ]
