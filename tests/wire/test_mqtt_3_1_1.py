"""What is different over MQTT 3.1.1, for both ends. QoS 2 and sessions are in test_qos_2."""

import pytest

from tests.wire.connection.talk import NOW_MS, connected_client, connected_server, events, sent
from tools.lab.testing.client import client_connection
from wire import properties as p
from wire import reasons
from wire.codec.packets import (
    MQTT_3_1_1,
    NO_LOCAL,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Publish,
    Suback,
    Subscribe,
    Unsuback,
    Unsubscribe,
    Will,
)
from wire.connection.client import ClientConnection
from wire.connection.server import ServerConnection
from wire.errors import Closed, LocalProtocolError


def client(**arguments) -> ClientConnection:
    return connected_client(protocol_level=MQTT_3_1_1, **arguments)


def server(connect: Connect | None = None, properties: dict | None = None, **arguments) -> ServerConnection:
    return connected_server(connect or Connect("dev", protocol_level=MQTT_3_1_1), properties, **arguments)


def test_connect_says_what_it_can() -> None:
    dev = client_connection(
        "dev",
        protocol_level=MQTT_3_1_1,
        keep_alive_s=30,
        receive_maximum=5,
        username="u",
        password=b"p",
        will=Will("w", b"gone", 1, properties={p.WILL_DELAY_INTERVAL: 5}),
    )
    dev.connect(NOW_MS)
    expected = "101e 0004 4d515454 04 cc 001e 0003 646576 0001 77 0004 676f6e65 0001 75 0001 70"
    assert dev.data_to_send() == bytes.fromhex(expected)


def test_server_speaks_the_version_of_the_connect() -> None:
    dev = ServerConnection(receive_maximum=7, topic_alias_maximum=3)
    connect = Connect("dev", protocol_level=MQTT_3_1_1)
    assert events(dev, connect) == [connect]
    dev.accept(True, {p.SERVER_KEEP_ALIVE: 9, p.ASSIGNED_CLIENT_IDENTIFIER: "x"})
    assert dev.data_to_send() == b"\x20\x02\x01\x00"
    assert dev.keep_alive_s == 0  # what cannot be told does not hold
    dev.publish("a", b"x", qos=0, properties={p.CONTENT_TYPE: "t"})
    assert dev.data_to_send() == b"\x30\x04\x00\x01ax"


def test_receive_maximum_is_not_known_and_not_enforced() -> None:
    messages: list[Packet] = [Publish("a", b"", 1, packet_identifier=n) for n in (1, 2, 3)]
    assert events(server(receive_maximum=2), *messages) == messages
    assert events(client(receive_maximum=2), *messages) == messages
    assert client().send_quota == 65_535


@pytest.mark.parametrize(
    ("reason_code", "answer"),
    [
        (reasons.NOT_AUTHORIZED, b"\x20\x02\x00\x05"),
        (reasons.SERVER_BUSY, b"\x20\x02\x00\x03"),
        (reasons.PACKET_TOO_LARGE, b""),
    ],
)
def test_refusal_is_said_with_a_return_code_or_not_at_all(reason_code: int, answer: bytes) -> None:
    dev = ServerConnection()
    events(dev, Connect("dev", protocol_level=MQTT_3_1_1))
    dev.refuse(reason_code, "no")
    assert dev.data_to_send() == answer
    assert events(dev) == [Closed(reason_code, "no")]


@pytest.mark.parametrize(
    ("connect", "answer"),
    [
        ("100c00044d515454040000000000", b"\x20\x02\x00\x02"),  # no identifier for a session [MQTT-3.1.3-8]
        ("100c00044d515454040300000000", b""),  # reserved flag [MQTT-3.1.2-3]
    ],
)
def test_bad_connect_is_answered_in_its_own_version(connect: str, answer: bytes) -> None:
    dev = ServerConnection()
    (closed,) = events(dev, bytes.fromhex(connect))
    assert isinstance(closed, Closed)
    assert dev.data_to_send() == answer


@pytest.mark.parametrize(
    "packet",
    [
        b"\x30\x02\x00\x00",
        b"\x36\x05\x00\x01a\x00\x01",
        b"\xf0\x00",
        b"\xe0\x01\x00",
        Publish("a", b"", 1, packet_identifier=1),
    ],
    ids=repr,
)
def test_protocol_error_closes_without_a_word(packet: bytes | Packet) -> None:
    dev = server(properties={p.MAXIMUM_QOS: 0})
    (closed,) = events(dev, packet)
    assert closed.reason_code >= reasons.UNSPECIFIED_ERROR
    assert dev.data_to_send() == b""


def test_servers_disconnect_closes_without_a_word() -> None:
    dev = server()
    dev.disconnect(reasons.SESSION_TAKEN_OVER)
    assert dev.data_to_send() == b""
    assert events(dev) == [Closed(reasons.SESSION_TAKEN_OVER, "session taken over (0x8e)")]


def test_disconnect_of_a_server_is_a_protocol_error() -> None:
    dev = client()
    (closed,) = events(dev, Disconnect())
    assert closed.reason_code == reasons.PROTOCOL_ERROR
    assert dev.data_to_send() == b""


def test_clients_disconnect_keeps_its_will_by_saying_nothing() -> None:
    dev = client()
    dev.disconnect()
    assert sent(dev) == [Disconnect()]
    dev = client()
    dev.disconnect(reasons.DISCONNECT_WITH_WILL)
    assert sent(dev) == []
    assert isinstance(events(dev)[0], Closed)


def test_requests_are_answered() -> None:
    dev = client()
    first, second = dev.subscribe([("a", 1), ("b", 2)]), dev.unsubscribe(["a", "b"])
    assert sent(dev) == [Subscribe(first, [("a", 1), ("b", 2)]), Unsubscribe(second, ["a", "b"])]
    answers: list[Packet] = [Suback(first, [1, 0x80]), Unsuback(second, [])]
    assert events(dev, *answers) == [Suback(first, [1, 0x80]), Unsuback(second, [0, 0])]
    with pytest.raises(LocalProtocolError):
        dev.subscribe([("a", 1 | NO_LOCAL)])


def test_ill_formed_filters_are_refused_one_by_one() -> None:
    dev = server()
    assert events(dev, b"\x82\x0b\x00\x01\x00\x02a#\x01\x00\x01b\x02") == [Subscribe(1, [("b", 2)])]
    dev.suback(1, [2])
    assert sent(dev) == [Suback(1, [0x80, 2])]


def test_authentication_is_version_5s() -> None:
    with pytest.raises(LocalProtocolError):
        server().authenticate(b"")


def test_the_server_gives_no_name_to_an_empty_identifier_of_a_clean_session() -> None:
    dev = client_connection("", protocol_level=MQTT_3_1_1, clean_start=True)
    dev.connect(NOW_MS)
    assert events(dev, Connack(False)) == [Connack(False)]
    assert dev.connected
