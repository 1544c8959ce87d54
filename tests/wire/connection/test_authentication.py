"""Enhanced authentication: both ends lead an exchange, before CONNACK and again later."""

import pytest

from tests.wire.connection.talk import NOW_MS, events, sent
from tools.lab.testing.client import client_connection
from wire import properties as p
from wire import reasons
from wire.codec.packets import Auth, Connack, Connect, Packet, Pingreq, Publish
from wire.connection.authentication import ClientAuthentication
from wire.connection.client import ClientConnection
from wire.connection.server import ServerConnection
from wire.errors import Closed, LocalProtocolError, RemoteProtocolError

METHOD = "ECHO"


def words(data: bytes | None = None, method: str = METHOD) -> dict:
    found: dict = {p.AUTHENTICATION_METHOD: method}
    if data is not None:
        found[p.AUTHENTICATION_DATA] = data
    return found


def respond(data: bytes | None) -> bytes | None:
    if data == b"liar":
        raise RemoteProtocolError(reasons.NOT_AUTHORIZED, "the server does not know the secret")
    return b"hello" if data is None else b"re:" + data


def asking_client() -> ClientConnection:
    client = client_connection("dev", session_expiry_s=0, authentication=ClientAuthentication(METHOD, respond))
    client.connect(NOW_MS)
    assert sent(client) == [Connect("dev", keep_alive_s=60, properties=words(b"hello"))]
    return client


def admitted_client() -> ClientConnection:
    client = asking_client()
    assert events(client, Connack(False, 0, words())) == [Connack(False, 0, words())]
    return client


def asked_server(**arguments: int) -> ServerConnection:
    server = ServerConnection(authentication_methods=(METHOD,), **arguments)
    connect = Connect("dev", keep_alive_s=60, properties=words(b"hello"))
    assert events(server, connect) == [connect]
    return server


def test_client_answers_until_it_is_admitted() -> None:
    client = asking_client()
    for challenge in (b"1", b"2"):
        assert events(client, Auth(0x18, words(challenge))) == []
        assert sent(client) == [Auth(0x18, words(b"re:" + challenge))]
    connack = Connack(False, 0, words(b"proof"))
    assert events(client, connack) == [connack]
    assert client.connected


@pytest.mark.parametrize("last", [Connack(False, 0, words(b"liar")), Auth(0x18, words(b"liar"))], ids=repr)
def test_server_that_does_not_prove_itself_is_left(last: Packet) -> None:
    client = asking_client()
    (closed,) = events(client, last)
    assert closed == Closed(reasons.NOT_AUTHORIZED, "the server does not know the secret")
    assert not client.connected


@pytest.mark.parametrize(
    "packet",
    [
        Connack(False),
        Connack(False, 0, words(None, "OTHER")),
        Auth(0x18, words(b"", "OTHER")),
        Auth(0x19, words()),
        Auth(0, words()),
    ],
    ids=repr,
)
def test_wrong_word_of_the_server_is_a_protocol_error(packet: Packet) -> None:
    (closed,) = events(asking_client(), packet)  # [MQTT-4.12.0-5]
    assert closed.reason_code == reasons.PROTOCOL_ERROR


def test_client_authenticates_again_when_asked_to() -> None:
    client = admitted_client()
    client.reauthenticate()
    assert sent(client) == [Auth(0x19, words(b"hello"))]
    assert events(client, Auth(0x18, words(b"1"))) == []
    assert sent(client) == [Auth(0x18, words(b"re:1"))]
    assert events(client, Auth(0, words())) == []
    (closed,) = events(client, Auth(0x18, words(b"1")))
    assert closed.reason_code == reasons.PROTOCOL_ERROR


def test_only_a_connected_client_with_a_method_authenticates_again() -> None:
    plain = client_connection("dev")
    plain.connect(NOW_MS)
    events(plain, Connack(False))
    for client in (plain, asking_client()):
        with pytest.raises(LocalProtocolError):
            client.reauthenticate()


def test_server_leads_the_exchange_and_accepts() -> None:
    server = asked_server()
    server.authenticate(b"1")
    assert sent(server) == [Auth(0x18, words(b"1"))]
    with pytest.raises(LocalProtocolError):
        server.accept(False)
    answer = Auth(0x18, words(b"re:1"))
    assert events(server, answer, Publish("a", b"x")) == [answer]
    server.accept(False, {p.AUTHENTICATION_DATA: b"proof"})
    assert sent(server) == [Connack(False, 0, words(b"proof"))]
    assert events(server) == [Publish("a", b"x")]


def test_server_answers_a_client_that_authenticates_again() -> None:
    server = asked_server()
    server.accept(False)
    sent(server)
    again = Auth(0x19, words(b"hello"))
    assert events(server, again) == [again]
    server.authenticate(b"1")
    events(server, Auth(0x18, words(b"re:1")))
    server.authenticate(None, reasons.SUCCESS)
    assert sent(server) == [Auth(0x18, words(b"1")), Auth(0, words())]


def test_client_that_answers_nothing_is_closed_in_time() -> None:
    server = asked_server(connect_timeout_ms=5000)
    server.authenticate(b"1")
    assert server.next_timer_ms() == NOW_MS + 5000
    server.handle_timer(NOW_MS + 5000)
    assert events(server) == [Closed(reasons.UNSPECIFIED_ERROR, "no AUTH in 5000 ms")]


@pytest.mark.parametrize(
    "packet", [Auth(0x18, words(b"", "OTHER")), Auth(0x19, words()), Publish("a", b""), Pingreq()], ids=repr
)
def test_anything_else_than_the_answer_is_refused(packet: Packet) -> None:
    server = asked_server()
    server.authenticate(b"1")
    sent(server)
    (closed,) = events(server, packet)  # [MQTT-3.1.2-30]
    assert closed.reason_code == reasons.PROTOCOL_ERROR
    (answer,) = sent(server)
    assert isinstance(answer, Connack)
    assert answer.reason_code == reasons.PROTOCOL_ERROR


def test_method_that_the_server_does_not_know_is_refused() -> None:
    server = ServerConnection(authentication_methods=("OTHER",))
    (closed,) = events(server, Connect("dev", properties=words()))
    assert closed.reason_code == reasons.BAD_AUTHENTICATION_METHOD
    with pytest.raises(LocalProtocolError):
        server.authenticate(b"")
