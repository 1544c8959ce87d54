from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloud.transforms.decode import decode_payloads
from cloud.transforms.senml import NotSenml, resolve
from tests.cloud.messages import payload
from wire.bulk.column_batch import CONTENT_TYPE

payloads = st.none() | st.just(b"[") | st.integers(1, 9).map(lambda seq: payload("garage", seq))


@given(st.lists(payloads))
def test_column_has_the_records_or_the_problem_of_each_payload(given_payloads: list[bytes | None]) -> None:
    decoded = decode_payloads(given_payloads, ["t"] * len(given_payloads), [None] * len(given_payloads)).to_pylist()
    assert len(decoded) == len(given_payloads)
    for one, result in zip(given_payloads, decoded, strict=True):
        try:
            records = None if one is None else resolve(one)
        except NotSenml as refused:
            expected = str(refused)
            assert result == {"records": None, "problem": expected}
            continue
        assert result["problem"] is None
        assert (result["records"] is None) == (records is None)
        assert [record["value"] for record in result["records"] or []] == [record.value for record in records or []]


@pytest.mark.parametrize(
    ("content_type", "decodes"),
    [
        (None, True),
        ("", True),
        ("application/senml+json", True),
        ("Application/SenML+JSON; charset=utf-8", True),
        ("application/json", True),
        ("application/octet-stream", False),
    ],
)
def test_content_type_decides_whether_a_payload_is_decoded(content_type: str | None, decodes: bool) -> None:
    (result,) = decode_payloads([payload("garage", 1)], ["t"], [content_type]).to_pylist()
    assert (result["problem"] is None) == decodes
    assert decodes or repr(content_type) in result["problem"]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"hfb\x02", "a column batch that cannot be decoded: version 02, this decoder reads 01"),
        (b"hello", "a column batch that cannot be decoded: it does not begin with the letters hfb"),
    ],
)
def test_column_batch_that_landed_as_it_is_has_the_reason_as_its_problem(content: bytes, problem: str) -> None:
    (result,) = decode_payloads([content], ["t"], [CONTENT_TYPE]).to_pylist()
    assert result == {"records": None, "problem": problem}


def test_row_of_a_batch_whose_messages_have_landed_has_neither_records_nor_a_problem() -> None:
    (result,) = decode_payloads([b""], ["t"], [CONTENT_TYPE]).to_pylist()
    assert result == {"records": [], "problem": None}


def test_a_record_has_its_time_and_no_payload_has_no_records() -> None:
    contents = [payload("garage", 1), None, b"21.5"]
    first, second, third = decode_payloads(contents, ["t"] * 3, [None, None, "application/pdf"]).to_pylist()
    assert [(record["device"], record["metric"], record["value"]) for record in first["records"]] == [
        ("garage", "load", 1.5),
        ("garage", "memory", 1.5),
    ]
    assert first["records"][0]["time"] == datetime.fromtimestamp(1_760_000_001, UTC)
    assert (second["records"], second["problem"]) == (None, None)
    assert (third["records"], third["problem"]) == (None, "nothing here decodes content type 'application/pdf'")
