"""The names that a filter matches are found among names in order."""

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.filters import sorted_names
from gateway.filters.sorted_names import SortedNames
from tests.gateway.filters.test_filter_tree import FILTERS
from wire.topics import matches

# Characters on both sides of "/" and of "$" in the order of names.
NAMES = st.lists(st.sampled_from(["a", "b", "a-", "a0", "", "$x", "!"]), min_size=1, max_size=4).map("/".join)


@pytest.fixture(autouse=True, scope="module")
def small_blocks() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sorted_names, "BLOCK_MAX", 3)
        yield


@given(st.lists(NAMES.filter(bool), max_size=80), st.lists(FILTERS, min_size=1, max_size=5))
def test_each_name_that_a_filter_matches_is_found_once_after_any_changes(steps: list[str], filters: list[str]) -> None:
    names, toy = SortedNames(), set[str]()
    for name in steps:  # a name that comes again is removed
        (names.remove if name in toy else names.add)(name)
        toy ^= {name}
    for topic_filter in filters:
        assert sorted(names.matching(topic_filter)) == sorted(name for name in toy if matches(topic_filter, name))
