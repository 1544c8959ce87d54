"""The benchmarks of networks: what they count is what there was."""

import os
from pathlib import Path

import pytest

from gateway.message import Message
from gateway.selectors import parse_selector
from tools.lab.bench.network import rates

needs_cores = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="the benchmarks need two cores")


@needs_cores
def test_links_routes_and_bridges_are_measured_in_turns(tmp_path: Path) -> None:
    selectors = list(rates.selectors(tmp_path / "selectors", 0.4))
    (follow,) = rates.follow(tmp_path / "follow", 0.4)
    assert [figure.bar for figure in [*selectors, follow]] == [None] * 3  # so short a run cannot be judged
    assert all(figure.ours > 100 and (figure.theirs or 0) > 100 for figure in [*selectors, follow])


def test_a_rate_has_a_goal_only_where_it_is_measured_long_enough() -> None:
    assert (rates.goal(8.0, 100.0), rates.goal(0.8, 100.0)) == (100.0, None)


@pytest.mark.parametrize("kind", ["property", "json"])
def test_of_ten_orders_one_passes_the_selector_and_all_are_as_long(kind: str) -> None:
    orders = [rates.Orders.order(kind, number) for number in range(1, 101)]
    selector = parse_selector(rates.SELECTORS[kind])
    passing = [selector.passes(Message(one.topic, one.payload, properties=one.properties or {})) for one in orders]
    assert passing == [number % 10 == 0 for number in range(1, 101)]
    assert len({len(one.payload) for one in orders}) == 1
