"""A migration in a process that kills itself at its COUNT-th step outside of Python: ``COUNT OLD NEW [OLD NEW …]``."""

import sys
from pathlib import Path

from gateway.store.repair import Move, migrate
from tests.gateway.store.repair import repair_killed

if __name__ == "__main__":
    repair_killed.kill_at(int(sys.argv[1]))
    folders = [Path(one) for one in sys.argv[2:]]
    migrate([Move(str(number), *pair) for number, pair in enumerate(zip(folders[::2], folders[1::2], strict=True))])
    print(repair_killed.steps)
