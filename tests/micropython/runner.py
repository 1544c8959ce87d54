"""Runs a portable test program on the real VM.

A program is a file in `programs/`: it takes its arguments from sys.argv, prints what it found, and ends with an
uncaught exception when something does not hold.
"""

import subprocess
from pathlib import Path

from tools.micropython import MicroPython

PROGRAMS = Path(__file__).parent / "programs"
TIMEOUT_S = 120


def run_program(vm: MicroPython, name: str, *arguments: object, heap_kib: int = 4096) -> str:
    """What `programs/NAME.py` printed.

    Args:
        heap_kib: the heap's hard limit, in KiB of a 32-bit board (this machine's words are larger, and so is its
            heap).

    Raises AssertionError with the VM's output when the program fails.
    """
    command = [*vm.argv, "-X", f"heapsize={heap_kib}wk", str(PROGRAMS / f"{name}.py"), *map(str, arguments)]
    done = subprocess.run(command, env=vm.environment(), capture_output=True, text=True, timeout=TIMEOUT_S)
    assert done.returncode == 0, f"{name} {arguments} on MicroPython {vm.version}:\n{done.stdout}{done.stderr}"
    return done.stdout
