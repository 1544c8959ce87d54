"""What `holdfast flash` says of tools, ports and boards that are not as they should be."""

import json
import os
import stat
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest
from typer.testing import CliRunner

from flash_store.log import Log
from tests.support.board_tools import NEEDS_BOARD_TOOLS
from tools.cli.board.content import stale_files
from tools.cli.board.errors import Refused
from tools.cli.board.hold import held
from tools.cli.board.process import run
from tools.cli.board.rescue import name_note
from tools.cli.board.stores import look_into
from tools.cli.board.tools import check_tools
from tools.cli.main import make_app
from tools.lab.sim.nor import NorFlash

pytestmark = NEEDS_BOARD_TOOLS
SECTOR = 4096


def test_a_tool_that_is_missing_or_too_old_is_told_before_anything_is_written() -> None:
    check_tools()
    check_tools({"esptool": "5.0.2", "mpremote": "1.24.1"}.__getitem__)
    with pytest.raises(Refused, match=r"esptool has the version 4\.8\.1, expected 5 or later: pip install --upgrade"):
        check_tools({"esptool": "4.8.1", "mpremote": "1.25"}.__getitem__)
    with pytest.raises(Refused, match=r"mpremote has the version 1\.9, expected 1\.24 or later"):
        check_tools({"esptool": "5", "mpremote": "1.9"}.__getitem__)

    def none(name: str) -> str:
        raise PackageNotFoundError(name)

    with pytest.raises(ModuleNotFoundError) as caught:
        check_tools(none)
    assert caught.value.name == "esptool"


def test_one_run_at_a_time_is_at_a_port_whatever_it_is_called(tmp_path: Path) -> None:
    port, other = tmp_path / "port", tmp_path / "other"
    port.touch()
    other.symlink_to(port)
    complaint = f"{other}: another `holdfast flash` is at this port; wait until it has ended"
    with held(str(port)), held(str(tmp_path / "another")), pytest.raises(Refused, match=complaint), held(str(other)):
        pass
    with held(str(other)):
        pass


def test_a_second_flash_at_a_port_writes_nothing(tmp_path: Path) -> None:
    config = tmp_path / "device.json"
    keys: dict[str, object] = {
        "client_id": "garage-1",
        "topic": "t",
        "network": {"ssid": "attic", "password": "under the roof"},
    }
    keys |= {"port": {"host": "127.0.0.1"}, "flash": {"path": "holdfast"}, "interval_ms": 1000, "sensors": ["host"]}
    config.write_text(json.dumps(keys))
    with held(str(tmp_path / "port")):
        words = ["flash", "esp32", "--port", str(tmp_path / "port"), "--config", str(config), "--no-wait"]
        done = CliRunner().invoke(make_app(), words)
    assert (done.exit_code, "another `holdfast flash` is at this port" in done.stderr) == (2, True), done.stderr


@pytest.mark.parametrize(
    ("reason", "complaint"),
    [
        (
            "Could not open PORT, the port is busy or doesn't exist. ([Errno 25] Inappropriate ioctl)",
            "cannot be opened",
        ),
        ("[Errno 25] Inappropriate ioctl", "the port cannot be opened"),
        ("[Errno 16] Device or resource busy", "another program uses this port"),
        ("[Errno 13] Permission denied", "you may not use this port.*usermod -a -G dialout"),
    ],
)
def test_a_port_that_cannot_be_opened_is_told_with_its_reason(tmp_path: Path, reason: str, complaint: str) -> None:
    port = tmp_path / "port"
    port.touch()
    tool = tmp_path / "tool"
    text = f"Could not open {port}, the port is busy or doesn't exist. ({reason})"
    tool.write_text(f'#!/bin/sh\necho "{text}"\nexit 2\n')
    tool.chmod(stat.S_IRWXU)
    with pytest.raises(Refused, match=complaint):
        run([], str(port), 10.0, program=[str(tool)])


def test_modules_of_an_earlier_firmware_are_stale_and_a_users_own_files_are_not() -> None:
    wanted = ["lib/device/main.mpy", "lib/wire/codec/__init__.mpy", "lib/holdfast.mpy", "main.py", "device.json"]
    stale = ["lib/device/main.py", "lib/device/old/__init__.mpy", "lib/holdfast.py", "device/main.py", "holdfast.py"]
    own = ["lib/bme280.py", "lib/wired.py", "device.json.failed", "boot.py", "notes.txt", "lib/device/readme.txt"]
    assert stale_files([*wanted, *stale, *own], wanted) == sorted(stale)
    assert os.sep == "/"


def test_messages_of_another_name_are_told() -> None:
    nor = NorFlash(SECTOR, 8, 16)
    Log.format(nor, 1, 16)
    log = Log(nor)
    log.settings.set("client_id", b"garage-1")
    assert name_note(look_into(bytes(nor.image), 0, True), "garage-2") == ""
    log.append("telemetry/garage", b"message")
    region = look_into(bytes(nor.image), 0, True)
    assert name_note(region, "garage-1") == ""
    assert name_note(region, "garage-2").startswith(
        "they are garage-1's: the board calls itself garage-1 until they are sent, with the login of garage-2."
    )
