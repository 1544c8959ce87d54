"""``holdfast lab torture sensors``: faulty chips and lines in front of the drivers of the sensors."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Annotated, Any

import typer

from tools.cli.paths import source_root
from tools.lab.result import JSON_OPTION, Judgement, end_judged, quick_option

BOARD = "tools/lab/sim/boards"


def sensors(
    transfers: Annotated[int, typer.Option(min=1, help="How many faulty samples to take.")] = 100_000,
    seed: Annotated[int, typer.Option(help="The number from which all chance is drawn.")] = 1,
    quick: Annotated[bool, quick_option(transfers=20_000)] = False,
    as_json: Annotated[bool, JSON_OPTION] = False,
) -> None:
    """Sample simulated sensors with the faults of their kind: wrong bits, empty frames, frames of other chips.

    Ends with 1 if a driver gives a value that its chip cannot measure, or another one than the chip sent.
    """
    start = time.monotonic()
    found = run(transfers, seed)
    violations = found.pop("violations")
    judgement = Judgement(not violations, seed, violations=violations, more=found)
    lines = _lines(found, violations)
    end_judged("torture", "sensors", judgement, time.monotonic() - start, lines, as_json)


def run(transfers: int, seed: int) -> dict[str, Any]:
    """What `tools.lab.torture.sensors.run` prints, in a process of its own, because its modules replace a board's."""
    path = f"{source_root() / BOARD}:{source_root()}"
    command = [sys.executable, "-m", "tools.lab.torture.sensors.run", str(transfers), str(seed)]
    done = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": path}, stdout=subprocess.PIPE, text=True, check=True
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _lines(found: dict[str, Any], violations: list[str]) -> Iterator[str]:
    for name in ("transfers", "readings", "errors"):
        yield f"{name}: {found[name]:,}"
    for name, count in found["faults"].items():
        yield f"  {name}: {count:,}"
    yield f"violations: {len(violations)}"
    for violation in violations:
        yield f"  {violation}"
