"""Plain JSON, flattened."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloud.transforms.json_values import decode_json
from cloud.transforms.record import RECORDS_MAX, Message
from cloud.transforms.sender.forms import DEPTH_MAX
from tests.cloud.transforms.decoding import decode_one, devices, problem_of, times_us, values

KEYS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="."), min_size=1, max_size=6).map(
    lambda key: key + "~"  # no name that another form has
)
LEAVES = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(
    LEAVES | st.text(st.characters(exclude_categories=["Cs"]), max_size=9),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=20,
)


def leaves(value: Any, path: str = "") -> dict[str, Any]:
    """Returns the values by the keys that lead to them: a model of the decoder."""
    if isinstance(value, dict | list):
        pairs = value.items() if isinstance(value, dict) else enumerate(value)
        return {name: leaf for key, item in pairs for name, leaf in leaves(item, f"{path}{key}.").items()}
    return {} if value is None else {path.removesuffix("."): value}


def test_keys_that_lead_to_a_value_are_its_name() -> None:
    records = decode_one("a/b", '{"x":{"y":[1,{"z":"on"}]},"ok":true,"no":null,"empty":{},"none":[]}')
    assert values(records) == {"x.y.0": 1.0, "x.y.1.z": "on", "ok": True}
    assert devices(records) == {"a/b"}


@given(st.dictionaries(KEYS.map(lambda key: "k" + key), VALUES, max_size=5))
def test_every_value_is_a_record_and_there_are_no_others(value: dict[str, Any]) -> None:
    expected = leaves(value)
    message = Message("t", None, json.dumps(value).encode())
    if not expected:
        assert decode_json(message) == []
    elif "" not in expected:
        assert values(decode_json(message)) == expected


@pytest.mark.parametrize("field", ["Time", "time", "timestamp", "ts", "last_seen", "received_at"])
@pytest.mark.parametrize(
    ("moment", "time_us"),
    [
        (1_773_500_966, 1_773_500_966_000_000),
        (1_773_500_966.5, 1_773_500_966_500_000),
        (1_773_500_966_250, 1_773_500_966_250_000),
        (1_773_500_966_250_125, 1_773_500_966_250_125),
        (1_773_500_966_250_125_000, 1_773_500_966_250_125),
        ("2026-03-14T15:09:26Z", 1_773_500_966_000_000),
        ("2026-03-14T15:09:26.250125999Z", 1_773_500_966_250_125),
        ("2026-03-14 16:09:26+0100", 1_773_500_966_000_000),
    ],
)
def test_a_field_that_tells_the_time_is_the_time_of_all_values(field: str, moment: Any, time_us: int) -> None:
    records = decode_one("t", json.dumps({field: moment, "x": 1, "y": {"time": 5}}))
    assert times_us(records) == {time_us}
    assert values(records) == {"x": 1.0, "y.time": 5.0}


@pytest.mark.parametrize("moment", ["2026-03-14T15:09:26", "2026-03-14", "soon", 12.5, -1, True, 1e20, 2**28 - 1, "1"])
def test_what_is_no_time_in_utc_stays_a_value(moment: Any) -> None:
    records = decode_one("t", json.dumps({"time": moment, "x": 1}))
    assert times_us(records) == {None}
    assert values(records) == {"time": moment, "x": 1.0}


def test_an_array_is_a_pack_of_senml_only_if_a_record_has_a_name() -> None:
    assert values(decode_one("t", '[{"n":"a","v":1}]')) == {"a": 1.0}
    assert values(decode_one("t", '[{"temperature":21.5},{"temperature":22}]')) == {
        "0.temperature": 21.5,
        "1.temperature": 22.0,
    }
    assert problem_of("t", '[{"n":"a","v":"21.5"}]') == "Expected `float`, got `str` - at `$[0].v`"


def test_scalars_of_json_are_values_of_the_topic() -> None:
    assert values(decode_one("a/b", '"closed"')) == {"b": "closed"}
    assert values(decode_one("a/b", "true", "application/json")) == {"b": True}
    assert decode_one("a/b", "null", "application/json") == []


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        ('{"a":1', "it is not JSON: Input data was truncated"),
        ('{"a":1}x', "it is not JSON: JSON is malformed"),
        ('{"a":NaN}', "it is not JSON"),
        ('{"a":1e999}', "it is not JSON: Number out of range"),
        ('{"a":1' + "0" * 400 + "}", "a number is beyond what a double carries"),
        ('{"a":"\\ud800"}', "it is not JSON"),
        ('{"":1}', "a value has no name"),
        ('{"a.b":1,"a":{"b":2}}', "two values have the same name"),
        ("[" * (DEPTH_MAX + 1) + "1" + "]" * (DEPTH_MAX + 1), f"nested deeper than {DEPTH_MAX}"),
        ("[" * 100_000 + "]" * 100_000, ""),
        (f"[{'0,' * RECORDS_MAX}0]", f"it resolves to more than {RECORDS_MAX} records"),
        (json.dumps({"k" * 10_000: [0] * 10_000}), "bytes, far more than its size"),
    ],
)
def test_other_payloads_are_refused_with_a_reason(payload: str, reason: str) -> None:
    assert reason in problem_of("t", payload)


def test_nesting_up_to_the_bound_is_decoded() -> None:
    assert len(decode_one("t", "[" * DEPTH_MAX + "1" + "]" * DEPTH_MAX)) == 1
