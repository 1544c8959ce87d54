"""Runs a program of `programs/` on a simulated board, whose modules stand in for the real one's."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tools.cli.paths import source_root
from tools.lab.micropython import MicroPython

PROGRAMS = Path(__file__).parent / "programs"
BOARD = source_root() / "tools/lab/sim/boards"
HEAP = ["-X", "heapsize=256wk"]
TIMEOUT_S = 60


def run_on_board(vm: MicroPython | None, program: str, *arguments: str) -> Any:
    """What `programs/NAME.py` printed, as JSON; on CPython where there is no VM given."""
    path = f"{BOARD}:{source_root()}"
    environment = {**os.environ, "MICROPYPATH": f"{path}:.frozen", "PYTHONPATH": path}
    command = [*([*vm.argv, *HEAP] if vm else [sys.executable]), str(PROGRAMS / f"{program}.py"), *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S)
    assert done.returncode == 0, f"{program} {arguments}:\n{done.stdout}{done.stderr}"
    return json.loads(done.stdout)
