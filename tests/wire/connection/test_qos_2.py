"""QoS 2 in both directions, and sessions that go on: the same for both ends and both versions."""

from collections.abc import Callable

import pytest

from tests.wire.connection.talk import connected_client, connected_server, events, sent
from wire import properties as p
from wire import reasons
from wire.codec.packets import MQTT_3_1_1, Connack, Connect, Packet, Puback, Pubcomp, Publish, Pubrec, Pubrel
from wire.connection import Connection
from wire.connection.client import ClientConnection
from wire.connection.server import ServerConnection
from wire.errors import Closed, LocalProtocolError

ENDS: dict[str, Callable[[], Connection]] = {
    "client 5.0": connected_client,
    "client 3.1.1": lambda: connected_client(protocol_level=MQTT_3_1_1, retry_interval_ms=0),
    "server 5.0": connected_server,
    "server 3.1.1": lambda: connected_server(Connect("dev", protocol_level=MQTT_3_1_1)),
}
both_ends = pytest.mark.parametrize("make", ENDS.values(), ids=ENDS.keys())
only_5 = pytest.mark.parametrize("make", [connected_client, connected_server])


def message(identifier: int, dup: bool = False) -> Publish:
    return Publish("a", b"x", 2, dup=dup, packet_identifier=identifier)


@both_ends
def test_message_goes_out_in_four_steps_each_of_which_waits_for_the_application(make: Callable[[], Connection]) -> None:
    connection = make()
    assert connection.publish("a", b"x", qos=2, packet_identifier=7) == 7
    assert sent(connection) == [message(7)]
    assert events(connection, Pubrec(7)) == [Pubrec(7)]
    assert sent(connection) == []
    connection.pubrel(7)
    assert sent(connection) == [Pubrel(7)]
    assert events(connection, Pubcomp(7), Pubcomp(7)) == [Pubcomp(7)]
    assert connection.publish("a", b"y", packet_identifier=7) == 7


@both_ends
def test_message_comes_in_in_four_steps_each_of_which_waits_for_the_application(make: Callable[[], Connection]) -> None:
    connection = make()
    assert events(connection, message(7)) == [message(7)]
    assert sent(connection) == []
    connection.pubrec(7)
    assert sent(connection) == [Pubrec(7)]
    assert events(connection, Pubrel(7)) == [Pubrel(7)]
    assert sent(connection) == []
    connection.pubcomp(7)
    assert sent(connection) == [Pubcomp(7)]
    assert events(connection, message(7)) == [message(7)]


@both_ends
def test_message_that_comes_again_is_shown_once(make: Callable[[], Connection]) -> None:
    connection = make()  # [MQTT-4.3.3-10]
    assert events(connection, message(7), message(7, dup=True)) == [message(7)]
    connection.pubrec(7)
    assert sent(connection) == [Pubrec(7)]
    assert events(connection, message(7, dup=True)) == []
    assert sent(connection) == [Pubrec(7)]
    assert events(connection, Pubrel(7), Pubrel(7)) == [Pubrel(7)]
    connection.pubcomp(7)
    assert sent(connection) == [Pubcomp(7)]


@both_ends
def test_pubrec_that_comes_again_is_answered_as_far_as_the_application_is(make: Callable[[], Connection]) -> None:
    connection = make()
    connection.publish("a", b"x", qos=2)
    assert events(connection, Pubrec(1), Pubrec(1)) == [Pubrec(1)]
    connection.pubrel(1)
    sent(connection)
    assert events(connection, Pubrec(1)) == []
    assert sent(connection) == [Pubrel(1)]  # [MQTT-4.3.3-4]


@only_5
def test_identifiers_that_stand_for_nothing_are_answered_so(make: Callable[[], Connection]) -> None:
    connection = make()
    assert events(connection, Pubrec(5), Pubrel(6), Pubcomp(7), Puback(8), Pubrec(9, 0x97)) == []
    not_found = reasons.PACKET_IDENTIFIER_NOT_FOUND
    assert sent(connection) == [Pubrel(5, not_found), Pubcomp(6, not_found)]


@pytest.mark.parametrize("make", [ENDS["client 3.1.1"], ENDS["server 3.1.1"]])
def test_identifiers_that_stand_for_nothing_are_let_go_in_3_1_1(make: Callable[[], Connection]) -> None:
    connection = make()
    assert events(connection, Pubrec(5), Pubrel(6)) == []
    assert sent(connection) == [Pubrel(5), Pubcomp(6)]


@only_5
def test_refused_message_ends_with_its_refusal(make: Callable[[], Connection]) -> None:
    connection = make()
    connection.publish("a", b"x", qos=2, packet_identifier=3)
    refusal = Pubrec(3, reasons.QUOTA_EXCEEDED)
    assert events(connection, refusal) == [refusal]
    assert connection.publish("a", b"x", qos=2, packet_identifier=3) == 3
    sent(connection)
    events(connection, message(9))
    connection.pubrec(9, reasons.QUOTA_EXCEEDED, "full")
    assert sent(connection) == [Pubrec(9, reasons.QUOTA_EXCEEDED, {p.REASON_STRING: "full"})]
    assert events(connection, message(9)) == [message(9)]


@both_ends
@pytest.mark.parametrize(
    "packets",
    [
        [Puback(1)],
        [Pubcomp(1)],
        [Pubrec(1), Pubcomp(1)],
        [Pubrec(2)],
        [message(9), Pubrel(9)],
        [Publish("a", b"", 1, packet_identifier=9), message(9)],
    ],
    ids=repr,
)
def test_step_out_of_turn_is_a_protocol_error(make: Callable[[], Connection], packets: list[Packet]) -> None:
    connection = make()
    connection.publish("a", b"x", qos=2)
    connection.publish("a", b"x", qos=1)
    found = events(connection, *packets)
    assert isinstance(found[-1], Closed)
    assert found[-1].reason_code == reasons.PROTOCOL_ERROR


@both_ends
def test_our_own_step_out_of_turn_is_our_own_error(make: Callable[[], Connection]) -> None:
    connection = make()
    connection.publish("a", b"x", qos=2)
    events(connection, message(9), Publish("a", b"", 1, packet_identifier=10))
    sent(connection)
    steps: list[Callable[[], None]] = [
        lambda: connection.pubrel(1),
        lambda: connection.puback(9),
        lambda: connection.pubcomp(9),
        lambda: connection.pubrec(10),
        lambda: connection.pubrec(11),
    ]
    for step in steps:
        with pytest.raises(LocalProtocolError):
            step()
    assert sent(connection) == []


@only_5
def test_quota_comes_back_with_pubcomp(make: Callable[[], Connection]) -> None:
    connection = make()
    full = connection.send_quota
    connection.publish("a", b"x", qos=2)
    events(connection, Pubrec(1))
    connection.pubrel(1)
    assert connection.send_quota == full - 1
    events(connection, Pubcomp(1))
    assert connection.send_quota == full


def test_receive_maximum_counts_until_our_pubcomp() -> None:
    client = connected_client(receive_maximum=1)
    events(client, message(1))
    client.pubrec(1)
    events(client, Pubrel(1))
    client.pubcomp(1)
    assert events(client, message(2)) == [message(2)]
    client.pubrec(2)
    (closed,) = events(client, message(3))
    assert closed.reason_code == reasons.RECEIVE_MAXIMUM_EXCEEDED


def resumed_client() -> ClientConnection:
    """With room for one message on the way."""
    return connected_client(Connack(True, 0, {p.RECEIVE_MAXIMUM: 1}), receive_maximum=1)


def resumed_server() -> ServerConnection:
    server = ServerConnection(receive_maximum=1)
    events(server, Connect("dev", properties={p.RECEIVE_MAXIMUM: 1}))
    server.accept(True)
    sent(server)
    return server


@pytest.mark.parametrize("make", [resumed_client, resumed_server])
def test_session_goes_on_with_pubrels_then_publishes_under_their_first_identifiers(
    make: Callable[[], Connection],
) -> None:
    connection = make()
    for identifier in (31, 30):
        connection.pubrel(identifier)
    assert connection.publish("a", b"x", qos=2, dup=True, packet_identifier=32) == 32
    assert sent(connection) == [Pubrel(31), Pubrel(30), message(32, dup=True)]  # [MQTT-4.4.0-1]
    assert connection.send_quota == 0
    assert events(connection, Pubcomp(31), Pubcomp(30)) == [Pubcomp(31), Pubcomp(30)]
    assert connection.send_quota == 0  # they took no place on this connection
    events(connection, Pubrec(32))
    connection.pubrel(32)
    events(connection, Pubcomp(32))
    assert connection.send_quota == 1


@pytest.mark.parametrize("make", [resumed_client, resumed_server])
def test_message_of_an_earlier_connection_is_not_shown_again(make: Callable[[], Connection]) -> None:
    connection = make()
    connection.resume([5, 6])
    assert events(connection, message(5, dup=True)) == []
    assert sent(connection) == [Pubrec(5)]
    assert events(connection, Pubrel(6), message(7)) == [Pubrel(6), message(7)]
    connection.pubcomp(6)
    assert sent(connection) == [Pubcomp(6)]
    assert events(connection, Pubrel(5)) == [Pubrel(5)]


@only_5
def test_message_is_not_sent_again_over_one_connection_of_5(make: Callable[[], Connection]) -> None:
    connection = make()
    connection.publish("a", b"x", qos=2)
    with pytest.raises(LocalProtocolError):  # [MQTT-4.4.0-1]
        connection.publish("a", b"x", qos=2, dup=True, packet_identifier=1)


def test_qos_1_message_that_comes_again_over_3_1_1_is_acknowledged_once() -> None:
    server = ENDS["server 3.1.1"]()
    again = Publish("a", b"x", 1, dup=True, packet_identifier=5)
    assert events(server, Publish("a", b"x", 1, packet_identifier=5), again) == [
        Publish("a", b"x", 1, packet_identifier=5)
    ]
    server.puback(5)
    assert sent(server) == [Puback(5)]


def test_message_cannot_be_refused_over_3_1_1() -> None:
    server = ENDS["server 3.1.1"]()
    events(server, message(5))
    with pytest.raises(LocalProtocolError):
        server.pubrec(5, reasons.QUOTA_EXCEEDED)
    server.pubrec(5, reasons.NO_MATCHING_SUBSCRIBERS)
    assert sent(server) == [Pubrec(5)]
