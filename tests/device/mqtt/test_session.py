"""The device's session in virtual time: a broker that has lost it, or may have; a line that is cut; another name."""

import contextlib
from random import Random

import pytest

from flash_store.incoming import Incoming
from tests.device.mqtt.publishing import arrived, drain, gaps, origins, publish, rest, start
from tests.device.mqtt.virtual import VirtualBoard
from tests.support.model_broker import ModelBroker
from tools.lab.sim.nor import PowerCut
from wire.codec.packets import Publish


@pytest.mark.parametrize("change", [{}, {"lost_session": "resend"}])
@pytest.mark.parametrize("version", ["5", "3.1.1"])
def test_what_a_lost_session_had_taken_is_resent_by_default(change: dict[str, str], version: str) -> None:
    board, broker = VirtualBoard(), ModelBroker(completes=False)
    device = start(board, broker, mqtt_version=version, **change)
    made = publish(device, 12)
    rest(device)
    assert len(device.log.pubrecs()) == 8 and not broker.arrived
    broker.forget()
    broker.completes = True
    device.port.cut()
    drain(device)
    assert arrived(broker) == made and not device.log.gaps()


def test_what_is_not_resent_is_told_as_a_gap() -> None:
    board, broker = VirtualBoard(), ModelBroker(completes=False)
    device = start(board, broker, lost_session="drop")
    made = publish(device, 12)
    rest(device)
    broker.forget()
    broker.completes = True
    device.port.cut()
    drain(device)
    assert arrived(broker) == made[8:]
    assert gaps(broker) == [(1, 8, 8, "forsaken")]
    assert any("has lost the session, and 8 messages" in line for line in board.lines)


@pytest.mark.parametrize("cut", range(1, 8))
def test_power_cut_while_messages_are_forsaken_hides_none(cut: int, seed: int) -> None:
    board, broker = VirtualBoard(), ModelBroker(completes=False)
    device = start(board, broker, lost_session="drop", commands="c")
    publish(device, 4)
    rest(device)
    broker.forget()
    broker.completes = True
    device.port.cut()
    board.cut_power_at(cut, Random(seed))
    with contextlib.suppress(PowerCut):
        rest(device)
    board.cut_power_at(None, Random(seed))
    device = start(board, broker, lost_session="drop", commands="c")
    publish(device, 1)
    drain(device)
    told = {number for first, last, _, _ in gaps(broker) for number in range(first, last + 1)}
    assert told | set(arrived(broker)) >= {1, 2, 3, 4}
    assert all(count <= last - first + 1 for first, last, count, _ in gaps(broker))


def test_what_is_being_resent_goes_on_being_resent_where_the_configuration_changes() -> None:
    board, broker = VirtualBoard(), ModelBroker(completes=False)
    device = start(board, broker)
    made = publish(device, 4)
    rest(device)
    broker.forget()
    broker.takes = False
    device.port.cut()
    rest(device)
    broker.takes = broker.completes = True
    device = start(board, broker, lost_session="drop")
    drain(device)
    assert arrived(broker) == made and not gaps(broker)


def test_broker_that_accepts_and_leaves_is_left_alone_more_and_more() -> None:
    board, broker = VirtualBoard(), ModelBroker(packets_left=2)
    device = start(board, broker)
    publish(device, 1, qos=1)

    def leave_again() -> None:
        device.port.cut()
        broker.packets_left = 2

    broker.cut = leave_again
    device.run(seconds=600)
    assert 10 < broker.connects < 100


@pytest.mark.parametrize("change", [{}, {"commands": "commands/garage"}])
def test_new_session_whose_connack_is_lost_costs_nothing(change: dict[str, str]) -> None:
    board, broker = VirtualBoard(), ModelBroker(completes=False)
    device = start(board, broker, **change)
    made = publish(device, 4)
    rest(device)
    broker.forget()
    broker.completes, broker.packets_left = True, 1
    device.port.cut()
    made += publish(device, 8)
    drain(device)
    assert arrived(broker) == made


def test_power_cut_before_a_new_session_is_noted_costs_nothing_where_the_device_subscribes() -> None:
    board, broker = VirtualBoard(), ModelBroker(completes=False)
    device = start(board, broker, commands="commands/garage")
    made = publish(device, 4)
    rest(device)
    broker.forget()
    broker.completes, broker.packets_left = True, 1
    device.port.cut()
    device.run(lambda: broker.packets_left is None)
    device = start(board, broker, commands="commands/garage")
    drain(device)
    assert arrived(broker) == made


@pytest.mark.parametrize("packets", range(1, 16))
def test_session_that_goes_on_brings_no_message_twice_wherever_the_line_is_cut(packets: int) -> None:
    """Also where what asks for the session's mark is cut, and what answers."""
    board, broker = VirtualBoard(), ModelBroker()
    device = start(board, broker, commands="commands/garage")
    rest(device)
    made = publish(device, 4)
    broker.packets_left = packets
    device.run(lambda: broker.packets_left is None, 5)
    device = start(board, broker, commands="commands/garage")
    broker.packets_left = packets // 2 + 1
    device.run(lambda: broker.packets_left is None, 5)
    device = start(board, broker, commands="commands/garage")
    drain(device)
    assert arrived(broker) == made


def test_session_is_known_however_often_the_power_goes_behind_the_question_for_a_mark() -> None:
    board, broker = VirtualBoard(), ModelBroker(completes=False)
    device = start(board, broker, commands="commands/garage")
    rest(device)
    made = publish(device, 4)
    rest(device)
    for power_cut in range(6):
        device = start(board, broker, commands="commands/garage")
        broker.packets_left = 3 + power_cut
        device.run(lambda: broker.packets_left is None)
    broker.completes = True
    device = start(board, broker, commands="commands/garage")
    drain(device)
    assert arrived(broker) == made
    assert sum("to a new session" in line for line in board.lines) == 1, "the first"


def test_what_may_have_been_sent_in_a_session_that_is_another_goes_out_with_dup() -> None:
    board, broker = VirtualBoard(), ModelBroker(completes=False)
    device = start(board, broker, commands="commands/garage")
    publish(device, 4)
    rest(device)
    broker.forget()
    broker.completes, broker.packets_left = True, 1
    device.port.cut()
    drain(device)
    assert [message.dup for message in broker.publishes] == [False] * 4 + [True] * 4


def test_broker_that_never_answers_the_question_for_a_mark_gets_its_messages_all_the_same() -> None:
    board, broker = VirtualBoard(), ModelBroker(completes=False)
    device = start(board, broker, commands="commands/garage")
    made = publish(device, 4)
    rest(device)
    broker.completes, broker.unsubscribes = True, False
    device = start(board, broker, commands="commands/garage")
    drain(device)
    assert arrived(broker) == made


def test_broker_that_ends_the_connection_over_a_mark_is_done_without() -> None:
    board, broker = VirtualBoard(), ModelBroker(filters_max=1)
    device = start(board, broker, commands="commands/garage")
    made = publish(device, 4)
    assert device.run(lambda: broker.session.filters == ["commands/garage"], 60)
    drain(device)
    assert arrived(broker) == made


def test_store_keeps_the_name_of_its_messages_until_they_are_sent() -> None:
    board, broker = VirtualBoard(), ModelBroker(completes=False)
    device = start(board, broker)
    made = publish(device, 4)
    rest(device)
    device = start(board, broker, client_id="garage-2")
    assert device.config.client_id == "garage-1"
    assert any("client_id is garage-2 once the messages of garage-1 are sent" in line for line in board.lines)
    broker.completes = True
    device.run(lambda: device.has_ended, 60)
    assert board.restarts == 1 and arrived(broker) == made
    device = start(board, broker, client_id="garage-2")
    made += publish(device, 1)
    drain(device)
    assert arrived(broker) == made
    assert origins(broker) == ["garage-1"] * 4 + ["garage-2"]


def test_command_is_released_in_flash_while_the_device_asks_for_its_session() -> None:
    board, broker = VirtualBoard(), ModelBroker()
    device = start(board, broker, commands="commands/garage")
    rest(device)
    told = Publish("commands/garage", b'{"command": "identify"}', 2, False, False, 7, {})
    broker.packets_left = 1  # the PUBREL is lost
    device.port.command(told)
    device.run(lambda: broker.packets_left is None, 5)
    device = start(board, broker, commands="commands/garage")
    device.run(lambda: not broker.session.coming, 60)
    assert not Incoming(device.log.settings).identifiers
    device.port.command(told)
    drain(device)
    assert len([message for message in broker.arrived if message.topic.endswith("/answer")]) == 2


def test_session_of_an_older_firmware_without_marks_brings_no_message_twice() -> None:
    board, broker = VirtualBoard(), ModelBroker(completes=False)
    device = start(board, broker)
    made = publish(device, 4)
    rest(device)
    broker.completes, broker.packets_left = True, 3
    device.port.cut()
    device.run(lambda: broker.packets_left is None, 5)
    device = start(board, broker, commands="commands/garage")
    assert device.log.pubrecs()
    drain(device)
    assert arrived(broker) == made


def test_broker_that_grants_no_marks_is_not_asked_for_them() -> None:
    board, broker = VirtualBoard(), ModelBroker(completes=False, grants=["commands/garage"])
    device = start(board, broker, commands="commands/garage")
    made = publish(device, 4)
    rest(device)
    broker.completes, broker.packets_left = True, 4
    device.port.cut()
    device.run(lambda: broker.packets_left is None, 5)
    requests = len(broker.requests)
    device = start(board, broker, commands="commands/garage")
    assert device.log.pubrecs()
    drain(device)
    rest(device)
    assert arrived(broker) == made
    assert len(broker.requests) == requests + 1


def test_marks_of_another_session_say_nothing_of_this_one() -> None:
    board, broker = VirtualBoard(), ModelBroker()
    device = start(board, broker, commands="commands/garage")
    rest(device)
    broker.forget()
    broker.completes = False
    device = start(board, broker)
    made = publish(device, 4)
    rest(device)
    broker.completes, broker.packets_left = True, 3
    device.port.cut()
    device.run(lambda: broker.packets_left is None, 5)
    device = start(board, broker, commands="commands/garage")
    assert device.log.pubrecs()
    drain(device)
    assert arrived(broker) == made
