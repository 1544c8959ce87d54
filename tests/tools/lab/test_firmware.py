import subprocess

import pytest

from tools.lab import micropython
from tools.lab.firmware import find_firmware


def test_the_firmware_runs_on_a_real_micropython() -> None:
    firmware, why_not = find_firmware()
    assert why_not is None
    assert firmware.vm.startswith("MicroPython 1.")


def test_without_micropython_it_runs_on_cpython_and_the_verdict_will_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def unavailable() -> None:
        raise micropython.MicroPythonUnavailable("no Debian mirror")

    monkeypatch.setattr(micropython, "find", unavailable)
    firmware, why_not = find_firmware()
    assert why_not == "no Debian mirror"
    assert firmware.vm.startswith("CPython 3.") and firmware.vm.endswith("(no MicroPython)")
    done = subprocess.run(firmware.command("no-such.json"), env=firmware.environment, capture_output=True, text=True)
    assert (done.returncode, "no-such.json" in done.stderr) == (2, True)
