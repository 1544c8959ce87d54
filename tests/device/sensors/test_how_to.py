"""The page that says how to add a sensor: its driver and its chip run as they stand there."""

import pytest

from device.sensors.config import KINDS, load
from tests.device.sensors.simulated_board import run_on_board
from tools.cli.paths import source_root
from tools.lab.micropython import MicroPython

DOCS = source_root() / "docs"


def test_driver_of_the_page_measures_and_fails_in_words(micropython: MicroPython) -> None:
    for vm in (micropython, None):
        outcomes = run_on_board(vm, "how_to", str(DOCS / "how-to/add-a-sensor.md"))
        assert outcomes == [[["illuminance", "lx", 1000.0]], "too bright"]


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_every_kind_and_its_readings_are_documented(kind: str) -> None:
    _, _, section = (DOCS / "reference/device-config.md").read_text().partition("\n## Sensors\n")
    row = next(line for line in section.splitlines() if line.startswith(f"| `{kind}` |"))
    if kind != "host":
        assert all(f"`{metric}`" in row for metric in load(kind).METRICS)
    else:
        assert all(f"`{metric}`" in section for metric in load(kind).METRICS)
