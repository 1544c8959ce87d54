"""MQTT's integers and strings at their limits."""

import pytest

from wire.errors import LocalProtocolError, RemoteProtocolError
from wire.primitives import Reader, decode_varint, encode_integer, encode_string, encode_varint

VARINTS = [  # table 1-1
    (0, b"\x00"),
    (127, b"\x7f"),
    (128, b"\x80\x01"),
    (16_383, b"\xff\x7f"),
    (16_384, b"\x80\x80\x01"),
    (2_097_151, b"\xff\xff\x7f"),
    (2_097_152, b"\x80\x80\x80\x01"),
    (268_435_455, b"\xff\xff\xff\x7f"),
]


@pytest.mark.parametrize(("value", "encoded"), VARINTS)
def test_varint_is_encoded_as_the_standard_shows(value: int, encoded: bytes) -> None:
    assert encode_varint(value) == encoded
    assert decode_varint(b"x" + encoded + b"\xff", 1) == (value, 1 + len(encoded))
    for length in range(len(encoded)):
        assert decode_varint(encoded[:length], 0) == (0, 0)


@pytest.mark.parametrize("encoded", [b"\x80\x00", b"\xff\x80\x00", b"\x80\x80\x80\x00", b"\x80\x80\x80\x80"])
def test_varint_longer_than_need_be_is_malformed(encoded: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        decode_varint(encoded, 0)


def test_what_does_not_fit_is_our_own_error() -> None:
    with pytest.raises(LocalProtocolError, match="variable byte integer"):
        encode_varint(268_435_456)
    for value in (-1, 65_536):
        with pytest.raises(LocalProtocolError):
            encode_integer(value, 2)
    with pytest.raises(LocalProtocolError):
        encode_string("é" * 32_768)


def test_strings_keep_every_character() -> None:
    text = "".join(map(chr, [1, 0x7F, 0x80, 0x7FF, 0x800, 0xD7FF, 0xE000, 0xFEFF, 0xFFFF, 0x10000, 0x10FFFF]))
    assert Reader(encode_string(text)).string() == text
