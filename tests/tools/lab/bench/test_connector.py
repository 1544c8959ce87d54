"""Lines over kills of a gateway, and frames with flipped bits, as the bench measures them."""

from pathlib import Path

import pytest

from tools.lab.bench.connector import frames, lines, units
from tools.lab.bench.connector.command import measure


async def test_each_line_that_a_kill_has_cost_is_in_a_gap_and_none_is_stored_twice(tmp_path: Path, seed: int) -> None:
    found = await lines.run(tmp_path / "lines", seconds=2, kills=3, seed=seed)
    assert found.lost and (found.uncovered, found.twice) == (0, 0)
    assert found.stored + found.lost == found.sent


def test_no_frame_with_flipped_bits_is_taken_for_another_value(seed: int) -> None:
    corrupt, refused, wrong = frames.wrong_in(20_000, 1e-3, seed)
    assert corrupt > 5_000 and refused and wrong == 0


@pytest.mark.long
async def test_dead_units_delay_no_other_by_a_twentieth_of_the_interval(tmp_path: Path) -> None:
    assert await units.lateness(tmp_path / "late", 32, 8, 5.0, 20.0, 30.0) <= 0.05


@pytest.mark.long
def test_all_figures_are_measured(tmp_path: Path) -> None:
    named = [figure.name for figure in measure(tmp_path, 3, 3, 20_000, 1)]
    assert len(named) == len(set(named)) == 13
