"""``holdfast lab torture soak``: messages without end through the firmware; the heap in use must not grow."""

import json
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Annotated

import typer

from tools.cli.failure import failing_on
from tools.cli.paths import memory_folder
from tools.lab.micropython import MicroPythonUnavailable, find
from tools.lab.result import JSON_OPTION, Judgement, end_judged, quick_option
from tools.lab.testing.mosquitto import Mosquitto, MosquittoUnavailable

PROGRAM = ["-m", "tools.lab.torture.device.soak_device"]  # run as a file it would find this folder's `device` first
FAILURES = (MicroPythonUnavailable, MosquittoUnavailable, OSError)
HEAP = ["-X", "heapsize=512k"]
GROWTH_MAX = 256  # bytes: less than the least that a message could leave behind in a million


def soak(
    messages: Annotated[int, typer.Option(min=100, help="How many messages, at QoS 1 and 2 in turn.")] = 100_000,
    quick: Annotated[bool, quick_option(messages=5_000)] = False,
    as_json: Annotated[bool, JSON_OPTION] = False,
) -> None:
    """Send messages from a device on MicroPython to mosquitto. Ends with 1 if the heap in use has grown."""
    started = time.monotonic()
    used: list[int] = []
    violations = []
    with failing_on(*FAILURES, command="lab torture soak"), tempfile.TemporaryDirectory(dir=memory_folder()) as folder:
        try:
            used = _soak(Path(folder), messages)
        except DeviceEnded as error:
            violations.append(str(error))
    growth = max(used) - used[0] if used else None
    if growth is not None and growth > GROWTH_MAX:
        violations.append(f"the heap in use has grown by {growth} bytes, more than {GROWTH_MAX}")
    more = {"heap_bytes": used, "growth_bytes": growth}
    judgement = Judgement(not violations, messages=messages, violations=violations, more=more)
    seconds = time.monotonic() - started
    looks = " ".join(map(str, used))
    held = f"{messages} messages in {seconds:.1f} s; heap in use after each tenth: {looks}; growth {growth} bytes"
    end_judged("torture", "soak", judgement, seconds, [held, *violations], as_json)


class DeviceEnded(Exception):
    """The device's program ended by itself; the text has its output."""


def _soak(folder: Path, messages: int) -> list[int]:
    """The bytes in use after each tenth of the messages. Raises DeviceEnded."""
    vm = find()
    broker = Mosquitto(folder)
    broker.start()
    try:
        config = folder / "device.json"
        config.write_text(json.dumps(_keys(folder, broker.port)))
        command = [*vm.argv, *HEAP, *PROGRAM, str(config), str(messages)]
        done = subprocess.run(command, env=vm.environment(), capture_output=True, text=True)
    finally:
        broker.stop()
    if done.returncode:
        raise DeviceEnded(f"the device ended with exit code {done.returncode}:\n{done.stdout}{done.stderr}")
    used: list[int] = json.loads(done.stdout.splitlines()[-1])
    return used


def _keys(folder: Path, port: int) -> dict[str, object]:
    """All that takes memory while a device runs is on; its own readings are few."""
    return {
        "client_id": "soak",
        "topic": "soak",
        "port": {"kind": "tcp", "host": "127.0.0.1", "port": port},
        "flash": {"path": str(folder / "flash"), "sector_count": 8},
        "qos": 2,
        "interval_ms": 1_000,
        "clock": "system",
        "sensors": ["host"],
        "readings_limit": 0,
        "journal": None,
        "commands": "commands/soak",
        "status": "soak/status",
        "health_interval_ms": 60_000,
    }
