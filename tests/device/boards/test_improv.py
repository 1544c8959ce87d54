"""What Improv costs: a device without it loads none of it, and one that has it only while a browser speaks."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from device.field import improv
from device.field.improv import packet
from tools.cli.paths import source_root
from tools.lab.micropython import MicroPython
from tools.lab.sim.board import SHIM

KEYS = {
    "client_id": "garage-1",
    "topic": "telemetry/garage",
    "port": {"host": "127.0.0.1", "port": 9},
    "network": {"ssid": "attic", "password": "under the roof"},
    "flash": {"path": "holdfast", "sector_count": 16},
    "interval_ms": 60_000,
    "sensors": [],
}
PROGRAM = """
import sys
sys.path.append({root!r})
from device import library
library.start("device.json")
def tell():
    found = [name.split(".")[-1] for name in sys.modules if name.startswith("device.field.")]
    sys.stderr.write(" ".join(sorted(found)) + "\\n")
tell()
{then}
"""
CONVERSATION = """
while "device.field.setup" not in sys.modules:
    library.advance(20)
tell()
while "device.field.setup" in sys.modules:
    library.advance(1000)
tell()
"""


def modules_of(vm: MicroPython, folder: Path, then: str = "", typed: bytes = b"", **change: Any) -> list[list[str]]:
    """Runs a board whose program tells which modules of the field it has; returns them, at each moment."""
    (folder / "wifi").write_text("up attic")
    (folder / "cause").write_text("1")
    (folder / "device.json").write_text(json.dumps({**KEYS, **change}))
    (folder / "main.py").write_text(PROGRAM.format(root=str(source_root()), then=then))
    command = [*vm.argv, "-X", "heapsize=256wk", str(SHIM / "power_on.py"), "esp32", "exec(open('main.py').read())"]
    environment = {**vm.environment(), "HOLDFAST_BOARD": str(folder), "MICROPYPATH": f"{SHIM}:{source_root()}:.frozen"}
    done = subprocess.run(command, cwd=folder, env=environment, input=typed, capture_output=True, timeout=150)
    assert done.returncode == 0, done.stderr + done.stdout
    return [line.split() for line in done.stderr.decode().splitlines()]


def test_device_without_it_loads_nothing_of_it(micropython: MicroPython, tmp_path: Path) -> None:
    assert modules_of(micropython, tmp_path) == [[]]


def test_device_that_has_it_listens_with_two_modules_alone(micropython: MicroPython, tmp_path: Path) -> None:
    (found,) = modules_of(micropython, tmp_path, field={"improv": True})
    assert found == ["config", "console", "life", "told_network"]  # `config` and `life` are for every `field`


@pytest.mark.long
def test_protocol_leaves_the_heap_when_the_conversation_is_over(micropython: MicroPython, tmp_path: Path) -> None:
    asked = packet(improv.COMMAND, bytes([improv.GET_STATE, 0]))
    first, during, behind = modules_of(micropython, tmp_path, CONVERSATION, asked, field={"improv": True})
    assert set(during) - set(first) == {"improv", "setup"}
    assert behind == first
