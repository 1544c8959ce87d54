"""Where something may be for a consumer: nothing is forgotten, however much there is."""

import random

import pytest

from gateway.store.consumers.delivery import RangeSet


def walk(seed: int, steps: int) -> tuple[set[int], set[int]]:
    """A consumer that falls behind and catches up: ranges added and ranges found."""
    dice = random.Random(seed)
    found, there = RangeSet(), set[int]()
    met: set[int] = set()
    head = position = 0
    for _ in range(steps):
        first = head + dice.choice((1, 1, 2, 50))
        head = first + dice.choice((0, 0, 3))
        found.add(first, head)
        there.update(range(first, head + 1))
        while dice.random() < 0.45 and (wanted := found.behind(position)) is not None:
            assert wanted > position
            met.add(wanted)
            position = wanted
    while (wanted := found.behind(position)) is not None:
        met.add(wanted)
        position = wanted
    return there, met


def test_exactly_what_was_added_is_met_where_it_is_little(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RangeSet, "MOST", 1000)
    there, met = walk(seed, 300)
    assert met == there


def test_nothing_is_passed_over_where_it_is_much(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RangeSet, "MOST", 5)
    there, met = walk(seed, 300)
    assert there < met
