"""RFC 8428: the examples of its section 5.1, and its rules."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloud.transforms.record import Record
from cloud.transforms.senml import NotSenml, resolve


def read(*records: dict[str, Any]) -> list[Record]:
    return resolve(json.dumps(records).encode())


def test_one_value_now_has_no_time() -> None:
    (record,) = read({"n": "urn:dev:ow:10e2073a01080063", "u": "Cel", "v": 23.1})
    assert record == Record("urn:dev:ow", "10e2073a01080063", "Cel", None, None, None, 23.1, None, None, None, None)


def test_base_fields_hold_for_the_records_after_them() -> None:
    records = read(
        {"bn": "urn:dev:ow:10e2073a0108006:", "bt": 1.276020076001e9, "bu": "A", "bver": 5}
        | {"n": "voltage", "u": "V", "v": 120.1},
        {"n": "current", "t": -5, "v": 1.2},
        {"n": "current", "v": 1.7},
    )  # fmt: skip
    assert [(record.device, record.metric, record.unit, record.value) for record in records] == [
        ("urn:dev:ow:10e2073a0108006", "voltage", "V", 120.1),
        ("urn:dev:ow:10e2073a0108006", "current", "A", 1.2),
        ("urn:dev:ow:10e2073a0108006", "current", "A", 1.7),
    ]
    assert [record.time_us for record in records] == [1276020076001000, 1276020071001000, 1276020076001000]


def test_later_base_field_replaces_the_earlier_one_and_leaves_the_others() -> None:
    records = read(
        {"bn": "a:", "bt": 1_320_078_429, "bu": "Cel", "n": "t", "v": 1},
        {"bn": "b:", "n": "t", "v": 2},
        {"bu": "%RH", "n": "h", "v": 3},
        {"bt": 1_320_078_430, "n": "h", "v": 4},
    )
    assert [(record.device, record.unit, record.time_us) for record in records] == [
        ("a", "Cel", 1_320_078_429_000_000),
        ("b", "Cel", 1_320_078_429_000_000),
        ("b", "%RH", 1_320_078_429_000_000),
        ("b", "%RH", 1_320_078_430_000_000),
    ]


def test_all_kinds_of_values() -> None:
    records = read(
        {"bn": "urn:dev:ow:10e2073a01080063:", "n": "temp", "u": "Cel", "v": 23.1},
        {"n": "label", "vs": "Machine Room"},
        {"n": "open", "vb": False},
        {"n": "nfv-reader", "vd": "aGkgCg"},
        {"n": "meter", "s": 12.5},
    )
    assert [record[6:11] for record in records] == [
        (23.1, None, None, None, None),
        (None, "Machine Room", None, None, None),
        (None, None, False, None, None),
        (None, None, None, b"hi \n", None),
        (None, None, None, None, 12.5),
    ]


def test_base_value_and_base_sum_are_added() -> None:
    records = read({"n": "a", "bv": 20, "v": 1.5, "bs": 100, "s": 7}, {"n": "b"}, {"n": "c", "vs": "x"})
    assert [(record.value, record.sum) for record in records] == [(21.5, 107.0), (20.0, 100.0), (None, 100.0)]


@pytest.mark.parametrize("time", [0, -5, 30, 2**28 - 1])
def test_relative_time_is_not_made_absolute(time: float) -> None:
    assert read({"n": "a", "v": 1, "t": time})[0].time_us is None


def test_base_time_makes_a_relative_time_absolute() -> None:
    assert read({"bt": 2**28, "n": "a", "v": 1, "t": 0.5})[0].time_us == (2**28) * 1_000_000 + 500_000


def test_boot_and_uptime_go_with_the_time_of_their_record() -> None:
    records = read(
        {"n": "a", "v": 1, "boot": 7, "up": 10_000},
        {"n": "b", "v": 2, "t": -1.5},
        {"n": "c", "v": 3, "t": 2},
        {"n": "d", "v": 4, "boot": 8, "up": 30},
    )
    assert [(record.boot_id, record.uptime_ms) for record in records] == [(7, 10_000), (7, 8_500), (7, 12_000), (8, 30)]
    assert {record.time_us for record in records} == {None}


@pytest.mark.parametrize(
    "extension",
    [{"boot": 1}, {"boot": "x", "up": 3}, {"boot": True, "up": 3}, {"boot": -1, "up": 3}, {"boot": 1.5, "up": 2}],
)
def test_foreign_fields_named_boot_or_up_are_ignored(extension: dict[str, Any]) -> None:
    (record,) = read({"n": "a", "v": 1, **extension})
    assert (record.boot_id, record.uptime_ms) == (None, None)


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("load", (None, "load")),
        ("garage:load", ("garage", "load")),
        ("2001:db8::2/3311/0/5850", ("2001:db8::2/3311/0", "5850")),
        ("garage:", ("garage", "")),
    ],
)
def test_name_tells_device_and_metric(name: str, parts: tuple[str | None, str]) -> None:
    half = len(name) // 2
    (whole,), (split,) = read({"n": name, "v": 1}), read({"bn": name[:half], "n": name[half:], "v": 1})
    assert whole == split
    assert (whole.device, whole.metric) == parts


@pytest.mark.parametrize(
    ("records", "reason"),
    [
        ([{"v": 1}], "record 0: no name"),
        ([{"n": "a"}], "record 0: neither a value nor a sum"),
        ([{"n": "a", "v": 1}, {"n": "b", "v": 1, "vs": "x"}], "record 1: more than one value"),
        ([{"n": "größe", "v": 1}], "record 0: 'größe' is not a name of SenML"),
        ([{"n": "-a", "v": 1}], "is not a name of SenML"),
        ([{"n": "a", "v": "1"}], "Expected `float`, got `str` - at `$[0].v`"),
        ([{"n": "a", "v": None}], "Expected `float`, got `null`"),
        ([{"n": "a", "vb": 1}], "Expected `bool`"),
        ([{"n": "a", "vd": "!"}], "record 0: vd is not base64url"),
        ([{"n": "a", "v": 1, "bver": 11}], "record 0: version 11 is newer than 10"),
        ([{"n": "a", "v": 1, "must_": 0}], "record 0: field 'must_' must be understood, and is not"),
        ([{"n": "a", "bv": 1e308, "v": 1e308}], "record 0: 1e+308 and 1e+308 have a sum that is not finite"),
        ([{"n": "a", "bs": -1e308, "s": -1e308}], "record 0: -1e+308 and -1e+308 have a sum that is not finite"),
        ([{"n": "a", "v": 1, "t": 1e12}], "record 0: time 1000000000000.0 is beyond the year 9999"),
    ],
)
def test_broken_rule_is_refused_with_a_reason(records: list[dict[str, Any]], reason: str) -> None:
    with pytest.raises(NotSenml) as caught:
        read(*records)
    assert reason in str(caught.value)


@pytest.mark.parametrize(
    "payload",
    [b"", b"21.5", b"{}", b"null", b"[1]", b'[{"n":"a","v":NaN}]', b'[{"n":"a","v":1e999}]', b"\xff", b'[{"n":"a"}]x'],
)
def test_other_payloads_are_refused(payload: bytes) -> None:
    with pytest.raises(NotSenml):
        resolve(payload)


def test_unknown_fields_are_ignored_even_deep_ones() -> None:
    assert len(read({"n": "a", "v": 1, "foo": {"bar": [1, 2]}, "l": "x"})) == 1
    with pytest.raises(NotSenml):
        resolve(b'[{"n":"a","v":1,"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}]")


numbers = st.floats(allow_nan=False) | st.integers()
fields = st.fixed_dictionaries(
    {},
    optional={
        **dict.fromkeys(("bt", "bv", "bs", "v", "s", "t", "up", "boot", "bver"), numbers),
        **{label: st.text(max_size=4) for label in ("bn", "n", "u", "bu", "vs", "vd", "x_")},
        "vb": st.booleans(),
    },
)


@given(st.lists(fields, max_size=4) | st.binary())
def test_any_pack_gives_records_or_a_reason(pack: list[dict[str, Any]] | bytes) -> None:
    payload = pack if isinstance(pack, bytes) else json.dumps(pack).encode()
    try:
        records = resolve(payload)
    except NotSenml as refused:
        reason = str(refused)
        assert reason
    else:
        assert len(records) == len(pack)
