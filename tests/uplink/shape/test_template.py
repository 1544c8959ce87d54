"""Topic names made of others."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from uplink.shape.template import parse_template


def name(template: str, topic: str) -> str:
    return parse_template(template).fill("site-1", "central").name(topic)


@pytest.mark.parametrize(
    ("template", "topic", "expected"),
    [
        ("{topic}", "a/b", "a/b"),
        ("plant/{gateway}/{topic}", "a/b", "plant/site-1/a/b"),
        ("{route}/{1}", "a/b", "central/a"),
        ("{2-}", "sensors/hall/1", "hall/1"),
        ("{2}/{1}/{3-}", "a/b/c/d", "b/a/c/d"),
        ("x{2}y", "a/b", "xby"),
        ("fixed", "a/b", "fixed"),
        ("{2-}", "a//b", "/b"),
        ("é/{1}", "ö", "é/ö"),
    ],
)
def test_a_name_is_made_of_the_levels_of_another(template: str, topic: str, expected: str) -> None:
    assert name(template, topic) == expected


@pytest.mark.parametrize(
    ("template", "topic", "what"),
    [
        ("{3}", "a/b", "'a/b' has no level 3"),
        ("{2-}", "a", "'a' has no level 2"),
        ("{2}", "a/", "a topic name is empty"),
        ("plant/{topic}", "a" * 65_530, "65536"),
    ],
)
def test_a_name_that_cannot_be_made_says_why(template: str, topic: str, what: str) -> None:
    with pytest.raises(ValueError, match=what):
        name(template, topic)


@pytest.mark.parametrize(
    ("template", "what"),
    [
        ("{0}", "{0} in '{0}', expected {topic}"),
        ("{tópic}", "expected {topic}"),
        ("{-2}", "expected {topic}"),
        ("{", "has a brace without the other one"),
        ("a}b", "has a brace without the other one"),
        ("{{topic}}", "has a brace without the other one"),
        ("a/#", "expected a topic name, which has no"),
        ("+/{topic}", "expected a topic name, which has no"),
    ],
)
def test_a_text_that_is_no_template_is_refused_in_words(template: str, what: str) -> None:
    with pytest.raises(ValueError, match=re.escape(what)):
        parse_template(template)


levels = st.text(st.characters(exclude_characters="/+#\0", exclude_categories=["Cs"]), min_size=1, max_size=8)


@given(st.lists(levels, min_size=1, max_size=6), st.integers(1, 6))
def test_a_prefix_is_added_and_levels_taken_away_as_in_a_toy(topic: list[str], first: int) -> None:
    stored = "/".join(topic)
    assert name("up/{gateway}/{topic}", stored) == f"up/site-1/{stored}"
    if first <= len(topic):
        assert name(f"{{{first}-}}", stored) == "/".join(topic[first - 1 :])
        assert name(f"{{{first}}}", stored) == topic[first - 1]
    else:
        with pytest.raises(ValueError, match=f"has no level {first}"):
            name(f"{{{first}}}", stored)
