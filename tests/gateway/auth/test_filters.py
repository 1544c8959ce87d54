"""Topic filters as sets, held against all short topic names."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from gateway.auth.filters import common, holds, split, takes
from wire.topics import matches

LEVELS = ["", "a", "b", "$x"]
NAMES = [
    names for length in (1, 2, 3, 4) for names in itertools.product([*LEVELS, "z"], repeat=length) if names != ("",)
]
FILTERS = st.lists(st.sampled_from([*LEVELS, "+"]), max_size=3).flatmap(
    lambda head: st.sampled_from(["/".join(head) or "+", "/".join([*head, "#"])])
)


@given(FILTERS)
def test_a_filter_takes_what_the_standard_says(one: str) -> None:
    assert [name for name in NAMES if takes(split(one), name) != matches(one, "/".join(name))] == []


@given(FILTERS, FILTERS)
def test_what_two_filters_have_in_common_is_what_both_take(one: str, other: str) -> None:
    both = common(split(one), split(other))
    found = {name for name in NAMES if both is not None and takes(both, name)}
    assert found == {name for name in NAMES if matches(one, "/".join(name)) and matches(other, "/".join(name))}


@given(FILTERS, FILTERS)
def test_a_filter_holds_another_that_takes_nothing_else(one: str, other: str) -> None:
    inner = {name for name in NAMES if matches(other, "/".join(name))}
    assert holds(split(one), split(other)) == (inner <= {name for name in NAMES if matches(one, "/".join(name))})
