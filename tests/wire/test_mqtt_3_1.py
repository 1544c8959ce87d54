"""What a server makes of clients of MQTT 3.1, and of mosquitto's bridges."""

import pytest

from tests.wire.connection.talk import NOW_MS, events, sent
from wire import reasons
from wire.codec.packets import (
    MQTT_3_1_1,
    MQTT_5,
    NO_LOCAL,
    RETAIN_AS_PUBLISHED,
    Connack,
    Connect,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    Unsubscribe,
    encode,
)
from wire.connection.server import ServerConnection
from wire.errors import Closed
from wire.primitives import encode_string

MQTT_3_1, BRIDGE = 3, 0x80


def connect(level: int, client_id: str = "a", flags: int = 0x02, payload: bytes = b"") -> bytes:
    name = "MQIsdp" if level & ~BRIDGE == MQTT_3_1 else "MQTT"
    body = encode_string(name) + bytes((level, flags, 0, 0)) + encode_string(client_id) + payload
    return bytes((0x10, len(body))) + body


def server(level: int, session_present: bool = False, **arguments) -> ServerConnection:
    """One that has accepted a client."""
    connection = ServerConnection(**arguments)
    expected = Connect("a", protocol_level=4)
    expected.level_byte = level
    assert events(connection, connect(level, flags=0)) == [expected]
    connection.accept(session_present)
    return connection


@pytest.mark.parametrize("level", [MQTT_3_1, MQTT_3_1 | BRIDGE, MQTT_3_1_1 | BRIDGE])
def test_they_are_served_as_clients_of_3_1_1(level: int) -> None:
    connection = server(level)
    assert connection.data_to_send() == b"\x20\x02\x00\x00"
    assert connection.protocol_level == MQTT_3_1_1
    publish = Publish("t", b"x", 1, packet_identifier=7)
    assert events(connection, publish) == [publish]
    connection.puback(7)
    assert connection.data_to_send() == b"\x40\x02\x00\x07"


@pytest.mark.parametrize(("level", "flag"), [(MQTT_3_1, 0), (MQTT_3_1 | BRIDGE, 0), (MQTT_3_1_1 | BRIDGE, 1)])
def test_3_1_hears_of_no_session(level: int, flag: int) -> None:
    assert server(level, session_present=True).data_to_send() == bytes((0x20, 2, flag, 0))


@pytest.mark.parametrize("clean", [0x00, 0x02])
def test_3_1_demands_a_client_identifier(clean: int) -> None:
    connection = ServerConnection()
    (closed,) = events(connection, connect(MQTT_3_1, "", clean))
    assert (type(closed), closed.reason_code) == (Closed, reasons.CLIENT_IDENTIFIER_NOT_VALID)
    assert connection.data_to_send() == b"\x20\x02\x00\x02"


def test_a_client_identifier_of_3_1_may_be_longer_than_it_says_as_with_mosquitto() -> None:
    (packet,) = events(ServerConnection(), connect(MQTT_3_1, "a" * 24))
    assert packet.client_id == "a" * 24


def test_a_client_of_3_1_may_announce_credentials_that_it_does_not_send() -> None:
    (packet,) = events(ServerConnection(), connect(MQTT_3_1, flags=0xC2))
    assert (packet.username, packet.password) == (None, None)
    (packet,) = events(ServerConnection(), connect(MQTT_3_1, flags=0xC2, payload=b"\0\1u\0\1p"))
    assert (packet.username, packet.password) == ("u", b"p")


@pytest.mark.parametrize("level", [MQTT_3_1_1, MQTT_3_1_1 | BRIDGE])
@pytest.mark.parametrize("fault", ["flags of the fixed header", "reserved connect flag"])
def test_a_connect_of_3_1_1_with_reserved_flags_gets_no_connack_of_mqtt_5(level: int, fault: str) -> None:
    connection = ServerConnection()
    bad = connect(level, flags=0x03) if "connect" in fault else b"\x14" + connect(level)[1:]
    (closed,) = events(connection, bad)
    assert (type(closed), closed.reason_code) == (Closed, reasons.MALFORMED_PACKET)
    assert connection.data_to_send() == b""


def test_a_connect_of_mqtt_5_with_reserved_flags_is_told() -> None:
    connection = ServerConnection()
    (closed,) = events(connection, b"\x14" + encode(Connect("a"))[1:])
    assert (type(closed), closed.reason_code) == (Closed, reasons.MALFORMED_PACKET)
    assert connection.data_to_send()[3] == reasons.MALFORMED_PACKET


def test_reserved_flags_of_a_connect_of_3_1_are_ignored_as_with_mosquitto() -> None:
    for data in (connect(MQTT_3_1, flags=0x03), b"\x14" + connect(MQTT_3_1)[1:]):
        (packet,) = events(ServerConnection(), data)
        assert packet.client_id == "a"


def test_a_suback_of_3_1_has_no_failure() -> None:
    connection = server(MQTT_3_1)
    sent(connection)
    assert events(connection, Subscribe(1, [("a", 0), ("b", 1), ("c", 2)])) == [
        Subscribe(1, [("a", 0), ("b", 1), ("c", 2)])
    ]
    connection.suback(1, [0x87, 1, 0x87])
    assert events(connection, b"\x82\x07\x00\x02\x00\x02a#\x01") == []
    assert sent(connection) == [Suback(1, [0, 1, 2]), Suback(2, [1])]


def test_what_3_1_sends_again_may_have_dup() -> None:
    connection = server(MQTT_3_1)
    sent(connection)
    publish = Publish("t", b"x", 2, packet_identifier=7)
    assert events(connection, publish) == [publish]
    connection.pubrec(7)
    assert events(connection, b"\x6a\x02\x00\x07") == [Pubrel(7)]
    connection.pubcomp(7)
    assert sent(connection) == [Pubrec(7), Pubcomp(7)]
    assert events(connection, b"\x8a\x06\x00\x01\x00\x01a\x01", b"\xaa\x05\x00\x02\x00\x01a") == [
        Subscribe(1, [("a", 1)]),
        Unsubscribe(2, ["a"]),
    ]


def test_a_bridge_gets_nothing_of_its_own_and_retained_messages_as_published() -> None:
    connection = server(MQTT_3_1_1 | BRIDGE)
    sent(connection)
    wanted = [("a/#", 1), ("$share/g/b", 2)]
    assert events(connection, Subscribe(1, wanted)) == [
        Subscribe(1, [("a/#", 1 | NO_LOCAL | RETAIN_AS_PUBLISHED), ("$share/g/b", 2 | RETAIN_AS_PUBLISHED)])
    ]
    connection.suback(1, [1, 2])
    assert sent(connection) == [Suback(1, [1, 2])]


@pytest.mark.parametrize("level", [MQTT_3_1_1, MQTT_5])
def test_a_client_without_receive_maximum_has_so_many_on_the_way_as_the_server_says(level: int) -> None:
    connection = ServerConnection(inflight_maximum=3)
    events(connection, encode(Connect("a", protocol_level=level), level))
    connection.accept(False)
    assert connection.send_quota == 3
    connection = ServerConnection(inflight_maximum=3)
    events(connection, encode(Connect("a", properties={0x21: 5})))
    connection.accept(False)
    assert connection.send_quota == 5


def test_a_connack_of_3_1_refuses_in_its_return_codes() -> None:
    connection = ServerConnection()
    connection.receive_data(connect(MQTT_3_1), NOW_MS)
    assert connection.next_event() is not None
    connection.refuse(reasons.NOT_AUTHORIZED)
    assert sent(connection) == [Connack(False, reasons.NOT_AUTHORIZED)]
