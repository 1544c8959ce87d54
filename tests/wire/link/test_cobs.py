"""Byte stuffing against the examples of its paper and at its block limits."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wire.errors import WireError
from wire.link.frames import stuff, unstuff

plains = st.lists(st.sampled_from([b"\0", b"\1", b"\xff", b"\7" * 253, b"\7" * 254]), max_size=6).map(b"".join)


@pytest.mark.parametrize(
    ("plain", "encoded"),
    [
        (b"", "01"),
        (b"\0", "0101"),
        (b"\0\0", "010101"),
        (b"\x11\x22\0\x33", "0311220233"),
        (b"\x11\x22\x33\x44", "0511223344"),
        (b"\x11\0\0\0", "0211010101"),
        (b"\1" * 253, "fe" + "01" * 253),
        (b"\1" * 254 + b"\2", "ff" + "01" * 254 + "0202"),
        (b"\1" * 254 + b"\0", "ff" + "01" * 254 + "0101"),
    ],
)
def test_known_encodings(plain: bytes, encoded: str) -> None:
    assert stuff(plain) == bytes.fromhex(encoded)
    assert unstuff(bytes.fromhex(encoded)) == plain


@given(plains | st.binary(max_size=600))
def test_encoding_has_no_zero_and_comes_back(plain: bytes) -> None:
    encoded = stuff(plain)
    assert 0 not in encoded
    assert len(encoded) <= len(plain) + 1 + len(plain) // 254
    assert unstuff(encoded) == plain


@pytest.mark.parametrize("encoded", [b"\x02", b"\xff" * 10, b"\x01\x00", b"\x05abc"])
def test_impossible_encodings_are_refused(encoded: bytes) -> None:
    with pytest.raises(WireError):
        unstuff(encoded)
