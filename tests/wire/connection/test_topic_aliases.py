"""Topic aliases in both directions, for both ends."""

import pytest

from tests.wire.connection.talk import connected_client, connected_server, events, sent
from tools.lab.testing.client import client_connection
from wire import properties as p
from wire import reasons
from wire.codec.packets import Connack, Connect, Publish
from wire.connection import Connection
from wire.connection.client import ClientConnection
from wire.connection.topic_aliases import OUTGOING_MAX
from wire.errors import LocalProtocolError, PacketTooLargeError


def alias(topic: str, number: int) -> Publish:
    return Publish(topic, b"x", properties={p.TOPIC_ALIAS: number})


def generous_client(maximum: int, packet_size: int = 100) -> ClientConnection:
    granted = {p.TOPIC_ALIAS_MAXIMUM: maximum, p.MAXIMUM_PACKET_SIZE: packet_size}
    return connected_client(Connack(False, 0, granted))


def test_topic_is_said_once_and_then_by_its_alias() -> None:
    client = generous_client(2)
    for topic in ("a/long/topic", "a/long/topic", "b", "c", "b", "c"):
        client.publish(topic, b"x", qos=0)
    assert sent(client) == [
        alias("a/long/topic", 1),
        alias("", 1),
        alias("b", 2),
        Publish("c", b"x"),
        alias("", 2),
        Publish("c", b"x"),
    ]


def test_server_gives_aliases_to_a_client_that_takes_them() -> None:
    server = connected_server(Connect("dev", properties={p.TOPIC_ALIAS_MAXIMUM: 1}))
    for _ in range(2):
        server.publish("a", b"x", qos=0)
    assert sent(server) == [alias("a", 1), alias("", 1)]


def test_message_that_was_too_large_gives_no_alias() -> None:
    client = generous_client(1)
    with pytest.raises(PacketTooLargeError):
        client.publish("a", bytes(100), qos=0)
    client.publish("a", b"x", qos=0)
    assert sent(client) == [alias("a", 1)]


def test_message_that_only_the_alias_makes_too_large_goes_without() -> None:
    client = generous_client(1, packet_size=20)
    client.publish("topic", bytes(10), qos=0)
    assert sent(client) == [Publish("topic", bytes(10))]


def test_aliases_take_a_limited_memory() -> None:
    client = generous_client(65_535)
    for number in range(OUTGOING_MAX + 1):
        client.publish(f"t/{number}", b"x", qos=0)
    assert sent(client)[-1] == Publish(f"t/{OUTGOING_MAX}", b"x")


def test_application_gives_no_aliases_of_its_own() -> None:
    with pytest.raises(LocalProtocolError):
        generous_client(5).publish("a", b"x", properties={p.TOPIC_ALIAS: 1})


def test_connect_and_connack_offer_our_aliases() -> None:
    client = client_connection("dev", session_expiry_s=0, topic_alias_maximum=4)
    client.connect(0)
    assert sent(client) == [Connect("dev", keep_alive_s=60, properties={p.TOPIC_ALIAS_MAXIMUM: 4})]
    server = connected_server(topic_alias_maximum=7)
    assert events(server, alias("a", 7)) == [Publish("a", b"x")]


@pytest.mark.parametrize(
    "make",
    [lambda: connected_client(topic_alias_maximum=2), lambda: connected_server(topic_alias_maximum=2)],
    ids=["client", "server"],
)
class TestIncoming:
    def test_the_application_sees_topics_only(self, make) -> None:
        connection: Connection = make()
        found = events(connection, alias("a", 2), alias("", 2), alias("b", 2), alias("", 2))
        assert found == [Publish(topic, b"x") for topic in "aabb"]

    def test_alias_beyond_our_maximum_closes(self, make) -> None:
        (closed,) = events(make(), alias("a", 3))  # [MQTT-3.3.2-9]
        assert closed.reason_code == reasons.TOPIC_ALIAS_INVALID

    def test_alias_without_a_topic_closes(self, make) -> None:
        (closed,) = events(make(), alias("", 1))
        assert closed.reason_code == reasons.PROTOCOL_ERROR
