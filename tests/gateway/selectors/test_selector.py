"""Selectors: which messages pass, what SQL says of the same conditions, and which texts are none."""

import json
import sqlite3

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.message import Message
from gateway.selectors import BadSelector, Selector
from wire.properties import CONTENT_TYPE, USER_PROPERTY

PACK = [
    {"bn": "garage/", "bt": 1_760_000_000, "n": "temperature", "v": 31.5},
    {"n": "humidity", "v": 20},
    {"n": "state", "vs": "open"},
    {"n": "door", "vb": True},
    {"n": "temperature", "v": 19, "t": 60},
    {"n": "humidity", "v": 80, "t": 60},
]


def message(payload: object = None, **user_properties: str) -> Message:
    content = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
    properties = {USER_PROPERTY: list(user_properties.items()), CONTENT_TYPE: "application/json"}
    return Message("plant/hall-2/climate", content, 2, True, properties, "meter-7", 0xC0FFEE, 41)


@pytest.mark.parametrize(
    ("text", "passes"),
    [
        ("region = 'north'", True),
        ("region = 'south'", False),
        ("region <> 'south'", True),
        ("region = 'NORTH'", False),
        ("REGION = 'north'", False),
        ("region IN ('south', 'north')", True),
        ("region NOT IN ('south', 'east')", True),
        ("region LIKE 'no%'", True),
        ("region LIKE '_orth'", True),
        ("region NOT LIKE '%h'", False),
        ("code LIKE '10!%' ESCAPE '!'", True),
        ("region LIKE '%o%t%'", True),
        ("level > 6 and level < 8", True),
        ("level BETWEEN 7 AND 9", True),
        ("level not between 1 and 5", True),
        ("level = 7", True),
        ("level = '7'", True),
        ("level = '7.0'", False),
        ("level * 2 + 1 = 15", True),
        ("-level < -6.5", True),
        ("level / 0 = 1", False),
        ("level IN (7, 8)", True),
        ("region > 3", False),
        ("NOT region > 3", False),
        ("unknown = 1", False),
        ("NOT unknown = 1", False),
        ("unknown IS NULL", True),
        ("region IS NOT NULL", True),
        ("unknown = 1 OR region = 'north'", True),
        ("unknown = 1 AND region = 'north'", False),
        ("alarm", True),
        ("NOT alarm", False),
        ("alarm = TRUE", True),
        ("alarm = 'true'", True),
        ("alarm AND (region = 'south' OR level = 7)", True),
        ("\"a b\" = 'c''d'", True),
        ("topic = 'plant/hall-2/climate'", True),
        ("topic.2 = 'hall-2'", True),
        ("topic.4 IS NULL", True),
        ("mqtt.qos = 2 AND mqtt.retain", True),
        ("mqtt.content_type = 'application/json'", True),
        ("id.origin = 'meter-7' AND id.seq > 40", True),
        ("TRUE", True),
        ("1e1 = 10 AND .5 = 0.5 AND 7. = 7", True),
    ],
)
def test_a_condition_on_properties_topic_and_identity_lets_a_message_pass_or_not(text: str, passes: bool) -> None:
    one = message(region="north", level="7", alarm="true", code="10%", **{"a b": "c'd"})
    assert Selector(text).passes(one) is passes


@pytest.mark.parametrize(
    ("text", "payload", "passes"),
    [
        ("json > 20", 21.5, True),
        ("json = 'on'", "on", True),
        ("json", True, True),
        ("json.value.temperature > 30", {"value": {"temperature": 31}}, True),
        ("json.values.1 = 2", {"values": [1, 2]}, True),
        ("json.values.2 IS NULL", {"values": [1, 2]}, True),
        ("json.value IS NULL", {"value": None}, True),
        ("json.value IS NULL", {"value": {"a": 1}}, True),
        ('json."out door" < 0', {"out door": -3}, True),
        ("json.alarm = TRUE", {"alarm": True}, True),
        ("json.alarm = 1", {"alarm": True}, False),
        ("json.unit = 'C' OR json.value > 1", {"value": 2}, True),
        ("json.value > 30", b"value=31", False),
        ("json.value > 30", b'{"value": 31, "x": "' + b"x" * 65_536 + b'"}', False),
        ("json.value > 30", b'{"value": ' + b"[" * 60_000, False),
        ("json.value = 1", {"value": 10**400}, False),
        ("reading.temperature > 30", PACK, True),
        ("reading.temperature > 32", PACK, False),
        ("reading.state = 'open' AND reading.door", PACK, True),
        ("reading.temperature > 30 AND reading.humidity > 50", PACK, False),
        ("reading.temperature < 20 AND reading.humidity > 50", PACK, True),
        ("reading.temperature IS NULL", {"temperature": 1}, True),
        ("reading.temperature > 30", [{"n": "temperature", "bv": 30, "v": 1.5}], True),
    ],
)
def test_a_condition_on_the_payload_lets_a_message_pass_or_not(text: str, payload: object, passes: bool) -> None:
    assert Selector(text).passes(message(payload)) is passes


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", "character 1: expected a field, a number, a text in single quotes, TRUE or FALSE, not the end"),
        ("region =", "character 9: expected a field, a number, a text in single quotes, TRUE or FALSE, not the end"),
        ("region = 'north", "character 10: the quote ' has no second one"),
        ("region == 'north'", "character 9: expected a field, a number, a text in single quotes, TRUE or FALSE, not ="),
        ("region = 'north' 'south'", "character 18: expected AND, OR or the end, not south"),
        ("region", None),
        ("'north'", "character 8: expected a comparison, not the end"),
        ("level + 1", "character 10: expected a comparison, not the end"),
        ("region > 'a'", "character 8: > compares numbers, not a text"),
        ("(level = 1", "character 11: expected ), not the end"),
        ("level NOT = 1", "character 11: expected BETWEEN, IN or LIKE, not ="),
        ("level IN ()", "character 11: expected a field, a number, a text in single quotes, TRUE or FALSE, not )"),
        ("region LIKE 7", "character 13: expected a pattern in single quotes, not 7"),
        ("region LIKE 'a!b' ESCAPE '!'", "character 13: ! in 'a!b' stands before neither %, _ nor itself"),
        ("region LIKE 'a' ESCAPE 'xy'", "character 13: expected one character behind ESCAPE, not 'xy'"),
        ("site.name = 'a'", "character 1: site.name begins with none of topic., json., reading., mqtt., id.; the name "
         "of a user property with a dot in it is written in double quotes"),
        ("topic.0 = 'a'", "character 1: expected the number of a level, such as topic.2, or topic alone"),
        ("mqtt.dup", "character 1: expected mqtt.qos or mqtt.retain or mqtt.content_type"),
        ("id = 1", "character 1: expected id.origin or id.seq"),
        ("reading > 1", "character 1: expected the name of a reading, such as reading.temperature"),
        ("level = 99999999999999999999", "character 9: the number 99999999999999999999 is too large"),
        ("level # 1", "character 7: unexpected '#'"),
        ("(" * 33 + "TRUE" + ")" * 33, "character 34: expected at most 32 parentheses, signs and NOTs within each "
         "other, not TRUE"),
        ("a = 1 OR " * 200, "1800 characters, expected 1024 at most"),
    ],
)  # fmt: skip
def test_a_text_that_is_no_selector_is_refused_with_its_place(text: str, error: str | None) -> None:
    if error is None:
        Selector(text)
        return
    with pytest.raises(BadSelector) as refused:
        Selector(text)
    assert str(refused.value) == error


def test_a_selector_as_long_as_can_be_is_evaluated() -> None:
    assert Selector(" OR ".join(["a=1"] * 140 + ["b=2"])).passes(message(b="2"))
    assert Selector("+".join(["1"] * 500) + "=500").passes(message())


def test_a_pattern_does_not_backtrack() -> None:
    text = "x" * 20_000
    assert not Selector(f"a LIKE '{'%x' * 100}%y'").passes(message(a=text))


# SQL says the same

NAMES = st.sampled_from(["a", "b", "c"])
LEAVES = st.one_of(
    st.builds("{} {} {}".format, NAMES, st.sampled_from(["=", "<>", "<", "<=", ">", ">="]), st.integers(-3, 3)),
    st.builds("{} {} {}".format, NAMES, st.sampled_from(["=", "<", ">"]), NAMES),
    st.builds("{} + {} * 2 - {} > 1".format, NAMES, NAMES, NAMES),
    st.builds("{} {}BETWEEN {} AND {}".format, NAMES, st.sampled_from(["", "NOT "]), st.integers(-2, 2), NAMES),
    st.builds("{} {}IN ({}, 2)".format, NAMES, st.sampled_from(["", "NOT "]), st.integers(-2, 2)),
    st.builds("{} IS {}NULL".format, NAMES, st.sampled_from(["", "NOT "])),
    st.builds("t {}LIKE '{}'".format, st.sampled_from(["", "NOT "]), st.text("xy%_", max_size=6)),
    st.builds("t {} 'xy'".format, st.sampled_from(["=", "<>"])),
)
CONDITIONS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.builds("({} AND {})".format, inner, inner),
        st.builds("({} OR {})".format, inner, inner),
        st.builds("NOT ({})".format, inner),
    ),
    max_leaves=8,
)
VALUES = st.none() | st.integers(-3, 3)


@settings(deadline=None)
@given(CONDITIONS, VALUES, VALUES, VALUES, st.none() | st.text("xy", max_size=6))
def test_a_message_passes_where_sqlite_selects_its_row(
    condition: str, a: int | None, b: int | None, c: int | None, t: str | None
) -> None:
    row = {"a": a, "b": b, "c": c, "t": t}
    with sqlite3.connect(":memory:") as database:
        database.execute("PRAGMA case_sensitive_like = ON")
        columns = "SELECT ? + 0 AS a, ? + 0 AS b, ? + 0 AS c, ? AS t"
        selected = database.execute(f"SELECT 1 FROM ({columns}) WHERE {condition}", tuple(row.values())).fetchall()
    known = {name: str(value) for name, value in row.items() if value is not None}
    assert Selector(condition).passes(message(**known)) is bool(selected)


WORDS = [
    *"abt()=<>,'\"+-*/.% ",
    "AND ",
    "OR ",
    "NOT ",
    "IN ",
    "LIKE ",
    "IS ",
    "NULL ",
    "json.a ",
    "1",
    "'x' ",
    "topic.",
]


@settings(deadline=None)
@given(st.lists(st.sampled_from(WORDS) | st.characters(), max_size=40).map("".join), st.binary(max_size=60))
def test_any_text_is_a_selector_or_refused_and_any_message_passes_or_not(text: str, payload: bytes) -> None:
    try:
        selector = Selector(text)
    except BadSelector:
        return
    assert selector.passes(message(payload, a="1", b="x")) in (True, False)
