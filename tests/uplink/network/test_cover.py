"""The cover of an interest at an ordinary broker, as the interest changes."""

from hypothesis import given
from hypothesis import strategies as st

from gateway.network.disjoint import disjoint
from tests.gateway.filters.test_filter_tree import FILTERS
from uplink.proxy.cover import Cover

SETS = st.sets(FILTERS, max_size=8)


@given(SETS, st.lists(SETS, max_size=4))
def test_after_each_change_the_cover_is_as_if_it_were_made_anew_and_the_changes_add_up(
    first: set[str], changes: list[set[str]]
) -> None:
    cover, wanted = Cover(first), set(first)
    subscribed = set(cover.filters)
    assert subscribed == disjoint(first)
    for change in changes:
        added, removed = cover.change(sorted(change - wanted), sorted(change & wanted))
        wanted ^= change
        assert not subscribed & set(added) and set(removed) <= subscribed
        subscribed = subscribed.difference(removed) | set(added)
        assert subscribed == set(cover.filters) == disjoint(wanted)
