"""Sets of ids as ranges, beside Python's own sets."""

import random

import pytest

from flash_store.ids import Ids

HIGHEST = 40


def ids_of(ids: Ids) -> list[int]:
    return [one for first, last in ids.ranges() for one in range(first, last + 1)]


def test_ids_are_those_of_a_set_after_any_changes(seed: int) -> None:
    rng = random.Random(seed)
    ids, expected = Ids(), set()
    for _ in range(3000):
        first = rng.randrange(1, HIGHEST)
        last = rng.choice((first, min(HIGHEST, first + rng.randrange(6))))
        if rng.randrange(2):
            ids.add(first, last)
            expected |= set(range(first, last + 1))
        else:
            ids.remove(first, last)
            expected -= set(range(first, last + 1))
        assert ids_of(ids) == sorted(expected)
        assert len(ids) == len(expected)
        assert ids.first() == min(expected, default=0)
        one = rng.randrange(HIGHEST + 2)
        assert (one in ids) == (one in expected)
        assert ids.next(one) == min((other for other in expected if other > one), default=None)
        assert ids.count_up_to(one) == len([other for other in expected if other <= one])


def test_neighbours_are_one_range() -> None:
    ids = Ids()
    for one in [*range(100, 200), *range(50, 100), 201]:
        ids.add(one)
    assert list(ids.ranges()) == [(50, 199), (201, 201)]
    ids.add(200)
    assert list(ids.ranges()) == [(50, 201)]


@pytest.mark.parametrize("highest", [0xFFFFFFFE])
def test_ids_reach_as_far_as_the_format(highest: int) -> None:
    ids = Ids()
    ids.add(highest)
    ids.add(1)
    assert ids_of(ids) == [1, highest]
    assert ids.next(highest) is None
