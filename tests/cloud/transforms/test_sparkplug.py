"""Sparkplug B: data types, aliases and births, in whatever order they land."""

import itertools
import random
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloud.transforms import sparkplug
from cloud.transforms.decoders import decode_messages
from cloud.transforms.record import PAYLOAD_MAX, Message
from cloud.transforms.sparkplug import Births, is_sparkplug
from tests.cloud.transforms.decoding import decode_one, devices, problem_of, times_us, values
from tests.cloud.transforms.sparkplug_encoder import (
    T0_MS,
    bytes_field,
    data_set,
    double_field,
    float_field,
    metric,
    number_field,
    payload,
    template,
)

NBIRTH, NDATA = "spBv1.0/plant/NBIRTH/line-1", "spBv1.0/plant/NDATA/line-1"
DBIRTH, DDATA = "spBv1.0/plant/DBIRTH/line-1/pump", "spBv1.0/plant/DDATA/line-1/pump"
UINT32_MAX, UINT64_MAX = 2**32 - 1, 2**64 - 1
DATA_TYPES = {
    "Int8": (1, number_field(10, UINT32_MAX), -1.0),
    "Int8 as a byte": (1, number_field(10, 0x80), -128.0),
    "Int16": (2, number_field(10, UINT32_MAX - 1), -2.0),
    "Int32": (3, number_field(10, 2**31), float(-(2**31))),
    "Int64": (4, number_field(11, UINT64_MAX - 2), -3.0),
    "UInt8": (5, number_field(10, 255), 255.0),
    "UInt16": (6, number_field(10, 65535), 65535.0),
    "UInt32": (7, number_field(10, UINT32_MAX), float(UINT32_MAX)),
    "UInt64": (8, number_field(11, UINT64_MAX), float(UINT64_MAX)),
    "Float": (9, float_field(12, 21.5), 21.5),
    "Double": (10, double_field(13, 0.1), 0.1),
    "Double that is no number": (10, double_field(13, float("nan")), "nan"),
    "Boolean": (11, number_field(14, 1), True),
    "String": (12, bytes_field(15, "rühr"), "rühr"),
    "DateTime": (13, number_field(11, T0_MS), float(T0_MS)),
    "Text": (14, bytes_field(15, "x"), "x"),
    "UUID": (15, bytes_field(15, "6ba7b810"), "6ba7b810"),
    "Bytes": (17, bytes_field(16, b"\0\xff"), b"\0\xff"),
    "File": (18, bytes_field(16, b"x"), b"x"),
}
ARRAYS: dict[str, tuple[int, bytes, list[object]]] = {
    "Int8Array": (22, struct.pack("<2b", -1, 2), [-1.0, 2.0]),
    "Int16Array": (23, struct.pack("<2h", -1, 2), [-1.0, 2.0]),
    "Int32Array": (24, struct.pack("<2i", -1, 2), [-1.0, 2.0]),
    "Int64Array": (25, struct.pack("<2q", -1, 2), [-1.0, 2.0]),
    "UInt8Array": (26, bytes([255]), [255.0]),
    "UInt64Array": (29, struct.pack("<Q", UINT64_MAX), [float(UINT64_MAX)]),
    "FloatArray": (30, struct.pack("<2f", 1.5, -2), [1.5, -2.0]),
    "DoubleArray": (31, struct.pack("<d", 0.1), [0.1]),
    "BooleanArray": (32, b"\x0a\0\0\0\x81\x40", [True, *[False] * 6, True, False, True]),
    "StringArray": (33, "a\0ü\0".encode(), ["a", "ü"]),
    "DateTimeArray": (34, struct.pack("<Q", T0_MS), [float(T0_MS)]),
}


@pytest.mark.parametrize("kind", DATA_TYPES)
def test_value_of_each_data_type(kind: str) -> None:
    datatype, field, value = DATA_TYPES[kind]
    records = decode_one(NBIRTH, payload(metric("m", field, datatype=datatype)))
    assert values(records) == {"m": value}
    births = Births([(NBIRTH, payload(metric("m", field, datatype=datatype, alias=0)))])
    assert values(decode_one(NDATA, payload(metric(None, field, alias=0)), births=births)) == {"m": value}


@pytest.mark.parametrize("kind", ARRAYS)
def test_array_gives_a_value_for_each_place(kind: str) -> None:
    datatype, content, expected = ARRAYS[kind]
    records = decode_one(NBIRTH, payload(metric("m", bytes_field(16, content), datatype=datatype)))
    assert values(records) == {f"m.{place}": value for place, value in enumerate(expected)}


def test_data_set_gives_a_value_for_each_row_and_column() -> None:
    rows = [[number_field(1, UINT32_MAX), bytes_field(6, "a")], [number_field(1, 2), bytes_field(6, "b")]]
    field = data_set(["speed", "note"], [3, 12], rows)
    assert values(decode_one(NBIRTH, payload(metric("t", field, datatype=16)))) == {
        "t.0.speed": -1.0,
        "t.0.note": "a",
        "t.1.speed": 2.0,
        "t.1.note": "b",
    }


def test_template_gives_the_values_of_its_metrics() -> None:
    inner = [metric("rpm", number_field(10, 900), datatype=3), metric("on", number_field(14, 1), datatype=11)]
    assert values(decode_one(NBIRTH, payload(metric("motor", template(*inner), datatype=19)))) == {
        "motor.rpm": 900.0,
        "motor.on": True,
    }


def test_device_time_and_unit_are_those_of_the_source_the_metric_and_the_birth() -> None:
    birth = payload(
        metric("temp", float_field(12, 20), alias=7, datatype=9, unit="Cel"), metric("x", alias=8, datatype=9)
    )
    data = payload(
        metric(None, float_field(12, 21.5), alias=7, timestamp=T0_MS + 5),
        metric(None, float_field(12, 1), alias=8),
        timestamp=T0_MS + 9,
    )
    records = decode_one(DDATA, data, births=Births([(DBIRTH, birth)]))
    assert devices(records) == {"plant/line-1/pump"}
    assert [(record.metric, record.value, record.unit, record.time_us) for record in records] == [
        ("temp", 21.5, "Cel", (T0_MS + 5) * 1000),
        ("x", 1.0, None, (T0_MS + 9) * 1000),
    ]


def test_null_gives_no_value_and_a_clock_that_is_not_set_gives_no_time() -> None:
    records = decode_one(NBIRTH, payload(metric("a", null=True), metric("b", float_field(12, 1), timestamp=1000)))
    assert values(records) == {"b": 1.0}
    assert times_us(records) == {None}


def test_death_tells_its_number_and_a_command_gives_no_readings() -> None:
    death = payload(metric("bdSeq", number_field(11, 4), datatype=8), timestamp=None, seq=None)
    assert values(decode_one("spBv1.0/plant/NDEATH/line-1", death)) == {"bdSeq": 4.0}
    assert decode_one("spBv1.0/plant/DDEATH/line-1/pump", payload()) == []
    rebirth = payload(metric("Node Control/Rebirth", number_field(14, 1), datatype=11))
    assert decode_one("spBv1.0/plant/NCMD/line-1", rebirth) == []


def test_births_explain_messages_whatever_the_order_of_landing_and_the_batches(seed: int) -> None:
    """Aliases change their metric with each rebirth; the outcome is that of the messages in their order."""
    choose = random.Random(seed)
    published: list[tuple[str, bytes, dict[str, object]]] = []
    for life in range(4):
        names = choose.sample(["a", "b", "c", "d"], 4)
        start = T0_MS + life * 1000
        metrics = [metric(name, number_field(10, 0), alias=at, datatype=3) for at, name in enumerate(names)]
        published.append((NBIRTH, payload(*metrics, timestamp=start), dict.fromkeys(names, 0.0)))
        for step in range(1, 6):
            at = choose.randrange(4)
            data = payload(metric(None, number_field(10, step), alias=at), timestamp=start + step)
            published.append((NDATA, data, {names[at]: float(step)}))
    births = [(topic, content) for topic, content, _ in published if topic == NBIRTH]
    for _ in range(20):
        landed = choose.sample(published, len(published))
        known = Births(choose.sample(births, len(births)) + choose.sample(births, 2))
        cut = choose.randrange(len(landed))
        for batch in (landed[:cut], landed[cut:]):
            outcomes = decode_messages([Message(topic, None, content) for topic, content, _ in batch], births=known)
            for outcome, (*_, expected) in zip(outcomes, batch, strict=True):
                assert isinstance(outcome, list) and values(outcome) == expected


def test_message_from_before_all_births_or_with_an_unknown_alias_is_refused() -> None:
    births = Births([(NBIRTH, payload(metric("a", alias=1, datatype=3)))])
    data = metric(None, number_field(10, 1), alias=1)
    no_birth = "no birth of plant/line-1 is known that explains alias 1"
    assert problem_of(NDATA, payload(data)) == no_birth
    assert problem_of(NDATA, payload(data, timestamp=T0_MS - 1), births=births) == no_birth
    assert problem_of(NDATA, payload(data, timestamp=None), births=births) == no_birth
    assert values(decode_one(NDATA, payload(data), births=births)) == {"a": 1.0}
    other = payload(metric(None, number_field(10, 1), alias=2))
    assert problem_of(NDATA, other, births=births) == "the birth of plant/line-1 does not explain alias 2"
    assert problem_of(DDATA, payload(data), births=births).startswith("no birth of plant/line-1/pump is known")


def test_name_without_data_type_needs_a_birth_only_if_the_value_may_be_signed() -> None:
    assert values(decode_one(NDATA, payload(metric("a", float_field(12, 2))))) == {"a": 2.0}
    signed = payload(metric("a", number_field(10, UINT32_MAX)))
    assert problem_of(NDATA, signed) == "no birth of plant/line-1 is known that tells the data type of 'a'"
    births = Births([(NBIRTH, payload(metric("a", datatype=3)))])
    assert values(decode_one(NDATA, signed, births=births)) == {"a": -1.0}


def test_of_births_in_the_same_millisecond_the_choice_does_not_depend_on_their_order() -> None:
    births = [(NBIRTH, payload(metric(name, alias=1, datatype=3))) for name in "abc"]
    data = payload(metric(None, number_field(10, 1), alias=1))
    found = [decode_one(NDATA, data, births=Births(order)) for order in itertools.permutations(births)]
    assert all(one == found[0] for one in found)


def test_birth_that_cannot_be_decoded_explains_nothing() -> None:
    births = Births([(NBIRTH, b"\xff"), (NBIRTH, payload(bytes_field(2, bytes_field(1, b"\xff\xfe")))), ("x", b"")])
    assert "no birth" in problem_of(NDATA, payload(metric(None, number_field(10, 1), alias=1)), births=births)


def test_birth_with_a_payload_too_large_to_decode_explains_nothing() -> None:
    # A field that no decoder reads, the uuid, makes the payload large, and leaves the metric what it is.
    fitting, large = (
        payload(metric("a", alias=1, datatype=3), bytes_field(4, bytes(size)))
        for size in (PAYLOAD_MAX - 1000, PAYLOAD_MAX)
    )
    data = payload(metric(None, number_field(10, 1), alias=1))
    assert values(decode_one(NDATA, data, births=Births([(NBIRTH, fitting)]))) == {"a": 1.0}
    assert "no birth" in problem_of(NDATA, data, births=Births([(NBIRTH, large)]))


def test_births_with_more_metrics_than_stay_in_memory_explain_messages_in_any_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sparkplug, "DEFINITIONS_MAX", 1000)
    births = [
        payload(*(metric(f"{name}{alias}", alias=alias, datatype=3) for alias in range(90)), timestamp=T0_MS + at)
        for at, name in enumerate("abcdefg")
    ]
    known = Births((NBIRTH, birth) for birth in births)
    assert 2 * 90 * len(births) > 1000
    for at, name in (*enumerate("abcdefg"), (0, "a"), (6, "g")):
        data = payload(metric(None, number_field(10, at), alias=89), timestamp=T0_MS + at)
        assert values(decode_one(NDATA, data, births=known)) == {f"{name}89": at}


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"\xff", "it is no payload of Sparkplug B"),
        (payload(metric("a", bytes_field(15, b"\xff"), datatype=12)), "it is no payload of Sparkplug B"),
        (payload(metric(None, number_field(10, 1))), "a metric has neither a name nor an alias"),
        (
            payload(metric("a", number_field(10, 1), datatype=99)),
            "a metric has data type 99 and its value in int",
        ),
        (payload(metric("a", bytes_field(16, b"abc"), datatype=23)), "an array ends within an element"),
        (payload(metric("a", bytes_field(16, b"abc"), datatype=33)), "an array of strings does not end with a zero"),
        (payload(metric("a", bytes_field(16, b"\xff" * 4), datatype=32)), "an array of booleans has another length"),
        (payload(metric("a", data_set(["x"], [], [[]]), datatype=16)), "a row of a data set does not fit its columns"),
        (payload(metric("a", float_field(12, 1), timestamp=10**15)), "is beyond the year 9999"),
        (payload(metric("a" * 60_000, bytes_field(16, bytes(9_000)), datatype=22)), "far more than its size"),
        (payload(*[b"\x12\0"] * 100_001), "it has more than 100000 metrics"),
    ],
)
def test_other_payloads_are_refused_with_a_reason(content: bytes, reason: str) -> None:
    assert reason in problem_of(NBIRTH, content)


def test_templates_in_templates_are_bounded() -> None:
    content = metric("m", float_field(12, 1))
    for _ in range(9):
        content = metric("m", template(content))
    assert problem_of(NBIRTH, payload(content)) == "templates are nested deeper than 8"


def test_short_messages_cannot_use_a_long_name_of_the_birth_to_grow_without_bound() -> None:
    births = Births([(NBIRTH, payload(metric("a" * 60_000, alias=1, datatype=9)))])
    data = payload(*[metric(None, float_field(12, 1), alias=1)] * 100)
    assert "far more than its size" in problem_of(NDATA, data, births=births)


@pytest.mark.parametrize(
    ("topic", "expected"),
    [
        (NBIRTH, True),
        (DDATA, True),
        ("spBv1.0/g/NCMD/n", True),
        ("spBv1.0/STATE/h", False),
        ("spBv1.0/g/NBIRTH", False),
        ("spBv1.0/g/NDATA/n/d", False),
        ("spBv1.0/g/DDATA/n", False),
        ("x/g/NDATA/n", False),
        ("spBv1.0/g/NEWS/n", False),
    ],
)
def test_topics_of_sparkplug_are_told_from_others(topic: str, expected: bool) -> None:
    assert is_sparkplug(topic) == expected


@given(st.data())
def test_payload_that_is_cut_or_flipped_gives_records_or_a_problem(data: st.DataObject) -> None:
    fields = [metric(kind, field, datatype=datatype) for kind, (datatype, field, _) in DATA_TYPES.items()]
    fields += [
        metric(kind, bytes_field(16, content), datatype=datatype) for kind, (datatype, content, _) in ARRAYS.items()
    ]
    content = bytearray(payload(*fields, metric("t", template(fields[0]), datatype=19)))
    for _ in range(data.draw(st.integers(1, 5))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(content[: data.draw(st.integers(0, len(content)))])
    known = Births([(NBIRTH, bytes(content)), (NBIRTH, cut)])
    messages = [Message(topic, None, one) for topic in (NBIRTH, NDATA) for one in (bytes(content), cut)]
    assert len(decode_messages(messages, births=known)) == 4
