"""One write of esptool makes a blank ESP32 the device of a configuration."""

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.device.firmware import published, tcp
from tests.support.board_tools import NEEDS_BOARD_TOOLS, esptool
from tests.support.command import holdfast
from tests.support.scripted_broker import scripted_broker
from tools.lab.micropython import MicroPython
from tools.lab.sim.loader.chips import ESP32
from tools.lab.sim.whole.esp import WholeBoard
from tools.lab.sim.whole.firmware_file import TABLE, make_firmware

KIB = 1024
STORE_AT = 0x3C0000


def write(folder: Path, **keys: Any) -> Path:
    """Writes MicroPython's file and a configuration, whose path is returned."""
    given = {
        "client_id": "garage-1",
        "topic": "telemetry/garage",
        "network": {"ssid": "attic", "password": "under the roof"},
        "port": {"host": "barn"},
        "flash": {"path": "holdfast"},
        "interval_ms": 20,
        "sensors": [{"kind": "adc", "pin": 34, "full_scale_mv": 3300}],
    }
    (folder / "esp32.bin").write_bytes(make_firmware(ESP32, KIB, TABLE))
    (folder / "device.json").write_text(json.dumps(given | keys))
    return folder / "device.json"


def build(folder: Path, *options: str) -> Any:
    return holdfast("device", "build", "--board", "esp32", "--out", str(folder / "out"), *options)


@NEEDS_BOARD_TOOLS
async def test_board_delivers_readings_after_the_one_command_that_the_build_names(
    tmp_path: Path, micropython: MicroPython
) -> None:
    async with scripted_broker() as broker:
        config = write(tmp_path, port=tcp(broker.port))
        done = await asyncio.to_thread(
            build, tmp_path, "--config", str(config), "--micropython", str(tmp_path / "esp32.bin")
        )
        assert done.exit_code == 0, done.stderr
        words = re.search(r"esptool (write-flash .*)", done.stdout)
        assert words is not None
        with WholeBoard(tmp_path / "board", micropython=micropython) as board:
            await asyncio.to_thread(esptool, board.port, *words[1].split())
            await published(broker, 0, 3)
            assert board.flash.read(STORE_AT, 64) != b"\xff" * 64


def test_image_is_for_this_user_alone_and_names_what_it_needs(tmp_path: Path) -> None:
    config, firmware = write(tmp_path), tmp_path / "esp32.bin"
    done = build(tmp_path, "--config", str(config), "--micropython", str(firmware))
    assert done.exit_code == 0, done.stderr
    assert (tmp_path / "out/holdfast.littlefs").stat().st_mode & 0o777 == 0o600
    assert b"under the roof" in (tmp_path / "out/holdfast.littlefs").read_bytes()


@pytest.mark.parametrize(
    ("keys", "options", "said"),
    [
        ({}, ("--micropython", "esp32.bin"), "expected with --board esp32 and --config"),
        (
            {"port": {"kind": "tls", "host": "barn", "ca": "ca.der"}},
            ("--micropython", "esp32.bin", "--config", "device.json"),
            "names the file ca.der, and",
        ),
        ({}, ("--micropython", "device.json", "--config", "device.json"), "is no firmware of an ESP32"),
        (
            {"flash": {"path": "vfs"}},
            ("--micropython", "esp32.bin", "--config", "device.json"),
            "flash.path is vfs, which is a partition for something else",
        ),
    ],
)
def test_wrong_input_is_refused_and_nothing_is_written(
    keys: dict[str, Any], options: tuple[str, ...], said: str, tmp_path: Path
) -> None:
    write(tmp_path, **keys)
    done = build(tmp_path, *(str(tmp_path / one) if not one.startswith("--") else one for one in options))
    assert done.exit_code == 2
    assert said in done.stderr
    assert not (tmp_path / "out").exists()
