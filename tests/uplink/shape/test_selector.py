"""Which messages a route leaves out, and that what it remembers of them is bounded."""

import json
import random
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.message import Message
from uplink.shape import ShapeConfig, Shaping
from uplink.shape import selector as selector_module

PACKS = ("temperature", "humidity")


def sent_of(messages: list[Message], *rules: ShapeConfig) -> list[Message]:
    leaves_out = Shaping(rules, "site-1", "central").leaves_out
    assert leaves_out is not None
    return [message for message in messages if not leaves_out(message)]


def numbered(values: list[object], topic: str = "a", step_ms: int = 1000) -> list[Message]:
    """Messages with these payloads, one each second."""
    return [
        Message(topic, json.dumps(value).encode(), received_ms=1_000_000 + number * step_ms)
        for number, value in enumerate(values)
    ]


def payloads(messages: list[Message]) -> list[object]:
    return [json.loads(message.payload) for message in messages]


def test_of_each_topic_name_the_first_message_and_every_tenth_behind_it_are_sent() -> None:
    messages = [message for number in range(25) for topic in "ab" for message in numbered([number], topic)]
    sent = sent_of(messages, ShapeConfig(every=10))
    assert [(one.topic, one.payload) for one in sent] == [(t, b"%d" % n) for n in (0, 10, 20) for t in "ab"]


def test_a_number_that_changes_by_less_than_the_dead_band_is_left_out() -> None:
    sent = sent_of(numbered([20, 20.4, 20.5, 20.9, 20.1, 19.9, 20.0]), ShapeConfig(dead_band=0.5))
    assert payloads(sent) == [20, 20.5, 19.9]


def test_a_slow_drift_is_sent_as_it_is_compared_with_what_was_sent_last() -> None:
    sent = sent_of(numbered([number / 10 for number in range(31)]), ShapeConfig(dead_band=0.95))
    assert payloads(sent) == [0, 1, 2, 3]


def test_a_silent_sensor_still_shows_up_after_the_heartbeat() -> None:
    rule = ShapeConfig(dead_band=5, heartbeat_s=10)
    assert [one.received_ms for one in sent_of(numbered([1] * 31), rule)] == [
        1_000_000,
        1_010_000,
        1_020_000,
        1_030_000,
    ]


def test_a_clock_that_is_set_back_silences_no_sensor() -> None:
    first, *later = numbered([1, 1, 1])
    for message in later:
        message.received_ms -= 10**9
    assert sent_of([first, *later], ShapeConfig(dead_band=5)) == [first, later[0]]


def test_a_payload_too_large_to_look_into_has_no_fields_and_is_sent_by_a_dead_band() -> None:
    for kind in (b"1,", b'{"v":1},', b"[[[[[[]]]]]],"):
        whole = Message("a", b"[" + kind * (65_530 // len(kind)) + b"1]", received_ms=1_000_000)
        larger = Message("a", b"[" + kind * (65_540 // len(kind)) + b"1]" + b" " * 20, received_ms=1_000_000)
        assert len(whole.payload) <= 65_536 < len(larger.payload)
        assert sent_of([larger, larger], ShapeConfig(dead_band=5, field="v")) == [larger, larger]
        assert sent_of([whole, larger], ShapeConfig(where="json.0 IS NULL")) == (
            [larger] if kind == b"1," else [whole, larger]
        )


def test_what_cannot_be_judged_is_sent() -> None:
    odd = [Message("a", payload) for payload in (b"on", b"\xff", b'{"v": "on"}', b"{}", b"[]", b'{"v": true}', b"")]
    assert sent_of(odd * 2, ShapeConfig(dead_band=1, field="v")) == odd * 2


def test_a_message_is_left_out_unless_its_condition_is_known_to_be_true() -> None:
    messages = [Message("a", payload) for payload in (b"on", b"\xff", b"{}", b'{"v": 3}', b'{"v": 4}')]
    assert sent_of(messages, ShapeConfig(where="json.v > 3")) == messages[4:]
    assert sent_of(messages, ShapeConfig(where="json.v > 3 OR json.v IS NULL")) == [*messages[:3], messages[4]]


def test_each_series_of_a_senml_pack_has_its_own_last_number() -> None:
    def pack(*values: float) -> list[dict[str, object]]:
        return [{"n": name, "v": value} for name, value in zip(PACKS, values, strict=True)]

    sent = sent_of(
        numbered([pack(20, 50), pack(20.5, 50.5), pack(20, 52), pack(20.9, 51.1), pack(21, 52)]),
        ShapeConfig(dead_band=1, field="v"),
    )
    assert payloads(sent) == [pack(20, 50), pack(20, 52), pack(21, 52)]


def test_a_peak_among_the_readings_of_one_pack_is_sent() -> None:
    def pack(*values: float) -> list[dict[str, float]]:
        return [{"t": number, "v": value} for number, value in enumerate(values)]

    sent = sent_of(numbered([pack(1, 1), pack(1, 9, 1), pack(1, 1)]), ShapeConfig(dead_band=2, field="v"))
    assert payloads(sent) == [pack(1, 1), pack(1, 9, 1)]


def test_only_the_first_rule_that_matches_a_topic_name_applies() -> None:
    rules = [ShapeConfig("alarm/#"), ShapeConfig("+/slow", every=5), ShapeConfig(where="json > 7")]
    messages = [message for topic in ("alarm/slow", "a/slow", "b") for message in numbered(list(range(10)), topic)]
    assert [(one.topic, int(one.payload)) for one in sent_of(messages, *rules)] == [
        *(("alarm/slow", number) for number in range(10)),
        *(("a/slow", number) for number in (0, 5)),
        *(("b", number) for number in (8, 9)),
    ]


def test_every_counts_what_fulfils_the_condition_and_the_dead_band_sees_what_is_left() -> None:
    rule = ShapeConfig(where="json > 0", every=2, dead_band=3)
    assert payloads(sent_of(numbered([1, -1, 9, 2, -5, 9, 5, 9, 1]), rule)) == [1, 5, 1]


def test_rules_that_leave_nothing_out_ask_for_no_message() -> None:
    assert Shaping([ShapeConfig(topic="x/{topic}"), ShapeConfig(every=1)], "site-1", "central").leaves_out is None


def test_what_is_remembered_is_bounded_whatever_topic_names_and_series_there_are(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(selector_module, "TOPICS_MAX", 100)
    chance = random.Random(seed)
    leaves_out = Shaping([ShapeConfig(every=2, dead_band=1, field="v")], "site-1", "central").leaves_out
    assert leaves_out is not None

    def feed(count: int) -> None:
        for _ in range(count):
            pack = [{"n": chance.randbytes(500).hex(), "v": 1} for _ in range(chance.randrange(20))]
            leaves_out(Message(chance.randbytes(500).hex(), json.dumps(pack).encode()))

    feed(500)
    tracemalloc.start()
    try:
        feed(3000)
        grown, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert grown < 1_000_000


def test_the_topic_name_that_was_longest_without_a_message_is_forgotten_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selector_module, "TOPICS_MAX", 2)
    messages = [Message(topic, b"1") for topic in "abacab"]
    assert [one.topic for one in sent_of(messages, ShapeConfig(every=100))] == ["a", "b", "c", "b"]


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(-5, 5)), max_size=60), st.integers(1, 4), st.integers(1, 4)
)
def test_selection_agrees_with_a_toy(made: list[tuple[str, int]], every: int, band: int) -> None:
    messages = [Message(topic, b"%d" % value, received_ms=number) for number, (topic, value) in enumerate(made)]
    expected: list[Message] = []
    counted, last = dict.fromkeys("abc", 0), dict[str, int]()
    for message, (topic, value) in zip(messages, made, strict=True):
        if value == 0:
            continue
        counted[topic] += 1
        if (counted[topic] - 1) % every:
            continue
        if topic not in last or abs(value - last[topic]) >= band:
            last[topic] = value
            expected.append(message)
    assert sent_of(messages, ShapeConfig(where="json <> 0", every=every, dead_band=band)) == expected
