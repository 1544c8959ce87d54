"""Which topic filters match a topic name, and which cover one another or overlap."""

from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from gateway.filters.filter_tree import FilterTree
from wire.topics import check_topic_filter, matches

LEVELS = ["a", "b", "", "$x"]
NAMES = [name for depth in (1, 2, 3, 4) for levels in product(LEVELS, repeat=depth) if (name := "/".join(levels))]

TEXTS = [*NAMES, ""]
"""The tree takes "" for a topic name, though MQTT does not: so "/#" matches it, and "/+/#" does not."""


def is_filter(levels: list[str]) -> bool:
    return "#" not in levels[:-1] and levels != [""]


FILTERS = st.lists(st.sampled_from([*LEVELS, "+", "#"]), min_size=1, max_size=3).filter(is_filter).map("/".join)


def covers(wide: str, narrow: str) -> bool:
    """By definition, as far as names of four levels tell."""
    if wide == "+/#" and narrow == "#":
        return False  # they match the same names, and only one of them covers the other
    return all(matches(wide, name) for name in TEXTS if matches(narrow, name))


@given(st.lists(FILTERS, max_size=25, unique=True), FILTERS)
def test_the_filters_that_cover_one_and_that_it_covers_are_found(others: list[str], one: str) -> None:
    check_topic_filter(one)
    tree: FilterTree[int] = FilterTree()
    for number, other in enumerate(others):
        tree.put(other, number)
    numbered = {other: number for number, other in enumerate(others) if other != one}
    assert dict(tree.covering(one)) == {other: number for other, number in numbered.items() if covers(other, one)}
    assert dict(tree.covered(one)) == {other: number for other, number in numbered.items() if covers(one, other)}


@given(st.lists(FILTERS, max_size=25, unique=True), FILTERS)
def test_the_filters_that_overlap_one_are_found_once(others: list[str], one: str) -> None:
    tree: FilterTree[int] = FilterTree()
    for number, other in enumerate(others):
        tree.put(other, number)
    found = list(tree.overlapping(one))
    overlap = {name for name in TEXTS if matches(one, name)}
    assert dict(found) == {
        other: number
        for number, other in enumerate(others)
        if other != one and any(matches(other, name) for name in overlap)
    }
    assert len(found) == len(dict(found))


@given(st.lists(st.tuples(FILTERS, st.booleans()), max_size=60), st.sampled_from(NAMES))
def test_the_filters_that_match_a_name_are_found_after_any_changes(steps: list[tuple[str, bool]], name: str) -> None:
    tree: FilterTree[int] = FilterTree()
    toy: dict[str, int] = {}
    for number, (topic_filter, is_put) in enumerate(steps):
        if is_put:
            tree.put(topic_filter, number)
            toy[topic_filter] = number
        elif toy.pop(topic_filter, None) is not None:
            tree.remove(topic_filter)
    found = tree.match(name)
    assert dict(found) == {topic_filter: number for topic_filter, number in toy.items() if matches(topic_filter, name)}
    assert len(found) == len(dict(found))


@given(st.lists(st.tuples(FILTERS, st.booleans()), max_size=60))
def test_a_tree_holds_what_was_put_and_not_removed(steps: list[tuple[str, bool]]) -> None:
    tree: FilterTree[int] = FilterTree()
    toy: dict[str, int] = {}
    for number, (topic_filter, is_put) in enumerate(steps):
        if is_put:
            tree.put(topic_filter, number)
            toy[topic_filter] = number
        elif toy.pop(topic_filter, None) is not None:
            tree.remove(topic_filter)
        assert (len(tree), dict(tree.items()), tree.get(topic_filter)) == (len(toy), toy, toy.get(topic_filter))


def test_a_filter_of_as_many_levels_as_a_packet_holds_is_found() -> None:
    tree: FilterTree[int] = FilterTree()
    deep = "/".join(["a"] * 32_000)
    tree.put(deep, 1)
    tree.put("a/#", 2)
    assert dict(tree.covering(deep)) == {"a/#": 2}
    tree.remove(deep)
    assert dict(tree.items()) == {"a/#": 2}
