"""The subscription tree finds the subscribers of matching filters after any additions and removals."""

import pickle

from hypothesis import given
from hypothesis import strategies as st

from gateway.subscriptions import SubscriptionTree
from wire.errors import WireError
from wire.topics import check_topic_filter, matches

LEVELS = st.sampled_from(["", "a", "b", "$x"])
TOPICS = st.lists(LEVELS, min_size=1, max_size=4).map("/".join).filter(bool)


def is_filter(text: str) -> bool:
    try:
        check_topic_filter(text)
    except WireError:
        return False
    return True


FILTERS = st.lists(LEVELS | st.sampled_from(["+", "#"]), min_size=1, max_size=4).map("/".join).filter(is_filter)
CHANGES = st.lists(st.tuples(st.booleans(), FILTERS, st.integers(0, 3)), max_size=40)


@given(changes=CHANGES, topics=st.lists(TOPICS, max_size=10))
def test_the_tree_agrees_with_matching_each_filter(changes: list[tuple[bool, str, int]], topics: list[str]) -> None:
    tree: SubscriptionTree[int] = SubscriptionTree()
    pairs: set[tuple[str, int]] = set()
    for adds, topic_filter, subscriber in changes:
        (tree.add if adds else tree.discard)(topic_filter, subscriber)
        (pairs.add if adds else pairs.discard)((topic_filter, subscriber))
    for topic in topics:
        found = [(topic_filter, one) for topic_filter, there in tree.match(topic) for one in there]
        assert sorted(found) == sorted(pair for pair in pairs if matches(pair[0], topic))


def test_a_name_of_thousands_of_levels_is_found_like_any_other() -> None:
    tree: SubscriptionTree[int] = SubscriptionTree()
    name = "/".join("a" * 20_000)
    tree.add(name, 1)
    tree.add(name[:-1] + "+", 2)
    tree.add(name[:-1] + "b", 3)
    tree.add(name + "/#", 4)
    assert sorted(one for _, there in tree.match(name) for one in there) == [1, 2, 4]


@given(changes=CHANGES)
def test_a_tree_that_all_subscribers_left_is_empty(changes: list[tuple[bool, str, int]]) -> None:
    tree: SubscriptionTree[int] = SubscriptionTree()
    for _, topic_filter, subscriber in changes:
        tree.add(topic_filter, subscriber)
    for _, topic_filter, subscriber in changes:
        tree.discard(topic_filter, subscriber)
    emptied, new = (len(pickle.dumps(one)) for one in (tree, SubscriptionTree[int]()))
    assert emptied <= new + len(pickle.dumps({})), "no node is left"
