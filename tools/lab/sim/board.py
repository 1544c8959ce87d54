"""A simulated board with power: it starts its program, and starts it again after a reset, a watchdog's timeout or a
sleep.

`python -m tools.lab.sim.board FOLDER PLATFORM PROGRAM`. The folder is the chip: flash, the memory that lasts
through a sleep, and the world around it: `wifi` says whether there is a Wi-Fi, `uart1` names the terminal at UART 1.
With a file `hurry` sleeps take no time; a folder `lib` has what was built for the board. To cut the power is to kill
this process.
"""

import ctypes
import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

from tools.cli.paths import source_root
from tools.lab.micropython import MicroPython, find
from tools.lab.sim.boards._chip import DEEPSLEEP_RESET, HARD_RESET, PWRON_RESET, RESETS, SLEEPS, WDT_RESET

SHIM = source_root() / "tools/lab/sim/boards"
HEAP = ["-X", "heapsize=256wk"]  # the simulated modules use it too
PR_SET_PDEATHSIG = 1


def run(vm: MicroPython, folder: Path, platform: str, program: str) -> int:
    """Powers the board on, until its program ends by itself; returns the program's exit code."""
    (folder / "rtc").unlink(missing_ok=True)
    cause = PWRON_RESET
    command = [*vm.argv, *HEAP, str(SHIM / "power_on.py"), platform, program]
    environment = {
        **vm.environment(),
        "HOLDFAST_BOARD": str(folder),
        "MICROPYPATH": f"{SHIM}:{folder / 'lib' if (folder / 'lib').is_dir() else source_root()}:.frozen",
    }
    die_with_the_power = partial(_die_with, os.getpid())
    while True:
        (folder / "cause").write_text(str(cause))
        code = subprocess.run(command, env=environment, preexec_fn=die_with_the_power).returncode
        if code == -signal.SIGALRM:
            cause = WDT_RESET
        elif code == RESETS:
            cause = HARD_RESET
        elif code == SLEEPS:
            if not (folder / "hurry").exists():
                time.sleep(int((folder / "sleep_ms").read_text()) / 1000)
            cause = DEEPSLEEP_RESET
        else:
            return code


def _die_with(board: int) -> None:
    """The kernel kills this process when the board's process ends, even if that has ended before it is asked to."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != board:
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    os.chdir(sys.argv[1])
    sys.exit(run(find(), Path(sys.argv[1]), sys.argv[2], sys.argv[3]))
