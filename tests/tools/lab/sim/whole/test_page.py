"""The page about simulated boards: its programs, as they stand there, are boards that its commands reach."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.board_tools import NEEDS_BOARD_TOOLS, mpremote
from tools.cli.paths import source_root

pytestmark = NEEDS_BOARD_TOOLS
PAGE = (source_root() / "docs/explanation/simulated-boards.md").read_text()
DEADLINE_S = 100
NUMBER = "import machine, binascii; print(str(binascii.hexlify(machine.unique_id()), 'ascii'))"


def blocks(kind: str) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


@contextmanager
def running(program: str, folder: Path) -> Iterator[None]:
    """A person runs the program, and presses Enter at the end."""
    environment = {**os.environ, "PYTHONPATH": str(source_root()), "PYTHONUNBUFFERED": "1"}
    words = [sys.executable, "-c", program]
    with subprocess.Popen(
        words, cwd=folder, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline().endswith("until you press Enter\n")
        yield
        process.communicate("\n", timeout=DEADLINE_S)
    assert process.returncode == 0


def type_block(block: str, folder: Path) -> str:
    words = re.sub(r"\.venv/bin/(\w+)", rf"{sys.executable} -m \1", block)
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", words], cwd=folder, capture_output=True, text=True, timeout=DEADLINE_S
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_esp32_of_the_page_takes_what_esptool_writes_and_runs_it(tmp_path: Path) -> None:
    with running(blocks("python")[0], tmp_path):
        assert type_block(blocks("sh")[0], tmp_path).endswith("\nesp32\n")
        assert mpremote(str(tmp_path / "garage-1/port"), "exec", NUMBER).stdout == "246f28000001\n"


def test_pico_of_the_page_takes_a_uf2_file_and_runs_it(tmp_path: Path) -> None:
    with running(blocks("python")[1], tmp_path):
        assert type_block(blocks("sh")[1], tmp_path) == "rp2\n"
        assert mpremote(str(tmp_path / "attic-1/port"), "exec", NUMBER).stdout == "e6614103e7000002\n"
