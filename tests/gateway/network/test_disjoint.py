"""Filters for brokers that send a message once for each subscription."""

from hypothesis import given
from hypothesis import strategies as st

from gateway.filters.filter_tree import FilterTree
from gateway.network.disjoint import disjoint, join
from tests.gateway.filters.test_filter_tree import FILTERS, NAMES
from wire.topics import matches


def overlap(first: str, second: str) -> bool:
    """By definition; the empty name counts, although no message can have it: so ``+`` overlaps ``/#``."""
    return any(matches(first, name) and matches(second, name) for name in ["", *NAMES])


@given(st.lists(FILTERS, max_size=25, unique=True), FILTERS)
def test_the_filters_that_overlap_one_are_found(others: list[str], one: str) -> None:
    tree: FilterTree[bool] = FilterTree()
    for other in others:
        tree.put(other, True)
    found = [other for other, _ in tree.overlapping(one)]
    assert sorted(found) == sorted(other for other in others if other != one and overlap(other, one))


@given(st.lists(FILTERS, max_size=12))
def test_no_topic_name_matches_two_filters_and_each_that_was_wanted_matches_one(wanted: list[str]) -> None:
    found = disjoint(wanted)
    for name in NAMES:
        matching = [one for one in found if matches(one, name)]
        assert len(matching) <= 1
        assert matching or not any(matches(one, name) for one in wanted)


@given(st.lists(FILTERS, max_size=5, unique=True))
def test_filters_of_which_no_two_overlap_stay_as_they_are(wanted: list[str]) -> None:
    if not any(overlap(one, other) for one in wanted for other in wanted if one != other):
        assert disjoint(wanted) == set(wanted)


@given(FILTERS, FILTERS)
def test_the_join_of_two_filters_matches_what_either_matches(first: str, second: str) -> None:
    if overlap(first, second):
        joined = join(first, second)
        assert all(matches(joined, name) for name in NAMES if matches(first, name) or matches(second, name))
