"""Identity and provenance as user properties."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wire.identity import (
    IDENTITY_PROPERTY,
    KEEP,
    RECEIVE,
    decode_identity,
    decode_received,
    encode_identity,
    encode_received,
    find_user_property,
    find_wishes,
)
from wire.properties import USER_PROPERTY

origins = st.text(min_size=1, max_size=64)


@given(origins, st.integers(0, 0xFFFFFFFF), st.integers(1, 2**63 - 1))
def test_identity_comes_back(origin: str, epoch: int, seq: int) -> None:
    assert decode_identity(encode_identity(origin, epoch, seq)) == (origin, epoch, seq)


def test_identity_reads_as_documented() -> None:
    assert encode_identity("garage/1", 0x1F, 42) == "0000001f/42/garage/1"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "epoch"),
        ("0000001f", "seq"),
        ("0000001f/42", "origin"),
        ("0000001f/42/", "origin"),
        ("0000001f/42/" + 129 * "é", "origin has 258 bytes, expected 256 at most"),
        ("1f/42/a", "epoch"),
        ("0000001F/42/a", "epoch"),
        ("100000000/42/a", "epoch"),
        ("-0000001/42/a", "epoch"),
        ("0x00001f/42/a", "epoch"),
        ("0000001f/0/a", "seq"),
        ("0000001f/042/a", "seq"),
        ("0000001f/+4/a", "seq"),
        ("0000001f/1_0/a", "seq"),
        ("0000001f/٤/a", "seq"),
        ("0000001f/9223372036854775808/a", "seq"),
        ("0000001f/" + "9" * 5000 + "/a", "seq"),
    ],
)
def test_malformed_identity_names_what_is_wrong(text: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        decode_identity(text)


@pytest.mark.parametrize(("epoch", "seq", "origin"), [(-1, 1, "a"), (1 << 32, 1, "a"), (0, 0, "a"), (0, 1, "")])
def test_identity_out_of_range_is_not_encoded(epoch: int, seq: int, origin: str) -> None:
    with pytest.raises(ValueError, match="is"):
        encode_identity(origin, epoch, seq)


def test_provenance_comes_back() -> None:
    assert encode_received(1_700_000_000_123, "gate/1") == "1700000000123/gate/1"
    assert decode_received("1700000000123/gate/1") == (1_700_000_000_123, "gate/1")


@pytest.mark.parametrize("text", ["", "1", "1/", "x/gate", "-1/gate", "01/gate", "1/" + 257 * "g"])
def test_malformed_provenance_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"time|name"):
        decode_received(text)


def test_first_user_property_of_a_name_is_found() -> None:
    properties = {USER_PROPERTY: [("a", "1"), (IDENTITY_PROPERTY, "2"), (IDENTITY_PROPERTY, "3")]}
    assert find_user_property(properties, IDENTITY_PROPERTY) == "2"
    assert find_user_property(properties, "b") is None
    assert find_user_property({}, "b") is None


def test_wishes_are_those_of_the_page_in_order() -> None:
    pairs = [("hf-identity", "receive"), ("other", "keep"), ("hf-identity", "more"), ("hf-identity", "keep")]
    assert find_wishes({USER_PROPERTY: pairs}) == [RECEIVE, "more", KEEP]
    assert find_wishes({}) == []
