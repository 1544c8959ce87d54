"""The serial link meets its goals on a simulated line."""

from tools.lab.bench.link.command import measure


def test_simulated_line_is_used_as_well_as_asked_for(seed: int) -> None:
    figures = list(measure(seed, size=300_000, runs=3))
    assert [figure.name for figure in figures if not figure.holds] == []
    assert all(figure.ours < 1 for figure in figures if figure.unit == "share")
