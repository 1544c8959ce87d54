"""The tools of the boards' makers, run as a person runs them."""

import os
import subprocess
import sys
from importlib.util import find_spec

import pytest

NEEDS_BOARD_TOOLS = pytest.mark.skipif(
    find_spec("esptool") is None or find_spec("mpremote") is None, reason="needs the extra flash"
)
DEADLINE_S = 120
Done = subprocess.CompletedProcess[str]


def esptool(port: str, *arguments: str, code: int | None = 0, deadline_s: float = DEADLINE_S) -> Done:
    """Runs esptool on a port, and checks its exit code unless `code` is None."""
    return _run(["esptool", "--port", port, *arguments], code, deadline_s)


def mpremote(port: str, *arguments: str, code: int | None = 0, deadline_s: float = DEADLINE_S) -> Done:
    """Runs mpremote on a port, and checks its exit code unless `code` is None."""
    return _run(["mpremote", "connect", port, *arguments], code, deadline_s)


def _run(command: list[str], code: int | None, deadline_s: float) -> Done:
    environment = {**os.environ, "COLUMNS": "300", "NO_COLOR": "1"}
    done = subprocess.run(
        [sys.executable, "-m", *command], capture_output=True, text=True, timeout=deadline_s, env=environment
    )
    if code is not None:
        assert done.returncode == code, done.stdout + done.stderr
    return done
