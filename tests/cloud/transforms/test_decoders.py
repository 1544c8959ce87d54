"""Which decoder takes a message; what no payload can do to the job."""

import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloud.transforms.decode import decode_payloads
from cloud.transforms.decoders import PROBLEM_MAX, decode_messages
from cloud.transforms.record import PAYLOAD_MAX, TEXT_FACTOR, TEXT_SLACK, Message
from tests.cloud.transforms.decoding import decode_one, problem_of, values
from wire.bulk.column_batch import CONTENT_TYPE as COLUMN_BATCH

TOPICS = [
    "a/b",
    "",
    "tele/x/SENSOR",
    "spBv1.0/g/NBIRTH/n",
    "spBv1.0/g/DDATA/n/d",
    "spBv1.0/STATE/h",
    "v3/a/devices/d/up",
]
CONTENT_TYPES = [
    None,
    "application/senml+json",
    "application/senml+cbor",
    "application/json",
    "text/plain; unit=Cel",
    "text/csv",
    "text/csv; header=present",
    COLUMN_BATCH,
    "application/pdf",
    ";;=",
]
GENUINE = [
    b'[{"bn":"garage:","bt":1760000000,"n":"t","v":1,"boot":2,"up":3},{"n":"h","vs":"x"}]',
    bytes.fromhex("82a3 0061 61 0844 6869200a 1863 01 a3 0061 62 05f9 4a40 6565787472618101"),
    b'{"Time":"2026-03-14T15:09:26Z","ENERGY":{"Power":[1,2.5,null]},"on":true}',
    b"21.5",
    b"time,a\n1760000000,2\n",
    bytes.fromhex("08f0aabb01120a0a0161100120092d0000803f"),
]


def test_a_payload_without_a_content_type_is_taken_for_what_it_begins_as() -> None:
    assert values(decode_one("a/b", '[{"n":"x","v":1}]')) == {"x": 1.0}
    assert values(decode_one("a/b", bytes.fromhex("81a2006178 0201"))) == {"x": 1.0}
    assert values(decode_one("a/b", ' {"x":1}')) == {"x": 1.0}
    assert values(decode_one("a/b", "1")) == {"b": 1.0}


def test_state_of_a_sparkplug_host_is_json() -> None:
    records = decode_one("spBv1.0/STATE/scada", '{"online":true,"timestamp":1773500966000}')
    assert values(records) == {"online": True}


def test_content_type_of_senml_makes_every_other_payload_undecodable() -> None:
    assert "Expected `array`" in problem_of("a/b", '{"x":1}', "application/senml+json")


def fuzzed(choose: random.Random) -> bytes:
    """Returns random bytes, or a genuine payload that is cut, repeated or has some other bytes."""
    if choose.random() < 0.3:
        return choose.randbytes(choose.randrange(60))
    payload = bytearray(choose.choice(GENUINE))
    for _ in range(choose.randrange(4)):
        at = choose.randrange(len(payload) + 1)
        match choose.randrange(4):
            case 0:
                payload[at:] = b""
            case 1:
                payload[at : at + 1] = choose.randbytes(1)
            case 2:
                payload[at:at] = payload[: choose.randrange(20)]
            case _:
                payload[at:at] = choose.choice([b"[", b"{", b'"', b"\\", b"\x9f", b"\xff" * 9, b"9" * 30, b"e99", b","])
    return bytes(payload)


def test_no_payload_stops_the_decoders_and_every_outcome_is_a_row(seed: int) -> None:
    choose = random.Random(seed)
    payloads = [fuzzed(choose) for _ in range(20_000)]
    topics = [choose.choice(TOPICS) for _ in payloads]
    content_types = [choose.choice(CONTENT_TYPES) for _ in payloads]
    decoded = decode_payloads(payloads, topics, content_types).to_pylist()
    assert len(decoded) == len(payloads)
    assert all((row["records"] is None) != (row["problem"] is None) for row in decoded)
    assert all(len(row["problem"] or "") <= PROBLEM_MAX for row in decoded)


@given(st.binary(max_size=80), st.sampled_from(TOPICS), st.sampled_from(CONTENT_TYPES))
def test_any_bytes_give_records_or_a_problem(payload: bytes, topic: str, content_type: str | None) -> None:
    (outcome,) = decode_messages([Message(topic, content_type, payload)])
    assert isinstance(outcome, list) or outcome != ""


@given(st.data())
def test_outcome_does_not_depend_on_the_other_messages(data: st.DataObject) -> None:
    messages = data.draw(
        st.lists(st.builds(Message, st.sampled_from(TOPICS), st.sampled_from(CONTENT_TYPES), st.sampled_from(GENUINE)))
    )
    assert decode_messages(messages) == [outcome for one in messages for outcome in decode_messages([one])]


RECORDS = [{"n": "a", "v": 1}] * 9_000
BOMBS: dict[str, tuple[str, bytes, str | None]] = {
    "a long base name": ("t", json.dumps([{"bn": "a" * 60_000, "v": 1}, *RECORDS]).encode(), None),
    "a long base unit": (
        "t",
        json.dumps([{"bu": "a" * 60_000, "n": "a", "v": 1}, *RECORDS]).encode(),
        None,
    ),
    "a long base name in CBOR": (
        "t",
        b"\x9f\xa2\x21\x79\xea\x60" + b"a" * 60_000 + b"\x02\x01" + b"\xa1\x02\x01" * 9_000 + b"\xff",
        None,
    ),
    "a long key": ("t", json.dumps({"k" * 60_000: [0] * 9_000}).encode(), None),
    "a long topic": ("t" * 60_000, json.dumps([0] * 60_000).encode(), None),
    "a long name of a column": ("t", b"c" * 60_000 + b"\n" + b"1\n" * 9_000, "text/csv"),
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_payload_that_resolves_to_a_thousand_times_its_size_is_refused(bomb: str) -> None:
    topic, payload, content_type = BOMBS[bomb]
    assert "far more than its size" in problem_of(topic, payload, content_type)


@given(st.integers(1, 400), st.integers(1, 400), st.sampled_from(["n", "key", "csv"]))
def test_text_of_all_records_is_within_the_bound(name: int, count: int, kind: str) -> None:
    payload, content_type = {
        "n": (json.dumps([{"bn": "a" * name, "v": 1}, *[{"v": 1}] * count]), None),
        "key": (json.dumps({"k" * name: [0] * count}), None),
        "csv": ("c" * name + "\n" + "1\n" * count, "text/csv"),
    }[kind]
    (outcome,) = decode_messages([Message("t", content_type, payload.encode())])
    if isinstance(outcome, list):
        text = sum(len(part) for record in outcome for part in record if isinstance(part, str))
        assert text <= TEXT_SLACK + TEXT_FACTOR * (len(payload) + 1)


def test_payload_that_is_too_long_is_refused() -> None:
    (outcome,) = decode_messages([Message("t", None, b"[" + b" " * PAYLOAD_MAX + b"1]")])
    assert outcome == f"the payload has {PAYLOAD_MAX + 3} bytes; up to {PAYLOAD_MAX} are decoded"


def test_payloads_of_every_kind_are_decoded_or_have_a_problem_together() -> None:
    contents = [*GENUINE, b"\xff\xfe", b""]
    decoded = decode_payloads(contents, ["a/b"] * len(contents), [None] * len(contents)).to_pylist()
    assert [one["problem"] is None for one in decoded] == [True, True, True, True, False, False, False, True]
