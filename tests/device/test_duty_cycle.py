"""What a duty cycle costs: the page has the figures that the firmware's parts give."""

import pytest

from tests.device.duty_cycle import run, table
from tools.cli.paths import source_root

PAGE = source_root() / "docs/explanation/duty-cycle.md"


@pytest.mark.parametrize("connect_every", [36, pytest.param(144, marks=pytest.mark.long)])
def test_page_has_the_figures_that_are_measured(connect_every: int) -> None:
    cost = run(connect_every)
    for line in table({connect_every: cost}):
        assert f"{line}\n" in PAGE.read_text()
    assert cost.connections * connect_every == pytest.approx(cost.wakes, abs=connect_every)
