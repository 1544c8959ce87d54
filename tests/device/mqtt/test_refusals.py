"""Messages that a broker refuses, in virtual time: which are kept, which are set aside, and what tells of these."""

import contextlib
import json
from random import Random
from typing import Any

import pytest

from device.clock import Clock
from device.mqtt.commands import Commands
from device.mqtt.refusals import Refusals
from flash_store.gaps import DROPPED
from flash_store.log import Log
from tests.device.mqtt.publishing import TOPIC, arrived, drain, fill_heap, gaps, publish, rest, start
from tests.device.mqtt.virtual import VirtualBoard, VirtualDevice
from tests.support.model_broker import ModelBroker
from tools.lab.sim.nor import NorFlash, PowerCut
from wire.codec.packets import Publish
from wire.properties import MAXIMUM_PACKET_SIZE, RETAIN_AVAILABLE

MINUTE = 60.0
BAD = "doors/locked"  # no broker here takes a message of this topic
NOT_AUTHORIZED, QUOTA_EXCEEDED = 0x87, 0x97


def is_bad(publish: Publish) -> bool:
    return publish.topic == BAD


def refuse_bad(publish: Publish) -> int:
    return NOT_AUTHORIZED if is_bad(publish) else 0


def publish_on(device: VirtualDevice, count: int, qos: int = 1) -> list[int]:
    """Publishes `count` messages, one a minute; returns their numbers."""
    made = []
    for _ in range(count):
        made += publish(device, 1, qos)
        device.run(seconds=MINUTE)
    return made


def noted(device: VirtualDevice) -> dict[str, Any]:
    answer = Commands(device).act("commands", b'{"command": "set_aside"}', device.uptime.now_ms())
    assert answer is not None
    return answer


@pytest.mark.parametrize("qos", [1, 2])
def test_message_that_is_refused_over_and_over_is_set_aside_and_the_others_go_on(qos: int) -> None:
    board, broker = VirtualBoard(), ModelBroker(refuses=refuse_bad)
    device = start(board, broker)
    made = publish(device, 3, qos)
    bad = device.publish(BAD, b"never", qos)
    made += publish_on(device, 4, qos)
    drain(device)
    assert arrived(broker) == made
    assert gaps(broker) == [(bad, bad, 1, "rejected")]
    answer = noted(device)
    assert answer["count"] == 1
    (note,) = answer["messages"]
    assert (note["id"], note["topic"], note["boot"]) == (bad, BAD, 1) and "not authorized (0x87)" in note["reason"]
    assert any(f"message {bad} to {BAD} is set aside: not authorized" in line for line in board.lines)


def test_broker_that_takes_nothing_loses_nothing() -> None:
    board, broker = VirtualBoard(), ModelBroker(refuses=lambda _publish: NOT_AUTHORIZED)
    device = start(board, broker)
    made = publish(device, 40)
    device.run(seconds=60 * MINUTE)
    assert len(device.log) == 40
    broker.refuses = lambda _publish: 0
    drain(device)
    assert sorted(arrived(broker)) == made and not gaps(broker)


def test_quota_that_is_used_up_sets_nothing_aside() -> None:
    board, broker = VirtualBoard(), ModelBroker(refuses=lambda one: QUOTA_EXCEEDED if is_bad(one) else 0)
    device = start(board, broker)
    device.publish(BAD, b"later")
    publish_on(device, 10)
    assert len(device.log) == 1
    broker.refuses = lambda _publish: 0
    drain(device)
    assert [one.payload for one in broker.arrived if is_bad(one)] == [b"later"] and not gaps(broker)


@pytest.mark.parametrize(
    ("announced", "payload", "retain", "reason"),
    [
        ({MAXIMUM_PACKET_SIZE: 400}, bytes(500), False, "the peer takes 400"),
        ({RETAIN_AVAILABLE: 0}, b"x", True, "retain"),
    ],
    ids=["packet size", "retain"],
)
def test_message_that_this_broker_says_it_does_not_take_is_set_aside(
    announced: dict[int, object], payload: bytes, retain: bool, reason: str
) -> None:
    board, broker = VirtualBoard(), ModelBroker(announces=announced)
    device = start(board, broker)
    bad = device.publish(BAD, payload, 1, retain)
    publish_on(device, 5)
    drain(device)
    assert not any(is_bad(one) for one in broker.publishes)
    assert gaps(broker) == [(bad, bad, 1, "rejected")]
    assert reason in noted(device)["messages"][0]["reason"]


@pytest.mark.parametrize("qos", [1, 2])
def test_message_that_the_heap_has_no_room_to_send_is_set_aside_and_the_others_go_on(
    qos: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill_heap(monkeypatch, 3000)
    board, broker = VirtualBoard(), ModelBroker()
    device = start(board, broker)
    large = device.publish(BAD, bytes(3500), qos)
    made = publish(device, 12, qos)
    device.run(seconds=0.5)
    assert arrived(broker) == made
    made += publish_on(device, 4, qos)
    drain(device)
    assert arrived(broker) == made and gaps(broker) == [(large, large, 1, "rejected")]
    assert "memory allocation failed" in noted(device)["messages"][0]["reason"]


def test_message_that_the_heap_has_room_for_later_goes_out_then(monkeypatch: pytest.MonkeyPatch) -> None:
    fill_heap(monkeypatch, 3000)
    board, broker = VirtualBoard(), ModelBroker()
    device = start(board, broker)
    device.publish(BAD, bytes(3500))
    made = publish(device, 12)
    device.run(seconds=0.5)
    fill_heap(monkeypatch, 4000)
    drain(device)
    assert arrived(broker) == made and len(broker.arrived) == 13 and not gaps(broker)


@pytest.mark.parametrize("version", ["5", "3.1.1"])
@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("others_before", [0, 5])
def test_message_over_which_the_broker_ends_each_connection_is_set_aside(
    version: str, qos: int, others_before: int
) -> None:
    board, broker = VirtualBoard(), ModelBroker(ends=is_bad)
    device = start(board, broker, mqtt_version=version)
    made = publish(device, others_before, qos)
    bad = device.publish(BAD, b"never", qos)
    made += publish(device, 20, qos)
    assert device.run(lambda: len(device.log) <= 1, 10 * MINUTE), "the others do not wait for it"
    made += publish_on(device, 4, qos)
    drain(device)
    assert set(arrived(broker)) == set(made)
    assert gaps(broker) == [(bad, bad, 1, "rejected")]
    assert noted(device)["messages"][0]["topic"] == BAD


@pytest.mark.parametrize("reason_code", [NOT_AUTHORIZED, QUOTA_EXCEEDED])
def test_message_that_ended_connections_and_is_then_refused_holds_up_no_other(reason_code: int) -> None:
    board, broker = VirtualBoard(), ModelBroker(ends=is_bad)
    device = start(board, broker)
    bad = device.publish(BAD, b"never")
    device.run(seconds=20 * MINUTE)
    broker.ends, broker.refuses = lambda _publish: False, lambda one: reason_code if is_bad(one) else 0
    made = publish(device, 30)
    assert device.run(lambda: arrived(broker) == made, 20 * MINUTE)
    if reason_code == NOT_AUTHORIZED:
        publish_on(device, 4)
        drain(device)
        assert gaps(broker) == [(bad, bad, 1, "rejected")]


def test_broker_that_ends_the_connection_over_every_message_loses_nothing() -> None:
    board, broker = VirtualBoard(), ModelBroker(ends=lambda _publish: True)
    device = start(board, broker)
    made = publish(device, 40, 1)
    device.run(seconds=30 * MINUTE)
    assert len(device.log) == 40
    broker.ends = lambda _publish: False
    drain(device)
    assert sorted(set(arrived(broker))) == made and not gaps(broker)


def test_line_that_breaks_at_every_message_for_a_while_sets_none_aside() -> None:
    """The only message on the way each time, which is the usual state of a device that measures seldom."""
    board, broker = VirtualBoard(), ModelBroker()
    device = start(board, broker)
    for number in range(30):
        broker.ends = lambda _publish: True
        publish(device, 1, 1)
        device.run(seconds=number % 7)
        broker.ends = lambda _publish: False
        drain(device)
    assert sorted(set(arrived(broker))) == list(range(1, 31)) and not gaps(broker)


@pytest.mark.parametrize("cut", range(1, 10))
def test_power_cut_while_a_message_is_set_aside_counts_it_once(cut: int, seed: int) -> None:
    board, broker = VirtualBoard(), ModelBroker(refuses=refuse_bad)
    device = start(board, broker)
    bad = device.publish(BAD, b"never")
    publish_on(device, 1)
    publish(device, 2, 1)
    board.cut_power_at(cut, Random(seed))
    with contextlib.suppress(PowerCut):
        device.run(seconds=MINUTE)
    board.cut_power_at(None, Random(seed))
    device = start(board, broker)
    publish_on(device, 6)
    drain(device)
    rejected = [gap for gap in gaps(broker) if gap[3] == "rejected"]  # the cut may have torn a message, too
    assert rejected and set(rejected) == {(bad, bad, 1, "rejected")}
    assert noted(device)["count"] == 1 and len(noted(device)["messages"]) == 1


def test_refused_messages_that_are_gone_keep_no_later_one_from_being_set_aside() -> None:
    flash = NorFlash(4096, 16, 16, 0)
    Log.format(flash, 1)
    log = Log(flash)
    refusals = Refusals(log, Clock(1), print)
    for _ in range(40):
        refusals.refuse(gone := log.append(BAD, b"dropped", 1), NOT_AUTHORIZED, "no", 0)
        log.forsake([gone], DROPPED)
    bad = log.append(BAD, b"never", 1)
    for _ in range(4):
        refusals.refuse(bad, NOT_AUTHORIZED, "no", 0)
        refusals.take(log.append(TOPIC, b"taken", 1))
    assert log.gaps()[-1] == (bad, bad, 1, "rejected")


def test_last_notes_are_kept_and_all_messages_counted() -> None:
    board, broker = VirtualBoard(), ModelBroker(refuses=refuse_bad)
    device = start(board, broker, commands="c", health_interval_ms=600_000)
    bad = []
    for number in range(20):
        bad.append(device.publish(BAD, b"%d" % number))
        publish_on(device, 4)
    drain(device)
    answer = noted(device)
    ids = [note["id"] for note in answer["messages"]]
    assert answer["count"] == 20 and 3 <= len(ids) <= 8 and ids == bad[-len(ids) :]
    told = [
        one["v"]
        for publish in broker.arrived
        if b"health" in publish.payload
        for one in json.loads(publish.payload)
        if one["n"] == "health.set_aside"
    ]
    assert told and 0 < told[-1] <= 20
    refused = {
        number for first, last, _, reason in gaps(broker) if reason == "rejected" for number in range(first, last + 1)
    }
    assert refused >= set(bad)


def test_device_goes_on_past_65_535_messages_behind_one_that_no_broker_takes() -> None:
    board, broker = VirtualBoard(), ModelBroker(refuses=refuse_bad)
    device = start(board, broker)
    device.publish(BAD, b"never")
    publish_on(device, 5)
    device.log._writer.last_id += 65_530  # as after 65,530 messages
    publish(device, 20, 1)
    drain(device)
    rest(device)
    assert len([one for one in broker.arrived if one.topic == TOPIC]) >= 25
