"""Messages to the device in virtual time: taken once and answered once, whatever dies when and however full it is."""

import contextlib
import json
from random import Random
from typing import Any

import pytest

from flash_store.errors import StoreFull
from flash_store.incoming import Incoming
from tests.device.mqtt.virtual import VirtualBoard, VirtualDevice
from tests.support.scripted_broker import ScriptedBroker, silent
from tools.lab.sim.nor import PowerCut
from wire.codec.packets import Publish, Subscribe
from wire.codec.subscribe import NO_LOCAL, RETAIN_NEVER
from wire.properties import CORRELATION_DATA, RESPONSE_TOPIC

COMMANDS = "commands/garage"
ANSWERS = "telemetry/garage/answer"


def command(payload: bytes = b"open", qos: int = 2, retain: bool = False, **properties: Any) -> Publish:
    told = {CORRELATION_DATA: properties.get("correlation"), RESPONSE_TOPIC: properties.get("answer_topic")}
    present = {name: value for name, value in told.items() if value is not None}
    return Publish(COMMANDS, payload, qos, retain, False, 7 if qos else None, present)


def again(of: Publish) -> Publish:
    return Publish(of.topic, of.payload, of.qos, of.retain, True, of.packet_identifier, of.properties)


def told(**keys: Any) -> bytes:
    return json.dumps(keys).encode()


def answers(broker: ScriptedBroker, topic: str = ANSWERS) -> list[Any]:
    """Each answer once, in order, by its number."""
    unique = {p.packet_identifier: p for publishes in broker.publishes for p in publishes if p.topic == topic}
    return [json.loads(publish.payload) for publish in unique.values()]


class DoorOpener:
    """A program of a user's own that counts what it does."""

    def __init__(self) -> None:
        self.opened = 0

    def __call__(self, topic: str, payload: bytes) -> dict[str, Any]:
        self.opened += 1
        return {"door": "open"}


def start(board: VirtualBoard, broker: ScriptedBroker, on_message: Any = None, **change: Any) -> VirtualDevice:
    """A device that takes commands, connected."""
    device = VirtualDevice(board, broker, on_message, **{"commands": COMMANDS, **change})
    subscriptions = len(broker.subscribes)
    assert device.run(lambda: len(broker.subscribes) > subscriptions)
    return device


def answered(device: VirtualDevice, broker: ScriptedBroker, payload: bytes, **how: Any) -> Any:
    """What a message is answered with, once nothing is on the way any more."""
    before, released = len(answers(broker)), len(broker.pubcomps)
    sent = command(payload, **how)
    device.port.command(sent)
    assert device.run(lambda: len(answers(broker)) > before and not len(device.log), 60)
    if sent.qos == 2 and broker.releases:
        assert device.run(lambda: len(broker.pubcomps) > released, 60)
    return answers(broker)[-1]


def fill(device: VirtualDevice) -> None:
    """With messages that are never acknowledged, until no more go in."""
    for size in (900, 0):
        with contextlib.suppress(StoreFull):
            while True:
                device.publish("filling", bytes(size))


def take(_publish: Publish) -> int:
    return 0


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_message_of_each_qos_is_acted_on_and_acknowledged_as_its_qos_wants(qos: int) -> None:
    board, broker, door = VirtualBoard(), ScriptedBroker(), DoorOpener()
    device = start(board, broker, door)
    assert answered(device, broker, b"open", qos=qos) == {"door": "open"}
    assert (broker.pubacks, broker.pubrecs) == ([7] if qos == 1 else [], [7] if qos == 2 else [])
    assert door.opened == 1


@pytest.mark.parametrize("power", [False, True], ids=["line cut", "power cut"])
def test_a_message_that_comes_again_though_it_was_confirmed_is_not_acted_on_again(power: bool) -> None:
    board, broker, door = VirtualBoard(), ScriptedBroker(releases=False), DoorOpener()
    device = start(board, broker, door)
    assert answered(device, broker, b"open") == {"door": "open"}
    broker.session_present, broker.releases = True, True
    broker.commands = [again(command())]  # its PUBREC was lost
    if power:
        device = start(board, broker, door)
    else:
        device.port.cut()
    assert device.run(lambda: len(broker.pubrecs) == 2, 60)
    device.run(seconds=60)
    assert door.opened == 1 and len(answers(broker)) == 1
    assert answered(device, broker, b"open") == {"door": "open"}, "its identifier is free again"
    assert door.opened == 2


@pytest.mark.parametrize("what", ["own program", "report", "interval"])
@pytest.mark.parametrize("operation", range(1, 14))
def test_power_cut_at_any_operation_leaves_one_answer_to_what_was_done(operation: int, what: str, seed: int) -> None:
    """A program of one's own publishes twice before it answers, so that those messages could pass for the answer."""
    board, broker, chance = VirtualBoard(seed=seed), ScriptedBroker(session_present=True), Random(seed)
    devices: list[VirtualDevice] = []
    opened: list[int] = []

    def open_door(topic: str, payload: bytes) -> dict[str, Any]:
        for text in (b"opening", b"open"):
            devices[-1].publish("doors/front", text)
        opened.append(1)
        return {"command": "own program", "done": True}

    payload = told(command=what, interval_ms=60_000)
    on_message = open_door if what == "own program" else None
    devices.append(start(board, broker, on_message))
    board.cut_power_at(operation, chance)
    try:
        devices[-1].port.command(command(payload))
        devices[-1].run(seconds=60)
    except PowerCut:
        pass
    board.cut_power_at(None, chance)
    broker.commands = [] if 7 in broker.pubrecs else [again(command(payload))]
    devices.append(VirtualDevice(board, broker, on_message, commands=COMMANDS))
    assert devices[-1].run(lambda: 7 in broker.pubrecs and answers(broker), 600)
    broker.commands = []
    devices[-1].run(seconds=60)
    devices.append(start(board, broker, on_message))
    devices[-1].run(seconds=60)
    assert [(answer["command"], answer["done"]) for answer in answers(broker)] == [(what, True)]
    assert opened or what != "own program"


@pytest.mark.parametrize("qos", [1, 2])
def test_full_store_acts_once_and_answers_when_there_is_room(qos: int) -> None:
    board, broker, door = VirtualBoard(6), ScriptedBroker(puback=silent, session_present=True), DoorOpener()
    device = start(board, broker, door)
    fill(device)
    device.port.command(command(b"open", qos))
    device.run(seconds=60)
    assert (door.opened, answers(broker)) == (1, [])
    broker.puback, broker.commands = take, []
    device.port.cut()
    if qos == 1:
        broker.commands = [again(command(b"open", 1))]  # it had no PUBACK, so that it may be done twice
    assert device.run(lambda: answers(broker) and not len(device.log), 600)
    assert door.opened == (2 if qos == 1 else 1)
    assert answers(broker) == [{"door": "open"}]


def test_restart_that_is_ordered_while_the_store_is_full_waits_for_its_answer() -> None:
    board, broker = VirtualBoard(6), ScriptedBroker(puback=silent, session_present=True)
    device = start(board, broker)
    fill(device)
    device.port.command(command(told(command="restart")))
    device.run(seconds=60)
    assert board.restarts == 0
    broker.puback = take
    device.port.cut()
    assert not device.run(seconds=600) and device.has_ended
    broker.session_present = True
    device = start(board, broker)
    device.run(seconds=60)
    assert board.restarts == 1 and answers(broker) == [{"command": "restart", "done": True}]


@pytest.mark.parametrize("changes_session", [False, True])
def test_message_that_waited_for_room_is_done_after_its_session_and_the_power_are_gone(changes_session: bool) -> None:
    board, broker, door = VirtualBoard(6), ScriptedBroker(puback=silent, session_present=True), DoorOpener()
    device = start(board, broker, door)
    fill(device)
    device.port.command(command())
    device.run(seconds=10)
    assert broker.pubrecs == [7] and not answers(broker)
    broker.session_present = not changes_session
    device.port.cut()
    device.run(seconds=60)
    broker.session_present, broker.puback = True, take
    device = start(board, broker, door)
    assert device.run(lambda: answers(broker) and not len(device.log), 600)
    assert answers(broker) == [{"door": "open"}]
    assert Incoming(device.log.settings).identifiers == ([] if changes_session else [7])


@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize(
    ("payload", "told_with", "expected"),
    [
        (told(command="identify"), {"correlation": b"\x01" * 900}, "the answer does not fit"),
        (told(command="identify"), {"correlation": b"\xff" * 2500}, "the answer does not fit"),
        (told(command="identify"), {"answer_topic": "a/" + "b" * 3950}, "the answer does not fit"),
        (told(command="interval", interval_ms=60_000, pad="x" * 1900), {}, None),
        (b"\xff" * 3000, {}, "expected a JSON object"),
    ],
    ids=["control characters", "bytes", "answer's topic", "room of a setting", "no JSON"],
)
def test_message_that_is_too_large_for_its_answer_or_for_flash_stops_nothing(
    payload: bytes, told_with: dict[str, Any], expected: str | None, qos: int
) -> None:
    board, broker = VirtualBoard(), ScriptedBroker()
    device = start(board, broker)
    device.port.command(command(payload, qos, **told_with))
    device.run(seconds=60)
    assert broker.pubacks + broker.pubrecs == [7]
    if qos == 1 and expected:
        assert expected in answers(broker)[0]["error"]
    broker.session_present = True
    for _ in range(3):
        device = start(board, broker)
        assert answered(device, broker, told(command="identify"))["client_id"] == "garage-1"


@pytest.mark.parametrize("version", ["5", "3.1.1"])
def test_message_larger_than_flash_keeps_is_refused_or_passed_over_and_nothing_is_done_in_its_place(
    version: str,
) -> None:
    """Over MQTT 3.1.1, which cannot refuse it, an older message with its identifier lies in flash."""
    board, broker, door = VirtualBoard(), ScriptedBroker(session_present=True, releases=False), DoorOpener()
    device = start(board, broker, door, mqtt_version=version)
    board.cut_power_at(2, Random(0))
    device.port.command(command(b"older"))
    with pytest.raises(PowerCut):
        device.run(seconds=60)
    board.cut_power_at(None, Random(0))
    device = start(board, broker, door, mqtt_version=version)
    device.port.command(command(bytes(2000)))
    device.run(seconds=60)
    device = start(board, broker, door, mqtt_version=version)
    device.run(seconds=60)
    assert broker.pubrecs == [7] and door.opened == 0
    assert any("is refused: 2038 bytes" in line for line in board.lines)


def test_answer_to_an_empty_topic_goes_to_the_devices_own() -> None:
    board, broker = VirtualBoard(), ScriptedBroker()
    device = start(board, broker, DoorOpener())
    assert answered(device, broker, b"open", answer_topic="") == {"door": "open"}


@pytest.mark.parametrize("version", ["5", "3.1.1"])
def test_retained_message_is_acknowledged_and_not_acted_on(version: str) -> None:
    board, broker, door = VirtualBoard(), ScriptedBroker(), DoorOpener()
    device = start(board, broker, door, mqtt_version=version)
    for qos in (0, 1, 2):
        device.port.command(command(b"open", qos, retain=True))
        device.run(seconds=60)
    assert (broker.pubacks, broker.pubrecs, door.opened) == ([7], [7], 0)
    assert sum("retained" in line for line in board.lines) == 3
    subscribe = broker.subscribes[0]
    assert isinstance(subscribe, Subscribe)
    assert subscribe.filters[0] == (COMMANDS, 2 | (NO_LOCAL | RETAIN_NEVER if version == "5" else 0))


@pytest.mark.parametrize(
    ("mistake", "error"),
    [
        (lambda topic, payload: 1 // 0, "ZeroDivisionError"),
        (lambda topic, payload: {"bytes": b"no JSON"}, "TypeError"),
        (lambda topic, payload: "text", "TypeError"),
    ],
    ids=["raises", "no JSON", "no dict"],
)
def test_mistake_of_a_program_is_answered_as_an_error_and_ends_nothing(mistake: Any, error: str) -> None:
    board, broker = VirtualBoard(), ScriptedBroker(session_present=True)
    device = start(board, broker, mistake)
    assert error in answered(device, broker, b"open", correlation=b"1")["error"]
    device = start(board, broker, mistake)
    assert error in answered(device, broker, b"open", correlation=b"2")["error"]


def test_report_without_room_is_answered_so_and_sampling_does_not_pause_for_it() -> None:
    board, broker = VirtualBoard(6), ScriptedBroker(puback=silent)
    device = start(board, broker)
    fill(device)
    device.port.command(command(told(command="report")))
    device.run(seconds=60)
    broker.puback = take
    device.port.cut()
    assert device.run(lambda: answers(broker), 600)
    assert answers(broker) == [{"command": "report", "error": "the store has no room for it"}]
    assert not any("sampling" in line for line in board.lines)


def test_messages_of_qos_0_that_come_while_the_store_is_full_are_bounded_and_each_that_is_dropped_is_said() -> None:
    board, broker, door = VirtualBoard(6), ScriptedBroker(puback=silent), DoorOpener()
    device = start(board, broker, door)
    fill(device)
    for _ in range(30):
        device.port.command(command(b"open", 0))
        device.run(seconds=0.01)
    assert sum("of QoS 0" in line and "is dropped" in line for line in board.lines) == 10
    for message in list(device.log.messages()):
        device.log.acknowledge(message[0])
    device.run(seconds=60)
    assert door.opened == 20


def test_filter_that_was_changed_is_unsubscribed_before_the_new_one_is_subscribed() -> None:
    board, broker, door = VirtualBoard(), ScriptedBroker(), DoorOpener()
    start(board, broker, door, commands="old/#")
    broker.session_present = True
    device = start(board, broker, door)
    device.run(seconds=1)
    old, leave, new = broker.subscribes
    assert (old.filters[0][0], leave.filters, new.filters[0][0]) == ("old/#", ["old/#"], COMMANDS)
    device = start(board, broker, door)
    device.run(seconds=1)
    assert len(broker.subscribes) == 4, "it is unsubscribed once"
    device.port.command(Publish("old/door", b"open", 2, False, False, 9, {}))
    device.run(seconds=60)
    assert broker.pubrecs == [9] and door.opened == 0
    assert answered(device, broker, b"open") == {"door": "open"}


def test_shared_filter_takes_what_it_shares() -> None:
    board, broker, door = VirtualBoard(), ScriptedBroker(), DoorOpener()
    device = start(board, broker, door, commands=f"$share/doors/{COMMANDS}")
    assert answered(device, broker, b"open") == {"door": "open"}


def test_interval_of_a_command_is_said_at_each_start() -> None:
    board, broker = VirtualBoard(), ScriptedBroker()
    device = start(board, broker)
    assert answered(device, broker, told(command="interval", interval_ms=60_000))["done"]
    assert not any("by a command" in line for line in board.lines)
    start(board, broker, interval_ms=5_000)
    assert "interval_ms is 60000 by a command, in place of 5000" in board.lines
