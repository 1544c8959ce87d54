"""The client's end of a connection."""

import pytest

from tests.wire.connection.talk import NOW_MS, connected_client, events, sent
from tools.lab.testing.client import client_connection
from wire import properties as p
from wire import reasons
from wire.codec.packets import (
    NO_LOCAL,
    RETAIN_AS_PUBLISHED,
    RETAIN_NEVER,
    Auth,
    Connack,
    Connect,
    Disconnect,
    Pingreq,
    Pingresp,
    Puback,
    Publish,
    Suback,
    Subscribe,
    Unsuback,
    Unsubscribe,
    Will,
)
from wire.connection.client import CONNACK_TIMEOUT_MS
from wire.errors import Closed, LocalProtocolError, PacketTooLargeError, WireError


def test_connect_says_what_we_want_and_take() -> None:
    client = client_connection(
        "dev",
        clean_start=True,
        session_expiry_s=60,
        keep_alive_s=30,
        receive_maximum=5,
        maximum_packet_size=1000,
        username="u",
        password=b"p",
        will=Will("w", b"gone", 1),
    )
    client.connect(NOW_MS)
    properties = {p.SESSION_EXPIRY_INTERVAL: 60, p.RECEIVE_MAXIMUM: 5, p.MAXIMUM_PACKET_SIZE: 1000}
    assert sent(client) == [Connect("dev", True, 30, "u", b"p", Will("w", b"gone", 1), properties)]


def test_nothing_is_sent_before_connack() -> None:
    client = client_connection("dev")
    for attempt in (lambda: client.publish("a", b""), lambda: client.subscribe([("a", 0)]), lambda: client.puback(1)):
        with pytest.raises(LocalProtocolError):
            attempt()
    client.connect(NOW_MS)
    assert (client.send_quota, client.connected) == (0, False)
    with pytest.raises(LocalProtocolError):
        client.publish("a", b"")
    with pytest.raises(LocalProtocolError):
        client.connect(NOW_MS)


def test_connack_grants_are_honoured() -> None:
    granted = {
        p.ASSIGNED_CLIENT_IDENTIFIER: "given",
        p.SERVER_KEEP_ALIVE: 7,
        p.SESSION_EXPIRY_INTERVAL: 99,
        p.RECEIVE_MAXIMUM: 2,
        p.MAXIMUM_PACKET_SIZE: 50,
        p.RETAIN_AVAILABLE: 0,
    }
    client = connected_client(Connack(False, 0, granted))
    assert (client.client_id, client.keep_alive_s, client.session_expiry_s) == ("given", 7, 99)
    assert (client.send_quota, client.maximum_packet_size_peer) == (2, 50)
    assert client.next_timer_ms() == NOW_MS + 7000  # [MQTT-3.2.2-21]
    with pytest.raises(PacketTooLargeError):  # [MQTT-3.2.2-15]
        client.publish("a", bytes(50))
    assert client.send_quota == 2
    with pytest.raises(LocalProtocolError):  # [MQTT-3.2.2-14]
        client.publish("a", b"", retain=True)
    assert sent(client) == []


@pytest.mark.parametrize(
    ("own_s", "servers_s", "tests_after_s"), [(60, 0, 60), (60, 65_535, 60), (60, 7, 7), (0, 7, 7), (0, 0, None)]
)
def test_server_may_ask_for_shorter_silences_and_does_not_end_our_tests_of_a_silent_line(
    own_s: int, servers_s: int, tests_after_s: int | None
) -> None:
    client = connected_client(Connack(False, 0, {p.SERVER_KEEP_ALIVE: servers_s}), keep_alive_s=own_s)
    assert client.next_timer_ms() == (None if tests_after_s is None else NOW_MS + 1000 * tests_after_s)


def test_server_without_qos_1_gets_none() -> None:
    client = connected_client(Connack(False, 0, {p.MAXIMUM_QOS: 0}))
    with pytest.raises(LocalProtocolError):  # [MQTT-3.2.2-11]
        client.publish("a", b"", qos=1)
    assert client.publish("a", b"", qos=0) is None


def test_publish_takes_a_place_until_puback() -> None:
    client = connected_client(Connack(False, 0, {p.RECEIVE_MAXIMUM: 2}))
    assert client.publish("a", b"1", packet_identifier=40_000, dup=True) == 40_000
    assert client.publish("a", b"2", properties={p.CONTENT_TYPE: "x"}) == 1
    assert client.send_quota == 0
    with pytest.raises(LocalProtocolError):  # [MQTT-3.3.4-9]
        client.publish("a", b"3")
    assert client.publish("a", b"4", qos=0) is None
    assert sent(client) == [
        Publish("a", b"1", 1, dup=True, packet_identifier=40_000),
        Publish("a", b"2", 1, packet_identifier=1, properties={p.CONTENT_TYPE: "x"}),
        Publish("a", b"4"),
    ]
    refused = Puback(40_000, reasons.QUOTA_EXCEEDED)
    assert events(client, refused) == [refused]
    assert client.send_quota == 1


def test_puback_that_nothing_waits_for_frees_nothing() -> None:
    client = connected_client(Connack(False, 0, {p.RECEIVE_MAXIMUM: 2}))
    client.publish("a", b"")
    assert events(client, Puback(9), Puback(1), Puback(1)) == [Puback(1)]
    assert client.send_quota == 2


def test_bad_topic_is_refused_and_takes_no_place() -> None:
    client = connected_client(Connack(False, 0, {p.RECEIVE_MAXIMUM: 1}))
    for topic in ("", "a/#", "a\0"):
        with pytest.raises(WireError):
            client.publish(topic, b"")
    with pytest.raises(LocalProtocolError):
        client.publish("a", b"", properties={p.TOPIC_ALIAS: 0})
    assert client.send_quota == 1


def test_requests_are_answered() -> None:
    client = connected_client()
    subscribe = client.subscribe([("a/#", 1), ("b", 0)])
    unsubscribe = client.unsubscribe(["b"])
    assert sent(client) == [Subscribe(subscribe, [("a/#", 1), ("b", 0)]), Unsubscribe(unsubscribe, ["b"])]
    assert client.publish("a", b"") not in (subscribe, unsubscribe)
    answers = [Suback(subscribe, [1, 0x87]), Unsuback(unsubscribe, [0x11])]
    assert events(client, *answers) == answers
    with pytest.raises(LocalProtocolError):
        client.subscribe([("a", 3)])
    with pytest.raises(LocalProtocolError):
        client.subscribe([])
    assert client.subscribe([("a", 0)]) > 0


@pytest.mark.parametrize("answer", [Suback(1, [0, 0]), Suback(2, [0]), Unsuback(1, [0])], ids=repr)
def test_answer_to_no_request_is_a_protocol_error(answer: Suback) -> None:
    client = connected_client()
    client.subscribe([("a", 0)])
    (closed,) = events(client, answer)
    assert closed.reason_code == reasons.PROTOCOL_ERROR


def test_received_message_is_acknowledged_once() -> None:
    client = connected_client(receive_maximum=1)
    message = Publish("a", b"x", 1, packet_identifier=5)
    assert events(client, message) == [message]
    client.puback(5)
    with pytest.raises(LocalProtocolError):
        client.puback(5)
    assert sent(client) == [Puback(5)]


@pytest.mark.parametrize(
    ("packets", "reason_code"),
    [
        ([Publish("a", b"", 1, packet_identifier=n) for n in (1, 2, 3)], reasons.RECEIVE_MAXIMUM_EXCEEDED),
        ([Publish("a", b"", 1, packet_identifier=1)] * 2, reasons.PROTOCOL_ERROR),
        ([Publish("a", b"", properties={p.TOPIC_ALIAS: 1})], reasons.TOPIC_ALIAS_INVALID),
        ([Publish("a", bytes(2000))], reasons.PACKET_TOO_LARGE),
        ([Connack(False)], reasons.PROTOCOL_ERROR),
        ([Disconnect(reasons.DISCONNECT_WITH_WILL)], reasons.PROTOCOL_ERROR),
        ([Auth(0x18, {p.AUTHENTICATION_METHOD: "M"})], reasons.PROTOCOL_ERROR),
        ([Connect("x")], reasons.PROTOCOL_ERROR),
        ([Subscribe(1, [("a", 0)])], reasons.PROTOCOL_ERROR),
        ([Pingreq()], reasons.PROTOCOL_ERROR),
        ([b"\x30\x04\x00\x01#\x00"], reasons.MALFORMED_PACKET),
    ],
    ids=repr,
)
def test_violation_is_answered_with_disconnect_and_closes(packets: list, reason_code: int) -> None:
    client = connected_client(receive_maximum=2, maximum_packet_size=1000)
    found = events(client, *packets)
    assert found[:-1] == packets[:-1]
    assert isinstance(found[-1], Closed)
    assert found[-1].reason_code == reason_code
    (answer,) = sent(client)
    assert isinstance(answer, Disconnect)
    assert (answer.reason_code, answer.properties[p.REASON_STRING]) == (reason_code, found[-1].text)
    assert events(client, Publish("a", b"")) == []
    assert client.next_timer_ms() is None


@pytest.mark.parametrize(
    ("connack", "clean_start"),
    [
        (Connack(True), True),
        (Connack(False, 0, {p.AUTHENTICATION_METHOD: "M"}), False),
        (Puback(1), False),
        (Publish("a", b""), False),
        (Disconnect(), False),
    ],
    ids=repr,
)
def test_bad_greeting_is_a_protocol_error(connack: Connack, clean_start: bool) -> None:
    client = client_connection("dev", clean_start=clean_start)
    client.connect(NOW_MS)
    (closed,) = events(client, connack)
    assert closed.reason_code == reasons.PROTOCOL_ERROR
    assert not client.connected


def test_server_that_assigns_no_identifier_breaks_the_protocol() -> None:
    client = client_connection("")
    client.connect(NOW_MS)
    (closed,) = events(client, Connack(False))  # [MQTT-3.2.2-16]
    assert closed.reason_code == reasons.PROTOCOL_ERROR


@pytest.mark.parametrize("answer", [b"\x20\2\0\1", b"\x20\2\0\0", b"\x20\2\0\x84", b"\x20\3\0\1\0"])
def test_answer_of_a_server_that_only_speaks_3_1_1_is_told_from_other_errors(answer: bytes) -> None:
    client = client_connection("dev")
    client.connect(NOW_MS)
    (closed,) = events(client, answer)
    assert (closed.reason_code, "a server of MQTT 3.1.1" in closed.text) == (reasons.UNSUPPORTED_PROTOCOL_VERSION, True)


def test_refusal_is_seen_and_closes() -> None:
    client = client_connection("dev")
    client.connect(NOW_MS)
    sent(client)
    refusal = Connack(False, reasons.NOT_AUTHORIZED, {p.REASON_STRING: "not you"})
    assert events(client, refusal) == [refusal, Closed(reasons.NOT_AUTHORIZED, "the server says: not you")]
    assert (sent(client), client.connected, client.send_quota) == ([], False, 0)


def test_servers_disconnect_is_seen_and_closes() -> None:
    client = connected_client()
    goodbye = Disconnect(reasons.SERVER_SHUTTING_DOWN)
    text = "the server says: server shutting down (0x8b)"
    assert events(client, goodbye) == [goodbye, Closed(reasons.SERVER_SHUTTING_DOWN, text)]
    with pytest.raises(LocalProtocolError):
        client.publish("a", b"")


def test_servers_disconnect_with_a_session_expiry_is_a_protocol_error() -> None:
    client = connected_client()
    (closed,) = events(client, Disconnect(0, {p.SESSION_EXPIRY_INTERVAL: 1}))  # [MQTT-3.14.2-2]
    assert closed.reason_code == reasons.PROTOCOL_ERROR


def test_own_disconnect_closes() -> None:
    client = connected_client()
    client.disconnect()
    assert sent(client) == [Disconnect()]
    assert events(client, Publish("a", b"")) == [Closed(0, "disconnected by this client")]
    with pytest.raises(LocalProtocolError):
        client.disconnect()


def test_missing_connack_closes_in_time() -> None:
    client = client_connection("dev")
    assert client.next_timer_ms() is None
    client.connect(NOW_MS)
    assert client.next_timer_ms() == NOW_MS + CONNACK_TIMEOUT_MS
    client.receive_data(b"\x20", NOW_MS + 1)  # a byte is no CONNACK
    client.handle_timer(NOW_MS + CONNACK_TIMEOUT_MS - 1)
    assert client.next_event() is None
    client.handle_timer(NOW_MS + CONNACK_TIMEOUT_MS)
    assert events(client) == [Closed(reasons.SERVER_UNAVAILABLE, "no CONNACK in 30 s")]


def test_silence_is_broken_by_pingreq_and_then_closes() -> None:
    client = connected_client(keep_alive_s=10)
    assert client.next_timer_ms() == NOW_MS + 10_000
    client.handle_timer(NOW_MS + 9_999)
    assert sent(client) == []
    client.handle_timer(NOW_MS + 10_000)
    assert sent(client) == [Pingreq()]
    assert client.next_timer_ms() == NOW_MS + 15_000
    assert events(client, Pingresp(), now_ms=NOW_MS + 12_000) == []
    assert client.next_timer_ms() == NOW_MS + 20_000
    client.handle_timer(NOW_MS + 20_000)
    assert sent(client) == [Pingreq()]
    client.handle_timer(NOW_MS + 25_000)
    assert events(client) == [Closed(reasons.KEEP_ALIVE_TIMEOUT, "no answer to a PINGREQ in 5.0 s")]


def test_listening_alone_does_not_keep_the_connection_alive() -> None:
    client = connected_client(keep_alive_s=10)
    events(client, Publish("a", b""), now_ms=NOW_MS + 9_000)
    client.handle_timer(NOW_MS + 10_000)
    assert sent(client) == [Pingreq()]  # [MQTT-3.1.2-20]


def test_late_timer_still_asks_before_it_gives_up() -> None:
    client = connected_client(keep_alive_s=10)
    client.handle_timer(NOW_MS + 3_600_000)
    assert sent(client) == [Pingreq()]
    assert events(client) == []


def test_keep_alive_zero_needs_no_timer() -> None:
    client = connected_client(keep_alive_s=0)
    assert client.next_timer_ms() is None
    client.handle_timer(NOW_MS + 10**9)
    assert sent(client) == []


def test_long_reasons_are_cut_and_dropped_where_the_peer_takes_little() -> None:
    client = connected_client(Connack(False, 0, {p.MAXIMUM_PACKET_SIZE: 20}))
    topic = "a" * 60_000 + "#"
    (closed,) = events(client, b"\x30\xe4\xd4\x03\xea\x61" + topic.encode() + b"\x00")
    assert len(closed.text) == 256
    assert sent(client) == [Disconnect(reasons.MALFORMED_PACKET)]  # [MQTT-3.14.2-3]


@pytest.mark.parametrize(
    ("filters", "properties"),
    [([("a/#", 0)], {}), ([("$share/g/a", 0)], {}), ([("a", 0)], {p.SUBSCRIPTION_IDENTIFIER: [1]})],
)
def test_server_is_not_asked_for_what_it_does_not_serve(filters: list, properties: dict) -> None:
    missing = (p.WILDCARD_SUBSCRIPTION_AVAILABLE, p.SHARED_SUBSCRIPTION_AVAILABLE, p.SUBSCRIPTION_IDENTIFIERS_AVAILABLE)
    client = connected_client(Connack(False, 0, dict.fromkeys(missing, 0)))
    with pytest.raises(LocalProtocolError):
        client.subscribe(filters, properties)
    assert client.subscribe([("a", 2 | NO_LOCAL | RETAIN_AS_PUBLISHED | RETAIN_NEVER)]) == 1


@pytest.mark.parametrize("connected", [False, True])
def test_redirection_is_told(connected: bool) -> None:
    client = client_connection("dev")
    client.connect(NOW_MS)
    elsewhere = {p.SERVER_REFERENCE: "other.example:1883"}
    if connected:
        events(client, Connack(False))
        found = events(client, Disconnect(reasons.SERVER_MOVED, elsewhere))
    else:
        found = events(client, Connack(False, reasons.SERVER_MOVED, elsewhere))
    text = "the server says: server moved (0x9d)"
    assert found[-1] == Closed(reasons.SERVER_MOVED, text, "other.example:1883")  # [section 4.13]


def test_disconnect_may_change_the_sessions_expiry() -> None:
    client = connected_client()
    client.disconnect(reasons.DISCONNECT_WITH_WILL, {p.SESSION_EXPIRY_INTERVAL: 5})
    assert sent(client) == [Disconnect(reasons.DISCONNECT_WITH_WILL, {p.SESSION_EXPIRY_INTERVAL: 5})]
