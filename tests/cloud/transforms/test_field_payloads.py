"""Payloads from the field: each becomes what is right for its kind, and the page of decoders says what."""

import json
from functools import cache

import pytest

from cloud.transforms.record import Message
from tests.cloud.transforms.field_payloads import (
    EXPECTED,
    PAYLOADS,
    outcome_of,
    read_cases,
    render,
    table_of_the_page,
)
from tests.support.cases import find_cases

RIGHT = json.loads(EXPECTED.read_text())


@cache
def messages() -> dict[str, Message]:
    return {case.name: case.message for case in read_cases(PAYLOADS)}


@pytest.mark.parametrize("name", RIGHT)
def test_payload_becomes_what_is_right(name: str) -> None:
    find_cases("data", "payloads.jsonl")
    assert outcome_of(messages()[name]) == RIGHT[name]


def test_every_payload_has_what_is_right() -> None:
    find_cases("data", "payloads.jsonl")
    assert set(messages()) == set(RIGHT)


def test_page_has_what_becomes_of_each() -> None:
    find_cases("data", "payloads.jsonl")
    assert table_of_the_page() == render(read_cases(PAYLOADS))


def test_no_two_things_are_one_series() -> None:
    """The same device and metric twice in a payload have two times."""
    for name, right in RIGHT.items():
        readings = right.get("readings", [])
        assert len({(one["device"], one["metric"], one.get("time")) for one in readings}) == len(readings), name
