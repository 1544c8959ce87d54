"""The examples of RFC 8949, appendix A: each is a value, or it is refused with a reason."""

import math
from typing import Any

import pytest

from host.cbor import BIGNUM_MAX, NotCbor, decode
from tests.cloud.transforms.decoding import decode_one, problem_of, values

NAN, INFINITY = math.nan, math.inf
VECTORS: list[tuple[str, Any]] = [
    ("00", 0),
    ("01", 1),
    ("0a", 10),
    ("17", 23),
    ("1818", 24),
    ("1819", 25),
    ("1864", 100),
    ("1903e8", 1000),
    ("1a000f4240", 1000000),
    ("1b000000e8d4a51000", 1000000000000),
    ("1bffffffffffffffff", 18446744073709551615),
    ("c249010000000000000000", 18446744073709551616),
    ("3bffffffffffffffff", -18446744073709551616),
    ("c349010000000000000000", -18446744073709551617),
    ("20", -1),
    ("29", -10),
    ("3863", -100),
    ("3903e7", -1000),
    ("f90000", 0.0),
    ("f98000", -0.0),
    ("f93c00", 1.0),
    ("fb3ff199999999999a", 1.1),
    ("f93e00", 1.5),
    ("f97bff", 65504.0),
    ("fa47c35000", 100000.0),
    ("fa7f7fffff", 3.4028234663852886e38),
    ("fb7e37e43c8800759c", 1.0e300),
    ("f90001", 5.960464477539063e-8),
    ("f90400", 0.00006103515625),
    ("f9c400", -4.0),
    ("fbc010666666666666", -4.1),
    ("f97c00", INFINITY),
    ("f97e00", NAN),
    ("f9fc00", -INFINITY),
    ("fa7f800000", INFINITY),
    ("fa7fc00000", NAN),
    ("faff800000", -INFINITY),
    ("fb7ff0000000000000", INFINITY),
    ("fb7ff8000000000000", NAN),
    ("fbfff0000000000000", -INFINITY),
    ("f4", False),
    ("f5", True),
    ("f6", None),
    ("f7", None),  # undefined
    ("c074323031332d30332d32315432303a30343a30305a", "2013-03-21T20:04:00Z"),
    ("c11a514b67b0", 1363896240),
    ("c1fb41d452d9ec200000", 1363896240.5),
    ("d74401020304", b"\x01\x02\x03\x04"),
    ("d818456449455446", b"dIETF"),
    ("d82076687474703a2f2f7777772e6578616d706c652e636f6d", "http://www.example.com"),
    ("40", b""),
    ("4401020304", b"\x01\x02\x03\x04"),
    ("60", ""),
    ("6161", "a"),
    ("6449455446", "IETF"),
    ("62225c", '"\\'),
    ("62c3bc", "\u00fc"),
    ("63e6b0b4", "\u6c34"),
    ("64f0908591", "\U00010151"),
    ("80", []),
    ("83010203", [1, 2, 3]),
    ("8301820203820405", [1, [2, 3], [4, 5]]),
    ("98190102030405060708090a0b0c0d0e0f101112131415161718181819", list(range(1, 26))),
    ("a0", {}),
    ("a201020304", {1: 2, 3: 4}),
    ("a26161016162820203", {"a": 1, "b": [2, 3]}),
    ("826161a161626163", ["a", {"b": "c"}]),
    ("a56161614161626142616361436164614461656145", {"a": "A", "b": "B", "c": "C", "d": "D", "e": "E"}),
    ("5f42010243030405ff", b"\x01\x02\x03\x04\x05"),
    ("7f657374726561646d696e67ff", "streaming"),
    ("9fff", []),
    ("9f018202039f0405ffff", [1, [2, 3], [4, 5]]),
    ("9f01820203820405ff", [1, [2, 3], [4, 5]]),
    ("83018202039f0405ff", [1, [2, 3], [4, 5]]),
    ("83019f0203ff820405", [1, [2, 3], [4, 5]]),
    ("9f0102030405060708090a0b0c0d0e0f101112131415161718181819ff", list(range(1, 26))),
    ("bf61610161629f0203ffff", {"a": 1, "b": [2, 3]}),
    ("826161bf61626163ff", ["a", {"b": "c"}]),
    ("bf6346756ef563416d7421ff", {"Fun": True, "Amt": -2}),
]
REFUSED = [
    ("f0", "simple value 16 at byte 0 is not known"),
    ("f8ff", "simple value 255 at byte 0 is not known"),
]
"""Values that RFC 8949 leaves to others: no registered simple value but booleans, null and undefined has a meaning."""
NOT_WELL_FORMED = [("f818", "simple value 24 at byte 0 has one byte too many")]
"""An example of RFC 7049 that RFC 8949 took back."""


@pytest.mark.parametrize(("item", "value"), VECTORS)
def test_example_is_a_value(item: str, value: Any) -> None:
    decoded = decode(bytes.fromhex(item))
    assert type(decoded) is type(value)
    assert repr(decoded) == repr(value)  # tells 0.0 from -0.0, and NaN is as NaN


@pytest.mark.parametrize(("item", "reason"), REFUSED + NOT_WELL_FORMED)
def test_example_without_a_meaning_is_refused(item: str, reason: str) -> None:
    with pytest.raises(NotCbor) as caught:
        decode(bytes.fromhex(item))
    assert str(caught.value) == reason


def test_all_examples_are_here() -> None:
    assert len({item for item, _ in VECTORS + REFUSED + NOT_WELL_FORMED}) == 82


@pytest.mark.parametrize(("item", "value"), VECTORS)
def test_example_as_a_payload_is_readings_or_says_no_value(item: str, value: Any) -> None:
    found = decode_one("odd/x", bytes.fromhex(item), "application/cbor")
    if value is None or value == [] or value == {}:
        assert found == []
    elif isinstance(value, float) and not math.isfinite(value):
        assert values(found) == {"x": str(value)}
    elif isinstance(value, dict | list):
        assert len(found) == sum(len(one) if isinstance(one, list | dict) else 1 for one in _items(value))
    else:
        assert values(found) == {"x": float(value) if type(value) is int else value}


def _items(value: Any) -> list[Any]:
    return list(value.values()) if isinstance(value, dict) else list(value)


@pytest.mark.parametrize(("item", "reason"), REFUSED + NOT_WELL_FORMED)
def test_example_without_a_meaning_is_in_quarantine_with_the_reason(item: str, reason: str) -> None:
    assert problem_of("odd/x", bytes.fromhex(item), "application/cbor") == f"it is not CBOR: {reason}"


@pytest.mark.parametrize(
    ("item", "value"),
    [
        ("c48221196ab3", 273.15),  # section 3.4.4
        ("c5822003", 1.5),
        ("c5821b7fffffffffffffff00", 0.0),
        ("c582391fff01", 0.0),
        ("c5820000", 0.0),
        ("c240", 0),
    ],
)
def test_tags_of_numbers_give_the_number(item: str, value: float) -> None:
    assert decode(bytes.fromhex(item)) == value


@pytest.mark.parametrize(
    ("item", "reason"),
    [
        ("c201", "a bignum is no byte string"),
        ("c2" + "5903e8" + "ff" * 1000, f"a bignum has 1000 bytes; up to {BIGNUM_MAX} are a number"),
        ("c501", "a bigfloat is no finite number"),
        ("c5821a7fffffff01", "a bigfloat is no finite number"),
        ("c5821903ff02", "a bigfloat is no finite number"),
        ("c582f4f5", "a bigfloat is no finite number"),
    ],
)
def test_tags_of_numbers_with_something_else_are_refused(item: str, reason: str) -> None:
    with pytest.raises(NotCbor, match=reason):
        decode(bytes.fromhex(item))


def test_number_beyond_a_double_is_refused() -> None:
    payload = bytes.fromhex("c25880" + "ff" * 128)
    assert problem_of("odd/x", payload, "application/cbor") == "a number is beyond what a double carries"


def test_plain_cbor_needs_no_content_type_if_it_is_a_map_or_an_array() -> None:
    assert values(decode_one("a/b", bytes.fromhex("a2616101616282f93e00f6"))) == {"a": 1.0, "b.0": 1.5}
    assert values(decode_one("a/b", bytes.fromhex("83010203"))) == {"0": 1.0, "1": 2.0, "2": 3.0}
    assert values(decode_one("a/b", bytes.fromhex("a10102"))) == {"1": 2.0}
    assert "a key twice" in problem_of("a/b", bytes.fromhex("a20102613103"))
