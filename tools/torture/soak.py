"""``holdfast torture soak``: messages without end through the firmware; the heap in use must not grow."""

import json
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Annotated

import typer

from tools.failure import fail, failing_on
from tools.micropython import MicroPythonUnavailable, find
from tools.paths import memory_folder
from tools.sim.mosquitto import Mosquitto, MosquittoUnavailable

PROGRAM = ["-m", "tools.torture.device_soak"]  # run as a file it would find this folder's `device` first
FAILURES = (MicroPythonUnavailable, MosquittoUnavailable, OSError)
HEAP = ["-X", "heapsize=512k"]
GROWTH_MAX = 256  # bytes: less than the least that a message could leave behind in a million


def soak(
    messages: Annotated[int, typer.Option(min=100, help="How many, of QoS 1 and 2 by turns.")] = 100_000,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object as the last line.")] = False,
) -> None:
    """Send messages through a real device's flash to mosquitto. Ends with 1 where its heap in use has grown."""
    started = time.monotonic()
    with failing_on(*FAILURES, command="torture soak"), tempfile.TemporaryDirectory(dir=memory_folder()) as folder:
        used = _soak(Path(folder), messages)
    growth = max(used) - used[0]
    seconds = round(time.monotonic() - started, 1)
    if as_json:
        print(json.dumps({"messages": messages, "heap_bytes": used, "growth_bytes": growth, "seconds": seconds}))
    else:
        looks = " ".join(str(one) for one in used)
        print(f"{messages} messages in {seconds} s; heap in use after each tenth: {looks}; growth {growth} bytes")
    if growth > GROWTH_MAX:
        raise typer.Exit(1)


def _soak(folder: Path, messages: int) -> list[int]:
    """The bytes in use after each tenth of the messages."""
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
        code, output = done.returncode, done.stdout + done.stderr
        fail("torture soak", f"the device ended with exit code {code}:\n{output}", exit_code=1)
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
