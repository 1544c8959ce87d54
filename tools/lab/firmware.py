"""How the lab runs the devices' firmware: on a real MicroPython, or on CPython if there is none."""

import os
import platform
import sys
from typing import NamedTuple

from tools.cli.paths import source_root
from tools.lab import micropython


class Firmware(NamedTuple):
    """A command that runs the firmware with a configuration file, and what to call it in the verdict."""

    argv: list[str]
    environment: dict[str, str]
    vm: str

    def command(self, config: str) -> list[str]:
        return [*self.argv, "-c", f"import device.main; device.main.main({config!r})"]


def find_firmware() -> tuple[Firmware, str | None]:
    """Returns how to run the firmware and, if not on MicroPython, the reason."""
    try:
        vm = micropython.find()
    except micropython.MicroPythonUnavailable as error:
        environment = {**os.environ, "PYTHONPATH": str(source_root())}
        name = f"CPython {platform.python_version()} (no MicroPython)"
        return Firmware([sys.executable], environment, name), str(error)
    return Firmware(vm.argv, vm.environment(), f"MicroPython {vm.version}"), None
