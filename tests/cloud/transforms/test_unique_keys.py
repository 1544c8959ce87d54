"""A key that an object has twice is refused by every decoder: no value vanishes."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloud.transforms.decode import decode_payloads
from cloud.transforms.record import Undecodable
from cloud.transforms.sender.unique_keys import check_unique
from tests.cloud.transforms.decoding import problem_of

TEXTS = st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from(':"\\'), max_size=6)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=15,
)


@pytest.mark.parametrize(
    ("payload", "content_type"),
    [
        ('{"t":1,"t":2}', None),
        ('{"t":1,"t":1}', "application/json"),
        ('{"a":{"b":[{"t":1,"t":2}]}}', None),
        ('{"t":1,"\\u0074":2}', None),
        ('{"t":null,"t":2}', None),
        ('{"a:b":"x:y","t":{},"t":2}', None),
        ('[{"n":"t","v":1,"v":2}]', "application/senml+json"),
        ('[{"n":"t","n":"u","v":2}]', None),
        ('[{"bn":"a:","n":"t","v":1},{"n":"t","t":1,"t":-1,"v":2}]', "application/senml+json"),
        ('[{"n":"t","vs":"a:b","vs":"","u":"x"}]', "application/senml+json"),
        ('[{"bn":"a:b:","bn":"a:","n":"t","v":1}]', "application/json"),
        ('[{"n":"t","v":1,"x":1,"x":2}]', "application/senml+json"),
        ('[{"n":"t","v":1,"boot":1,"boot":2,"up":5}]', "application/senml+json"),
    ],
)
def test_key_twice_is_refused_by_every_decoder(payload: str, content_type: str | None) -> None:
    assert "twice" in problem_of("t", payload, content_type)


@pytest.mark.parametrize("payload", ['[{"n":"t","v":1,"v":2}]', '[{"n":"t","v":1,"t":0,"t":5}]'])
def test_key_twice_is_refused_beside_plain_packs(payload: str) -> None:
    packs = [payload.encode(), b'[{"bn":"a:","n":"x:y","vs":"::","t":0},{"n":"b","v":1}]']
    refused, plain = decode_payloads(packs, ["t", "t"], ["application/senml+json"] * 2).to_pylist()
    assert "twice" in refused["problem"] and plain["problem"] is None


@given(VALUES, st.booleans(), st.sampled_from([None, 1]))
def test_json_without_a_key_twice_is_not_refused(value: Any, ascii_only: bool, indent: int | None) -> None:
    check_unique(json.dumps(value, ensure_ascii=ascii_only, indent=indent).encode(), value)


@given(st.dictionaries(TEXTS, VALUES, min_size=1, max_size=4), st.data())
def test_json_with_a_key_twice_is_refused(fields: dict[str, Any], data: st.DataObject) -> None:
    again = data.draw(st.sampled_from(sorted(fields)))
    parts = [*fields.items(), (again, data.draw(VALUES))]
    text = ",".join(f"{json.dumps(key, ensure_ascii=False)}:{json.dumps(item)}" for key, item in parts)
    payload = f'[{{"a":{{{text}}}}}]'.encode()
    with pytest.raises(Undecodable, match="twice"):
        check_unique(payload, json.loads(payload))
