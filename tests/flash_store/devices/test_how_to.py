"""The how-to page's programs run on simulated boards, the first time and the second."""

import re
import time
from pathlib import Path

import pytest

from tests.flash_store.devices.board import SMALL_CHIP
from tools.cli.flash.reader import read_store
from tools.cli.paths import source_root
from tools.lab.sim.spi_nor import W25Q

PAGE = source_root() / "docs/how-to/board-flash.md"
*PROGRAMS, COPY = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)


def make_boards(chip: W25Q) -> None:
    from esp32 import set_table
    from machine import connect
    from rp2 import STORAGE

    set_table(1 << 19, [(1, 6, 0x10000, 0x40000, "holdfast", False)])
    STORAGE[:] = b"\xff" * len(STORAGE)
    connect(chip, 1, 13)


@pytest.mark.parametrize("program", PROGRAMS, ids=["esp32", "rp2", "spi_nor"])
def test_the_pages_program_makes_a_store_finds_it_again_and_copies_it(
    program: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    chip = W25Q(SMALL_CHIP, 1 << 16)
    make_boards(chip)
    monkeypatch.setattr(time, "sleep_us", chip.wait_us, raising=False)  # MicroPython has it
    first: dict = {}
    exec(program, first)
    first["log"].append("topic", b"payload")
    second: dict = {}
    exec(program, second)
    assert [message[4] for message in second["log"].messages()] == [b"payload"]
    assert second["log"].epoch == first["log"].epoch
    exec(COPY.replace("/remote", str(tmp_path)), second)
    (message,) = read_store((tmp_path / "store.bin").read_bytes(), 4096).messages.values()
    assert message.payload == b"payload"
