"""SenML in CBOR (RFC 8428, section 6) gives the same records as in JSON."""

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloud.transforms.decode import decode_payloads
from cloud.transforms.record import RECORDS_MAX
from cloud.transforms.senml import NotSenml, resolve, resolve_cbor
from device.readings import senml, senml_cbor
from host import cbor
from host.cbor import NotCbor, decode

# The example of section 6 and the pack of section 5.1.3 that it encodes.
EXAMPLE = bytes.fromhex("""
    87 a7 21 78 1b 75 72 6e 3a 64 65 76 3a 6f 77 3a
    31 30 65 32 30 37 33 61 30 31 30 38 30 30 36 3a
    22 fb 41 d3 03 a1 5b 00 10 62 23 61 41 20 05 00
    67 76 6f 6c 74 61 67 65 01 61 56 02 fb 40 5e 06
    66 66 66 66 66 a3 00 67 63 75 72 72 65 6e 74 06
    24 02 fb 3f f3 33 33 33 33 33 33 a3 00 67 63 75
    72 72 65 6e 74 06 23 02 fb 3f f4 cc cc cc cc cc
    cd a3 00 67 63 75 72 72 65 6e 74 06 22 02 fb 3f
    f6 66 66 66 66 66 66 a3 00 67 63 75 72 72 65 6e
    74 06 21 02 f9 3e 00 a3 00 67 63 75 72 72 65 6e
    74 06 20 02 fb 3f f9 99 99 99 99 99 9a a3 00 67
    63 75 72 72 65 6e 74 06 00 02 fb 3f fb 33 33 33
    33 33 33
""")
EXAMPLE_IN_JSON = [
    {"bn": "urn:dev:ow:10e2073a0108006:", "bt": 1.276020076001e9, "bu": "A", "bver": 5, "n": "voltage"}
    | {"u": "V", "v": 120.1},
    *({"n": "current", "t": t, "v": v} for t, v in zip(range(-5, 1), (1.2, 1.3, 1.4, 1.5, 1.6, 1.7), strict=True)),
]
# Items of RFC 8949, appendix A.
ITEMS = {
    "00": 0,
    "1818": 24,
    "1903e8": 1000,
    "1bffffffffffffffff": 18446744073709551615,
    "20": -1,
    "3903e7": -1000,
    "f90000": 0.0,
    "f93c00": 1.0,
    "f97bff": 65504.0,
    "fa47c35000": 100000.0,
    "fb3ff199999999999a": 1.1,
    "f4": False,
    "f5": True,
    "f6": None,
    "4401020304": b"\1\2\3\4",
    "62c3bc": "ü",
    "8301820203820405": [1, [2, 3], [4, 5]],
    "a201020304": {1: 2, 3: 4},
    "c48221196ab3": 273.15,
    "c11a514b67b0": 1363896240,
    "5f42010243030405ff": b"\1\2\3\4\5",
    "7f657374726561646d696e67ff": "streaming",
    "9f018202039f0405ffff": [1, [2, 3], [4, 5]],
    "bf6346756ef563416d7421ff": {"Fun": True, "Amt": -2},
}
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
NAMES = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9\-._]{0,30}", fullmatch=True)
NUMBERS = st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**53), 2**53)
SAMPLES = st.lists(
    st.tuples(NAMES, st.none() | TEXTS.filter(bool), NUMBERS | st.booleans() | TEXTS), min_size=1, max_size=5
)
UNIX_MS = st.none() | st.integers(2**28 * 1000, 4_000_000_000_000)


def test_example_of_the_rfc_gives_the_records_of_its_json() -> None:
    assert resolve_cbor(EXAMPLE) == resolve(json.dumps(EXAMPLE_IN_JSON).encode())


@pytest.mark.parametrize(("item", "value"), ITEMS.items())
def test_examples_of_cbor_are_decoded(item: str, value: Any) -> None:
    decoded = decode(bytes.fromhex(item))
    assert decoded == value and type(decoded) is type(value)


@given(NAMES, SAMPLES, st.integers(0, 2**32 - 1), st.integers(0, 2**53), UNIX_MS)
def test_devices_pack_gives_the_same_records_in_both_formats(
    client_id: str, samples: list[Any], boot_id: int, uptime_ms: int, unix_ms: int | None
) -> None:
    given_pack = (client_id, samples, boot_id, uptime_ms, unix_ms)
    records = resolve_cbor(senml_cbor.encode_pack(*given_pack))
    assert records == resolve(senml.encode_pack(*given_pack))
    assert len(records) == len(samples)
    for record, (name, unit, value) in zip(records, samples, strict=True):
        assert (record.device, record.metric, record.unit) == (client_id, name, unit)
        assert record.time_us == (None if unix_ms is None else unix_ms * 1000)
        assert (record.boot_id, record.uptime_ms) == (boot_id, uptime_ms)
        if isinstance(value, str):
            assert record.value_string == value
        elif isinstance(value, bool):
            assert record.value_bool is value
        else:
            assert record.value == value


def test_rows_are_the_same_from_both_content_types() -> None:
    pack = ("garage-1", [("t", "Cel", 21.53), ("t.error", None, "no answer")], 3, 1500, 1_758_000_000_125)
    payloads = [senml.encode_pack(*pack), senml_cbor.encode_pack(*pack)]
    first, second = decode_payloads(
        payloads, ["t", "t"], ["application/senml+json", "application/senml+cbor"]
    ).to_pylist()
    assert first == second and first["problem"] is None
    assert [record["value_string"] for record in first["records"]] == [None, "no answer"]


def test_all_kinds_of_values_and_what_is_ignored() -> None:
    # [{0: "a", 8: h'686920 0a', 99: 1}, {0: "b", 5: 12.5, "extra": [1]}]
    records = resolve_cbor(bytes.fromhex("82a3 0061 61 0844 6869200a 1863 01 a3 0061 62 05f9 4a40 6565787472618101"))
    assert [(record.metric, record.value_data, record.sum) for record in records] == [
        ("a", b"hi \n", None),
        ("b", None, 12.5),
    ]


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        ("", "it ends too early"),
        ("00", "Expected `array`"),
        ("8101", "Expected `object`"),
        ("81a2006161", "it ends too early"),
        ("81a2006161020000", "bytes after the item"),
        ("81a200616102f97e00", "a number is not finite"),
        ("81a200616102f97c00", "a number is not finite"),
        ("81a200616102c4821927106101", "a decimal fraction is no finite number"),
        ("81a200616102c482192710190001", "a decimal fraction is no finite number"),
        ("81a200616102f5", "Expected `float`, got `bool`"),
        ("81a2006161086161", "vd is not a byte string"),
        ("81a3006161020100617a", "a map has a key twice"),
        ("81a3006161020163615f5f00", "field 'a__' must be understood"),
        ("81a1f500", "a map has a key that is no number or string"),
        ("81a1006161", "neither a value nor a sum"),
        ("81a20063ff61610201", "a text is not UTF-8"),
        ("81a200026101", "it ends too early"),
        ("9f", "it ends too early"),
        ("bf00ff", "a map has a key without a value"),
        ("1c", "byte 0 begins no item"),
        ("ff", "simple value 31 at byte 0 is not known"),
        ("5f6161ff", "a string with parts of another type"),
        ("9bffffffffffffffff", "it ends too early"),
        ("81" * 40 + "00", "nested deeper than 32"),
        ("9f" + "a0" * (RECORDS_MAX + 1) + "ff", "it resolves to more than 100000 records"),
    ],
)
def test_other_payloads_are_refused_with_a_reason(payload: str, reason: str) -> None:
    with pytest.raises(NotSenml) as caught:
        resolve_cbor(bytes.fromhex(payload))
    assert reason in str(caught.value)


def test_more_items_than_a_payload_may_have_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cbor, "ITEMS_MAX", 1000)
    assert decode(bytes.fromhex("9f" + "a0" * 998 + "ff")) == [{}] * 998
    with pytest.raises(NotSenml, match="it has more than 1000 items"):
        resolve_cbor(bytes.fromhex("9f" + "a0" * 999 + "ff"))


@given(st.binary(max_size=60))
def test_any_bytes_raise_notsenml_or_nothing(payload: bytes) -> None:
    for read, error in ((decode, NotCbor), (resolve_cbor, NotSenml)):
        with contextlib.suppress(error):
            read(payload)


@given(st.data())
def test_pack_that_is_cut_or_flipped_raises_notsenml_or_nothing(data: st.DataObject) -> None:
    pack = bytearray(EXAMPLE)
    at = data.draw(st.integers(0, len(pack) - 1))
    pack[at] = data.draw(st.integers(0, 255))
    for content in (bytes(pack), EXAMPLE[:at]):
        try:
            resolve_cbor(content)
        except NotSenml:
            assert content != EXAMPLE


def test_number_travels_by_its_decimal_digits() -> None:
    """A float of 32 bits, as many boards have, prints as 21.53 as well; as binary it would be 21.530000686645508."""
    pack = senml_cbor.encode_pack("g", [("t", "Cel", 21.53)], 1, 1, None)
    assert pack.endswith(b"\x02\xc4\x82\x21\x19\x08\x69")
    assert resolve_cbor(pack)[0].value == 21.53
