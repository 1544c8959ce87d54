"""A repair in a process that kills itself at its COUNT-th step outside of Python: ``FOLDER COUNT``."""

import os
import signal
import sys
from pathlib import Path

from gateway.store.repair import repair

STEPS = ("open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "shutil.rmtree", "sqlite3.connect")
steps = 0


def kill_at(count: int) -> None:
    def note(event: str, _: object) -> None:
        global steps
        if event in STEPS:
            steps += 1
            if steps == count:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(note)


if __name__ == "__main__":
    kill_at(int(sys.argv[2]))
    repair(Path(sys.argv[1]), "gw", [])
    print(steps)
