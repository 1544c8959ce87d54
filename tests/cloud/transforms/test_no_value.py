"""Payloads that say that there is no value, and texts with more or less around them than others have."""

import json

import pytest

from cloud import find_decoders
from cloud.transforms.own_decoders import BadDecoder
from tests.cloud.transforms.decoding import decode_one, problem_of, values

BOM = b"\xef\xbb\xbf"
PACK = b'[{"n":"t","v":1}]'


@pytest.mark.parametrize(
    "payload",
    [
        *("", " \r\n", "\0", "null", "{}", "[]", '{"state":null}', '{"value":[]}', "nan", "NaN", "-nan", "None"),
        *("unavailable", "Unknown", '{"a":{"b":[null,{}]}}', '{"ts":1773500966}'),
    ],
)
@pytest.mark.parametrize("topic", ["house/cellar/t", "zigbee2mqtt/plug", "homeassistant/sensor/x/config"])
def test_no_value_is_no_fault_and_no_reading(topic: str, payload: str) -> None:
    assert decode_one(topic, payload) == []


@pytest.mark.parametrize(
    ("payload", "content_type"),
    [
        (b"[]", "application/senml+json"),
        (b"\x80", "application/senml+cbor"),
        (b"\xf6", "application/cbor"),
        (b"null", "application/json"),
        (b"", "text/plain"),
        (b"", "text/csv"),
        (b"a,b\n", "text/csv"),
    ],
)
def test_no_value_in_other_content_types(payload: bytes, content_type: str) -> None:
    assert decode_one("t", payload, content_type) == []


def test_text_that_says_so_is_a_value() -> None:
    assert values(decode_one("a/b", "unavailable", "text/plain")) == {"b": "unavailable"}
    assert values(decode_one("a/b", '{"state":"unavailable"}')) == {"state": "unavailable"}


@pytest.mark.parametrize("before", [b"", BOM, b" \n" + BOM, BOM + b" "])
@pytest.mark.parametrize("after", [b"", b"\0", b"\0\0", b"\0\r\n", b"\n\0"])
def test_byte_order_mark_and_trailing_nuls_are_dropped(before: bytes, after: bytes) -> None:
    for topic, content_type in (("a/b", None), ("a/b", "text/plain")):
        assert values(decode_one(topic, before + b"21.5" + after, content_type)) == {"b": 21.5}
    for content_type in (None, "application/json"):
        assert values(decode_one("a/b", before + b'{"t":21.5}' + after, content_type)) == {"t": 21.5}
    for content_type in (None, "application/json", "application/senml+json"):
        assert values(decode_one("a/b", before + PACK + after, content_type)) == {"t": 1.0}
    assert values(decode_one("a/b", before + b"t,u\n1,2" + after, "text/csv")) == {"t": 1.0, "u": 2.0}


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        ("{\0".encode("utf-16"), "it is UTF-16"),
        (b"\x1f\x8b\x08\0", "it is compressed by gzip"),
        (b"1\n2\n", "with the content type text/csv they are rows"),
        (b"Heating", "with the content type text/plain it is a text"),
        (b"\x03g\x01\x10\x05g\0\xff", "it is not UTF-8"),
    ],
)
def test_reason_says_what_to_do(payload: bytes, reason: str) -> None:
    assert reason in problem_of("a/b", payload)


@pytest.mark.parametrize(
    ("text", "number", "unit"),
    [
        ("21,5", 21.5, None),
        ("-0,25 bar", -0.25, "bar"),
        ("21.5 C", 21.5, "C"),
        ("21.5°C", 21.5, "°C"),
        ("45%", 45.0, "%"),
        ("3 m³", 3.0, "m³"),
        ("12 km/h", 12.0, "km/h"),
    ],
)
def test_number_as_a_text_stays_one_until_a_decoder_is_told_to_read_it(
    text: str, number: float, unit: str | None
) -> None:
    numbers = find_decoders(["numbers:meter/#"])
    assert values(decode_one("meter/t", text)) == {"t": text}
    assert values(decode_one("meter", json.dumps({"t": text}))) == {"t": text}
    for topic, payload in (("meter/t", text), ("meter/x", json.dumps({"t": text}))):
        (record,) = decode_one(topic, payload, own=numbers)
        assert (record.metric, record.value, record.value_string, record.unit) == ("t", number, None, unit)
    assert values(decode_one("other/t", text, own=numbers)) == {"t": text}


def test_decoder_of_numbers_leaves_other_values_as_they_are() -> None:
    numbers = find_decoders(["numbers:meter/#"])
    payload = json.dumps({"value": "317.3988", "error": "no error", "ok": True, "n": 1, "big": "9" * 400, "x": ""})
    assert values(decode_one("meter", payload, own=numbers)) == {
        "value": 317.3988,
        "error": "no error",
        "ok": True,
        "n": 1.0,
        "big": "9" * 400,
        "x": "",
    }


def test_decoder_of_numbers_needs_a_filter_that_is_one() -> None:
    with pytest.raises(BadDecoder, match="numbers:a/#/b: 'a/#/b' is no topic filter"):
        find_decoders(["numbers:a/#/b"])
