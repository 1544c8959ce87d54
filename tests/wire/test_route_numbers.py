"""Route numbers: `hf-via`, and statements."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wire.bulk.property_block import encode_via_property, encode_vias
from wire.packet_types import PUBLISH
from wire.primitives import Reader, encode_varint
from wire.properties import USER_PROPERTY, decode_properties, encode_properties
from wire.route_numbers import (
    VIA_PROPERTY,
    DroppedRange,
    HandedOn,
    LeftOutRuns,
    Statement,
    decode_statement,
    decode_via,
    encode_statement,
    encode_via,
    statement_topic,
)
from wire.runs import runs_of

names = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=20)
epochs = st.integers(0, 0xFFFF_FFFF)
seqs = st.integers(1, 2**63 - 1)
runs = st.sets(st.integers(1, 100) | seqs, min_size=1).map(sorted).map(runs_of)


@given(epochs, runs, names, names)
def test_numbers_of_a_link_come_back(epoch: int, found: list[tuple[int, int]], gateway: str, route: str) -> None:
    assert decode_via(encode_via(epoch, found, gateway, route)) == (epoch, found, gateway, route)


def test_numbers_of_a_link_read_as_documented() -> None:
    assert encode_via(0x1F, [(42, 42)], "barn", "central") == "0000001f/42/barn/central"
    assert encode_via(0x1F, [(42, 540), (543, 543)], "barn", "central") == "0000001f/42-540,543/barn/central"
    assert encode_via(0x1F, [(42, 42)], "5% a/b", "c/d%") == "0000001f/42/5%25 a%2Fb/c/d%"


@given(st.sets(st.integers(1, 50)).map(sorted))
def test_runs_have_each_number_once(numbers: list[int]) -> None:
    found = runs_of(numbers)
    assert [number for first, last in found for number in range(first, last + 1)] == numbers
    assert all(before[1] + 1 < behind[0] for before, behind in pairwise(found))


@given(epochs, st.lists(seqs, min_size=1), names, names)
def test_numbers_that_are_encoded_together_are_as_each_by_itself(
    epoch: int, numbers: list[int], gateway: str, route: str
) -> None:
    together = b"".join(encode_vias(epoch, numbers, gateway, route))
    each = [(VIA_PROPERTY, encode_via(epoch, [(number, number)], gateway, route)) for number in numbers]
    assert decode_properties(Reader(encode_varint(len(together)) + together), PUBLISH) == {USER_PROPERTY: each}
    assert encode_properties({USER_PROPERTY: each}, PUBLISH).endswith(together)
    assert together == b"".join(encode_via_property(text) for _, text in each)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "expected epoch/numbers/gateway/route"),
        ("0000001f/42/barn", "expected epoch/numbers/gateway/route"),
        ("x/42/barn/central", "not a number"),
        ("0000001f/x/barn/central", "not a number"),
        ("1f/42/barn/central", "spelt"),
        ("0000001F/42/barn/central", "spelt"),
        ("0000001f/042/barn/central", "spelt"),
        ("0000001f/42/b%61rn/central", "spelt"),
        ("0000001f/0/barn/central", "number"),
        ("0000001f//barn/central", "number"),
        ("0000001f/42-42/barn/central", "spelt"),
        ("0000001f/42,43/barn/central", "number"),
        ("0000001f/42-43,40/barn/central", "number"),
        ("0000001f/43-42/barn/central", "number"),
        ("0000001f/-42/barn/central", "number"),
        ("0000001f/42//central", "gateway"),
        ("0000001f/42/barn/", "route"),
        ("0000001f/" + "9" * 5000 + "/barn/central", "number"),
    ],
)
def test_a_malformed_route_number_names_what_is_wrong(text: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        decode_via(text)


STATEMENT = Statement(
    "barn",
    "central",
    31,
    7,
    101,
    180,
    [HandedOn("greenhouse-1", 42, 130, 78, 40, 120), HandedOn("garage", 7, 9, 0, 0, 0)],
    [DroppedRange("expired", "route/central", "greenhouse-1", 42, 50, 51, 2)],
    [(99, 99), (120, 122)],
    False,
    [LeftOutRuns("garage", 7, [(1, 4), (6, 6)])],
)
GOLDEN = (
    b'{"v":1,"gateway":"barn","route":"central","epoch":31,"statement":7,"first":101,"last":180,'
    b'"origins":[["greenhouse-1",42,130,78,40,120],["garage",7,9,0,0,0]],'
    b'"dropped":[["expired","route/central","greenhouse-1",42,50,51,2]],"refused":"99,120-122",'
    b'"left_out":[["garage",7,"1-4,6"]]}'
)


def test_a_statement_is_encoded_as_documented() -> None:
    assert encode_statement(STATEMENT) == GOLDEN
    assert decode_statement(GOLDEN) == STATEMENT


def test_members_that_a_later_gateway_adds_are_ignored() -> None:
    assert decode_statement(GOLDEN.replace(b'{"v"', b'{"new":[1],"v"')) == STATEMENT


@st.composite
def statements(draw: st.DrawFn) -> Statement:
    first = draw(st.integers(1, 2**62))
    count = draw(st.integers(0, 1000))
    origins = []
    for _ in range(draw(st.integers(0, 5))):
        messages = draw(st.integers(0, count))
        lowest = draw(seqs) if messages else 0
        last = draw(st.integers(lowest, 2**63 - 1)) if messages else 0
        highest = draw(st.integers(max(1, last), 2**63 - 1))
        origins.append(HandedOn(draw(names), draw(epochs), highest, messages, lowest, last))
    ranges = []
    for _ in range(draw(st.integers(0, 5))):
        lowest = draw(st.integers(0, 2**63 - 1))
        last = draw(st.integers(lowest, 2**63 - 1))
        reason = draw(st.sampled_from(["expired", "evicted"]))
        ranges.append(DroppedRange(reason, draw(names), draw(names), draw(epochs), lowest, last, draw(seqs)))
    number = draw(seqs)
    refused = draw(runs) if draw(st.booleans()) else []
    about = (draw(names), draw(names), draw(epochs), number, first, first + count - 1)
    left_out = [LeftOutRuns(draw(names), draw(epochs), draw(runs)) for _ in range(draw(st.integers(0, 3)))]
    return Statement(*about, origins, ranges, refused, draw(st.booleans()), left_out)


@given(statements())
def test_a_statement_comes_back(statement: Statement) -> None:
    assert decode_statement(encode_statement(statement)) == statement


@pytest.mark.parametrize(
    ("before", "behind", "says"),
    [
        (b'"v":1', b'"v":2', "version 2"),
        (b'"v":1', b'"v":1,"backfill":1', "backfill 1"),
        (b'"first":101,', b"", "needs 'first'"),
        (b'"first":101', b'"first":"a"', "first 'a'"),
        (b'"first":101', b'"first":true', "first True"),
        (b'"last":180', b'"last":99', "last 99"),
        (b'"statement":7', b'"statement":0', "statement 0"),
        (b'"epoch":31', b'"epoch":4294967296', "epoch 4294967296"),
        (b'"gateway":"barn"', b'"gateway":""', "gateway"),
        (b'"gateway":"barn"', b'"gateway":1', "gateway"),
        (b'["garage",7,9,0,0,0]', b'["garage",7,9,0,0]', "HandedOn"),
        (b'["garage",7,9,0,0,0]', b'{"a":1}', "HandedOn"),
        (b'["garage",7,9,0,0,0]', b'["garage",7,9,0,1,0]', "first 1"),
        (b'["garage",7,9,0,0,0]', b'["garage",7,9,81,1,9]', "messages 81"),
        (b"130,78,40,120", b"119,78,40,120", "highest 119"),
        (b'"expired"', b'""', "reason"),
        (b'"route/central"', b"3", "consumer"),
        (b"50,51,2", b"52,51,2", "first 52"),
        (b"50,51,2", b"50,51,0", "messages 0"),
        (b'"99,120-122"', b"3", "refused"),
        (b'"99,120-122"', b'"99,98"', "number"),
        (b"{", b"[{", "JSON"),
        (GOLDEN, b"[]", "object"),
        (GOLDEN, b"\xff", "JSON"),
        (GOLDEN, b"[" * 100_000, "JSON"),
    ],
)
def test_a_malformed_statement_names_what_is_wrong(before: bytes, behind: bytes, says: str) -> None:
    assert before in GOLDEN
    with pytest.raises(ValueError, match=says):
        decode_statement(GOLDEN.replace(before, behind, 1))


@given(st.binary())
def test_any_bytes_are_a_statement_or_a_value_error(payload: bytes) -> None:
    with pytest.raises(ValueError, match="statement"):
        decode_statement(payload)


def test_the_topic_of_statements_holds_no_wildcard() -> None:
    assert statement_topic("barn", "central") == "holdfast/statement/barn/central"
    assert statement_topic("a+", "#b") == "holdfast/statement/a_/_b"
