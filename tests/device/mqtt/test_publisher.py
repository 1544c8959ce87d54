"""From flash to the broker in virtual time: stores that are full, brokers that refuse, packet identifiers."""

import contextlib

import pytest

from flash_store.errors import StoreFull
from flash_store.log import packet_identifier
from tests.device.mqtt.publishing import TOPIC, arrived, drain, gaps, publish, rest, start
from tests.device.mqtt.virtual import VirtualBoard
from tests.support.model_broker import ModelBroker
from wire.codec.packets import Publish
from wire.errors import WireError


def test_messages_refused_for_good_hold_up_no_others() -> None:
    def refuse_the_first_nine(publish: Publish) -> int:
        return 0x87 if int(publish.payload) < 10 else 0

    board, broker = VirtualBoard(), ModelBroker(refuses=refuse_the_first_nine)
    device = start(board, broker)
    made = publish(device, 40)
    assert device.run(lambda: len(device.log) == 9, 3600)
    assert arrived(broker) == made[9:]
    broker.refuses = lambda _publish: 0
    drain(device)
    assert sorted(arrived(broker)) == made


@pytest.mark.parametrize("qos", [1, 2])
def test_what_a_broker_remarks_on_a_message_that_it_takes_is_said_once(qos: int) -> None:
    board, broker = VirtualBoard(), ModelBroker(remark="not its own identity")
    device = start(board, broker)
    made = publish(device, 20, qos)
    drain(device)
    assert arrived(broker) == made
    assert [line for line in board.lines if "identity" in line] == ["message 1 taken, but: not its own identity"]


@pytest.mark.parametrize(("topic", "qos"), [("a/#", 1), ("", 1), ("a/+", 2), ("t", 3), ("t", -1)])
def test_what_no_broker_would_take_is_not_stored(topic: str, qos: int) -> None:
    device = start(VirtualBoard(), ModelBroker())
    with pytest.raises((ValueError, WireError)):
        device.publish(topic, b"x", qos)
    assert not len(device.log)


def test_full_store_without_room_for_the_notes_of_pubrecs_keeps_its_connection_and_drains() -> None:
    board, broker = VirtualBoard(8), ModelBroker(takes=False)
    device = start(board, broker)
    rest(device)
    made = publish(device, 4)
    with contextlib.suppress(StoreFull):
        while True:
            made += publish(device, 1, qos=1)
    board.flash.bad_erases = set(range(8))  # until the reserve is gone
    with contextlib.suppress(StoreFull):
        while True:
            device.log.settings.set("filling", bytes(300))
    board.flash.bad_erases = set()
    with pytest.raises(StoreFull):
        device.log.note_pubrec(made[0])
    broker.takes = True
    device.port.cut()
    drain(device)
    assert sorted(arrived(broker)) == made
    assert broker.connects == 2


def test_messages_stay_in_flash_while_the_line_takes_nothing() -> None:
    board, broker = VirtualBoard(), ModelBroker()
    device = start(board, broker, qos=2)
    rest(device)
    device.port.has_room = False
    for number in range(20):
        device.publish(TOPIC, b"%d" % number, 2)
    rest(device)
    assert not arrived(broker)
    device.port.has_room = True
    drain(device)
    assert arrived(broker) == list(range(20))


def test_messages_of_qos_0_wait_in_ram_where_the_line_takes_nothing() -> None:
    board, broker = VirtualBoard(), ModelBroker()
    device = start(board, broker, qos=0)
    rest(device)
    device.port.has_room = False
    for number in range(100):
        device.publish(TOPIC, b"%d" % number, 0)
    rest(device)
    assert not arrived(broker)
    device.port.has_room = True
    rest(device)
    assert arrived(broker) == list(range(92, 100))
    assert device.qos0_queue is not None and device.qos0_queue.dropped == 92


@pytest.mark.parametrize("dies", ["never", "after", "before", "for another policy"])
def test_what_is_dropped_on_the_way_leaves_no_packet_identifier_at_the_broker(dies: str) -> None:
    """Where the power goes before or after it is dropped, too, and where another policy counts from then on."""
    board, broker = VirtualBoard(6), ModelBroker(completes=False)
    change = {"flash": {"path": "flash.bin", "sector_count": 6, "on_full": "drop_oldest"}}
    device = start(board, broker, **change)
    for _ in range(4):
        last = publish(device, 600)[-1]
        rest(device)
        device.port.cut()
        if dies == "before":
            device = start(board, broker, **change)
        if dies != "never":
            last = publish(device, 600)[-1]
        if dies == "after":
            device = start(board, broker, **change)
    if dies == "for another policy":
        device = start(board, broker, flash={"path": "flash.bin", "sector_count": 6})
    broker.completes = True
    device.port.cut()
    drain(device)
    assert not broker.session.received
    assert device.log.settings.get("unreleased") is None
    told = {number for first, end, _, _ in gaps(broker) for number in range(first, end + 1)}
    assert set(range(1, last + 1)) <= told | set(arrived(broker))


def test_message_waits_for_a_packet_identifier_that_a_request_has() -> None:
    board, broker = VirtualBoard(), ModelBroker(subscribes=False)
    device = start(board, broker, commands="commands/garage")
    rest(device)
    device.log._writer.last_id += 65_500  # the packet identifiers come round
    made = publish(device, 40)
    rest(device)
    assert broker.requests[0] in [packet_identifier(number) for number in made] and len(device.log)
    broker.subscribes = True
    device.port.cut()
    drain(device)
    assert arrived(broker) == made and not any("refused" in line for line in board.lines)


@pytest.mark.parametrize("first_round", [False, True])
def test_subscription_overtakes_no_message_and_takes_no_packet_identifier_of_one(first_round: bool) -> None:
    board, broker = VirtualBoard(), ModelBroker(takes=False)
    device = start(board, broker, commands="commands/garage")
    if not first_round:
        device.log._writer.last_id = 65_530  # as after 65,530 messages
    made = publish(device, 12)
    rest(device)
    for _ in range(2):
        device.port.cut()
        rest(device)
    broker.takes = True
    device.port.cut()
    drain(device)
    assert arrived(broker) == made
    assert not any("refused" in line for line in board.lines)
    own = {packet_identifier(number) for number in made}
    assert broker.requests and own.isdisjoint(broker.requests)
