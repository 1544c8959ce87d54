"""Names and wildcards of other systems, by tables and against a model of what they match."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from uplink.foreign.names import AMQP, NATS, Dialect, Names, NoName
from uplink.foreign.wildcards import overlaps, patterns
from wire.topics import matches

DIALECTS = [NATS, AMQP]
LEVELS = st.sampled_from(["a", "b", "b.c", "$x"])
TOPICS = st.lists(LEVELS, min_size=1, max_size=4).map("/".join)
FILTERS = st.lists(st.one_of(LEVELS, st.just("+")), min_size=1, max_size=3).flatmap(
    lambda levels: st.sampled_from(["/".join(levels), "/".join([*levels, "#"])])
)
ANY_FILTER = st.one_of(FILTERS, st.just("#"))


def model(dialect: Dialect, pattern: str, name: str) -> bool:
    """Whether a pattern of the other system matches a name, straight from its documentation."""
    tokens, levels = pattern.split("."), name.split(".")
    if tokens[-1] == dialect.rest:
        begin = tokens[:-1]
        if len(levels) < len(begin) + dialect.rest_needs_one:
            return False
        tokens, levels = begin, levels[: len(begin)]
    return len(tokens) == len(levels) and all(
        token in (dialect.one, level) for token, level in zip(tokens, levels, strict=True)
    )


@pytest.mark.parametrize(
    ("topic", "name"),
    [("a", "a"), ("a/b", "a.b"), ("a.b/c", "a/b.c"), ("site 1".replace(" ", "-"), "site-1"), ("é/ü", "é.ü")],
)
def test_dots_and_slashes_are_swapped_one_to_one(topic: str, name: str) -> None:
    names = Names(NATS, "project")
    assert names.name_of(topic) == f"project.{name}"
    assert names.topic_of(f"project.{name}") == topic


@pytest.mark.parametrize(
    ("topic", "why"),
    [
        ("a//b", "empty level"),
        ("/a", "empty level"),
        ("a/", "empty level"),
        ("a b", "blank"),
        ("a/\t", "blank"),
        ("a/*", "wildcard"),
        ("a>/b", "wildcard"),
        ("$JS/API", "reserved"),
        ("_INBOX/x", "reserved"),
    ],
)
def test_a_topic_name_without_a_name_there_is_refused_with_the_reason(topic: str, why: str) -> None:
    with pytest.raises(NoName, match=why):
        Names(NATS).name_of(topic)


def test_below_a_project_no_name_is_reserved() -> None:
    assert Names(NATS, "p").name_of("$JS/API") == "p.$JS.API"


@pytest.mark.parametrize(("name", "why"), [("a.b+", "wildcard"), ("a.#", "wildcard"), ("other.a", "project")])
def test_a_name_that_is_no_topic_name_is_refused_with_the_reason(name: str, why: str) -> None:
    with pytest.raises(NoName, match=why):
        Names(NATS, "" if why == "wildcard" else "project").topic_of(name)


@pytest.mark.parametrize(
    ("topic_filter", "found"),
    [
        ("a/b", ["a.b"]),
        ("a/+/b", ["a.*.b"]),
        ("a/#", ["a", "a.>"]),
        ("+/#", ["*", "*.>"]),
        ("#", [">"]),
        ("a.b/#", ["a/b", "a/b.>"]),
    ],
)
def test_topic_filters_become_subjects(topic_filter: str, found: list[str]) -> None:
    assert Names(NATS).patterns_of(topic_filter) == found
    assert Names(NATS, "p").patterns_of(topic_filter) == [f"p.{one}" for one in found]


@pytest.mark.parametrize("topic_filter", ["a//b", "a/*", "a b/#", ">"])
def test_a_topic_filter_without_a_pattern_is_refused(topic_filter: str) -> None:
    with pytest.raises(NoName, match=re.escape(topic_filter)):
        Names(NATS).patterns_of(topic_filter)


@pytest.mark.parametrize("dialect", DIALECTS)
@given(topic_filter=ANY_FILTER, topic=TOPICS)
def test_patterns_match_what_the_filter_matches_and_each_name_once(
    dialect: Dialect, topic_filter: str, topic: str
) -> None:
    names = Names(dialect, "p")
    found = [one for one in names.patterns_of(topic_filter) if model(dialect, one, names.name_of(topic))]
    if matches(topic_filter, topic):
        assert len(found) == 1
    elif not topic.startswith("$"):  # a wildcard at the first level matches these there; they are dropped on arrival
        assert found == []


@given(filters=st.lists(ANY_FILTER, min_size=1, max_size=5), topic=TOPICS)
def test_a_cover_brings_each_wanted_name_once(filters: list[str], topic: str) -> None:
    names = Names(NATS, "p")
    found = [one for one in patterns(filters, "cover", names) if model(NATS, one, names.name_of(topic))]
    assert len(found) <= 1
    if any(matches(one, topic) for one in filters):
        assert len(found) == 1


@given(filters=st.lists(ANY_FILTER, min_size=2, max_size=4, unique=True), topic=TOPICS)
def test_filters_without_an_overlap_never_match_the_same_name(filters: list[str], topic: str) -> None:
    if not list(overlaps(filters)):
        assert sum(matches(one, topic) for one in filters) <= 1


def test_an_overlap_names_both_filters() -> None:
    assert list(overlaps(["a/#", "b", "a/+"])) == [(2, "a/#", "a/+")]
