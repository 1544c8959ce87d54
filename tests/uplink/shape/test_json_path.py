"""Paths in JSON payloads: what they lead to, and which texts are none."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from uplink.shape.json_path import MISSING, elements_of, find, parse_path


@pytest.mark.parametrize("text", ["", "a..b", ".a", "$.a", "a b", "a[0]"])
def test_a_text_that_is_no_path_is_refused_in_words(text: str) -> None:
    with pytest.raises(ValueError, match="expected names joined by dots"):
        parse_path(text)


@pytest.mark.parametrize(
    ("text", "found"),
    [("$", {"a": [1, {"b": 2}]}), ("a", [1, {"b": 2}]), ("a.0", 1), ("a.1.b", 2), ("a.2", MISSING), ("c", MISSING)],
)
def test_a_path_leads_to_a_field(text: str, found: object) -> None:
    assert find({"a": [1, {"b": 2}]}, parse_path(text)) == found


@pytest.mark.parametrize("payload", [b"", b"21,5", b"\xff\x00", b"{", b"[" * 100_000, b"NaN", b'{"a": \x01}'])
def test_a_payload_that_is_not_json_has_no_readings(payload: bytes) -> None:
    assert elements_of(payload) is None


names = st.text("abcxyz_019", min_size=1, max_size=3)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=10,
)


@given(values)
def test_any_json_payload_is_read_as_it_was_written(value: object) -> None:
    assert elements_of(json.dumps(value).encode()) == (value if isinstance(value, list) else [value])
