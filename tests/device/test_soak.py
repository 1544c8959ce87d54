"""The heap stays flat however many messages go through."""

import json
import subprocess
from pathlib import Path

import pytest

from tools.micropython import MicroPython

PROGRAM = Path(__file__).parent / "programs" / "soak.py"
MESSAGES = 20_000


@pytest.mark.parametrize("qos", [1, 2])
def test_heap_in_use_does_not_grow_with_messages(qos: int, micropython: MicroPython) -> None:
    command = [*micropython.argv, "-X", "heapsize=512wk", str(PROGRAM), str(MESSAGES), str(qos)]
    done = subprocess.run(command, env=micropython.environment(), capture_output=True, text=True, check=True)
    used = json.loads(done.stdout)
    assert max(used[1:]) - used[0] < 2048
