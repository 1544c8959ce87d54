"""Sparkplug B: compressed payloads, quality, stored values, template definitions, and content that nothing decodes."""

import gzip
import zlib

import pytest

from cloud.transforms.record import PAYLOAD_MAX
from cloud.transforms.sparkplug import Births
from cloud.transforms.sparkplug_payload import INFLATED_FACTOR, INFLATED_SLACK
from tests.cloud.transforms.decoding import decode_one, problem_of, times_us, values
from tests.cloud.transforms.sparkplug_encoder import (
    T0_MS,
    bytes_field,
    compressed,
    data_set,
    double_field,
    metric,
    number_field,
    payload,
    template,
)

NBIRTH, NDATA = "spBv1.0/plant/NBIRTH/line-1", "spBv1.0/plant/NDATA/line-1"
ONE = payload(metric("Temp", double_field(13, 71.5), datatype=10), timestamp=T0_MS + 5)
ALGORITHMS = {
    "DEFLATE": zlib.compress(ONE),
    "GZIP": gzip.compress(ONE),
    "raw DEFLATE": zlib.compress(ONE, wbits=-zlib.MAX_WBITS),
}


@pytest.mark.parametrize("body", ALGORITHMS.values(), ids=ALGORITHMS)
@pytest.mark.parametrize("algorithm", [None, "DEFLATE", "GZIP"])
def test_compressed_payload_is_decoded_like_any_other(body: bytes, algorithm: str | None) -> None:
    records = decode_one(NDATA, compressed(body, algorithm=algorithm))
    assert values(records) == {"Temp": 71.5}
    assert times_us(records) == {(T0_MS + 5) * 1000}


def test_payload_within_takes_the_time_around_it_if_it_has_none() -> None:
    inner = payload(metric("Temp", double_field(13, 1.5), datatype=10), timestamp=None)
    assert times_us(decode_one(NDATA, compressed(zlib.compress(inner)))) == {T0_MS * 1000}


def test_compressed_birth_explains_aliases() -> None:
    birth = payload(metric("Temp", double_field(13, 0), alias=7, datatype=10, unit="Cel"))
    births = Births([(NBIRTH, compressed(zlib.compress(birth)))])
    (record,) = decode_one(NDATA, payload(metric(None, double_field(13, 2.5), alias=7)), births=births)
    assert (record.metric, record.unit, record.value) == ("Temp", "Cel", 2.5)


def test_bomb_is_inflated_no_further_than_its_bound() -> None:
    bomb = compressed(zlib.compress(bytes(50_000_000)))
    most = min(INFLATED_SLACK + INFLATED_FACTOR * len(bomb), PAYLOAD_MAX)
    assert problem_of(NDATA, bomb) == f"it inflates to more than {most} bytes"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (compressed(b"no stream at all"), "its body is compressed by neither DEFLATE nor GZIP"),
        (compressed(zlib.compress(ONE)[:-6]), "its compressed body ends too early"),
        (compressed(b""), "a compressed payload has no body"),
        (compressed(zlib.compress(compressed(b"x"))), "a compressed payload is in a compressed payload"),
        (compressed(zlib.compress(b"\xff")), "it is no payload of Sparkplug B"),
        (ONE + bytes_field(5, "whatever"), "it has a body of 8 bytes with no uuid"),
        (ONE + bytes_field(4, "ours") + bytes_field(5, "x"), "with uuid 'ours'"),
        (ONE + bytes_field(6, "vendor"), "it has fields that are not in Sparkplug B 3.0"),
        (payload(metric("m", bytes_field(19, "vendor"))), "a metric has an extension_value"),
        (
            payload(metric("m", data_set(["a"], [12], [[bytes_field(7, "vendor")]]))),
            "a metric has an extension_value",
        ),
    ],
)
def test_content_that_nothing_decodes_never_vanishes(content: bytes, reason: str) -> None:
    assert reason in problem_of(NBIRTH, content)


@pytest.mark.parametrize(
    ("code", "quality"),
    [(0, "bad"), (192, "good"), (216, "good"), (500, "stale"), (64, "uncertain"), (28, "bad"), (516, "bad")],
)
def test_quality_is_that_of_the_sender(code: int, quality: str) -> None:
    (record,) = decode_one(NDATA, payload(metric("m", double_field(13, 1), datatype=10, quality=code)))
    assert record.quality == quality


def test_quality_of_an_instance_is_that_of_its_metrics_unless_they_have_their_own() -> None:
    inner = (
        metric("a", double_field(13, 1), datatype=10),
        metric("b", double_field(13, 1), datatype=10, quality=192),
        metric("c", template(metric("d", double_field(13, 1), datatype=10)), datatype=19),
    )
    records = decode_one(NDATA, payload(metric("m", template(*inner), datatype=19, quality=0)))
    assert [(one.metric, one.quality) for one in records] == [("m.a", "bad"), ("m.b", "good"), ("m.c.d", "bad")]


@pytest.mark.parametrize("historical", [None, True, False])
def test_stored_value_is_told(historical: bool | None) -> None:
    (record,) = decode_one(NDATA, payload(metric("m", double_field(13, 1), datatype=10, historical=historical)))
    assert record.historical is historical


def test_definition_of_a_template_has_no_readings_and_an_instance_has() -> None:
    inner = metric("rpm", double_field(13, 1450), datatype=10)
    definition = metric("_types_/Motor", template(inner, definition=True), datatype=19)
    instance = metric("Motor1", template(inner), datatype=19)
    assert values(decode_one(NBIRTH, payload(definition, instance))) == {"Motor1.rpm": 1450.0}
    assert decode_one(NBIRTH, payload(definition)) == []


@pytest.mark.parametrize("field", [10, 11, 14])
@pytest.mark.parametrize("value", [0, 1])
def test_boolean_is_one_in_whatever_field(field: int, value: int) -> None:
    (record,) = decode_one(NDATA, payload(metric("m", number_field(field, value), datatype=11)))
    assert record.value_bool is bool(value)
    cells = data_set(["a"], [11], [[number_field({10: 1, 11: 2, 14: 5}[field], value)]])
    assert values(decode_one(NBIRTH, payload(metric("s", cells, datatype=16)))) == {"s.0.a": bool(value)}
