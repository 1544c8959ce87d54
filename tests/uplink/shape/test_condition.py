"""Conditions on JSON payloads: what fulfils them, and which texts are no condition."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from uplink.shape.condition import MISSING, OPERATORS, elements_of, find, parse_condition, parse_path

PACK = b'[{"bn":"garage/","n":"temperature","v":31.5},{"n":"humidity","v":40},{"n":"state","vs":"open"}]'


@pytest.mark.parametrize(
    ("text", "payload", "fits"),
    [
        ("value > 30", b'{"value": 31}', True),
        ("value > 30", b'{"value": 30}', False),
        ("value >= 30", b'{"value": 30.0}', True),
        ("value != 30", b'{"value": 31}', True),
        ("value.temperature<=-1.5e1", b'{"value": {"temperature": -15}}', True),
        ("values.1 == 2", b'{"values": [1, 2]}', True),
        ("values.2 == 2", b'{"values": [1, 2]}', False),
        ('unit == "C"', b'{"unit": "C"}', True),
        ('unit == "a b = c"', b'{"unit": "a b = c"}', True),
        ('at >= "2026-11-23"', b'{"at": "2026-11-23T18:00:00Z"}', True),
        ("alarm == true", b'{"alarm": true}', True),
        ("alarm == 1", b'{"alarm": true}', False),
        ("alarm != 1", b'{"alarm": true}', True),
        ("alarm == null", b'{"alarm": null}', True),
        ("value > 30", b'{"value": "31"}', False),
        ("value > 30", b'{"other": 31}', False),
        ("value != 30", b'{"other": 31}', False),
        ("$ > 20", b" 21.5\n", True),
        ("$ > 20", b"[1, 2, 21]", True),
        ('n == "temperature" and v > 30', PACK, True),
        ('n == "humidity" and v > 30', PACK, True),
        ('n == "humidity" and v > 40', PACK, False),
        ('n == "state" and vs == "open"', PACK, True),
        ("v > 30 and v < 32", PACK, True),
        ("value > 99999999999999999999999", b'{"value": 1e300}', True),
    ],
)
def test_a_payload_fulfils_a_condition_as_a_reader_expects(text: str, payload: bytes, fits: bool) -> None:
    elements = elements_of(payload)
    assert elements is not None and parse_condition(text).fits(elements) is fits


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "expected a comparison"),
        ("value", "expected a comparison"),
        ("value = 30", "expected a comparison"),
        ("value => 30", "expected a comparison"),
        ("value > 30 and", "expected a comparison"),
        ("value > 30 or value < 3", "expected `and`"),
        ("value > thirty", "expected a number, a text in double quotes"),
        ("value > 'thirty'", "expected a number, a text in double quotes"),
        ("value > [1]", "expected a number, a text in double quotes"),
        ('unit == "C', 'has no second "'),
        ("value > true", "compares numbers and texts"),
        ("a..b > 3", "expected names joined by dots"),
        (".a > 3", "expected names joined by dots"),
        ("$.a > 3", "expected names joined by dots"),
    ],
)
def test_a_text_that_is_no_condition_is_refused_in_words(text: str, what: str) -> None:
    with pytest.raises(ValueError, match=what):
        parse_condition(text)


@pytest.mark.parametrize("payload", [b"", b"21,5", b"\xff\x00", b"{", b"[" * 100_000, b"NaN", b'{"a": \x01}'])
def test_a_payload_that_is_not_json_has_no_readings(payload: bytes) -> None:
    assert elements_of(payload) is None


names = st.text("abcxyz_019", min_size=1, max_size=3)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=10,
)
literals = st.integers(-(10**9), 10**9) | st.floats(allow_nan=False, allow_infinity=False) | st.text()


@given(values, st.lists(names, min_size=1, max_size=3), st.sampled_from(sorted(OPERATORS)), literals)
def test_any_json_fulfils_a_comparison_or_its_opposite_if_it_has_the_field(
    value: object, path: list[str], operator: str, literal: object
) -> None:
    opposite = {"==": "!=", "!=": "==", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}[operator]
    texts = [f"{'.'.join(path)} {one} {json.dumps(literal)}" for one in (operator, opposite)]
    fulfilled = sum(parse_condition(text).fits([value]) for text in texts)
    found = find(value, parse_path(".".join(path)))
    if found is MISSING:
        assert fulfilled == 0
    elif type(found) is type(literal) or {type(found), type(literal)} == {int, float}:
        assert fulfilled == 1
    else:
        assert fulfilled == (operator in ("==", "!="))


@given(values)
def test_any_json_payload_is_read_as_it_was_written(value: object) -> None:
    assert elements_of(json.dumps(value).encode()) == (value if isinstance(value, list) else [value])
