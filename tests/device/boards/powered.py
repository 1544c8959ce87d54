"""A simulated board as a process: to kill it is to cut the power."""

import sys
from pathlib import Path
from typing import Any

from tests.device.firmware import Firmware
from tools.lab.micropython import MicroPython

FLASHES = {"esp32": {"path": "holdfast", "sector_count": 16}, "rp2": {"path": "storage", "sector_count": 8}}
ADC = {"kind": "adc", "pin": 26, "full_scale_mv": 3300}
PLATFORMS = ("esp32", "rp2")


class Board(Firmware):
    """The firmware on a board whose chip is `folder`; `program` runs there instead, where it is given."""

    def __init__(
        self, platform: str, vm: MicroPython, folder: Path, broker: dict[str, Any], program: str = "", **change: Any
    ) -> None:
        settings = {"flash": FLASHES[platform], "sensors": [ADC], "clock": "gateway", "journal": None, **change}
        super().__init__(vm, folder, broker, **settings)
        self._folder = folder
        (folder / "main.py").write_text(program or self.argv[-1])  # an argument of the VM has 255 bytes at most
        run = "exec(open('main.py').read())"
        self.argv = [sys.executable, "-m", "tools.lab.sim.board", str(folder), platform, run]

    def wifi(self, state: str) -> None:
        """`up`, `down` or another state of `tools.lab.sim.boards.network`."""
        (self._folder / "wifi").write_text(state)
