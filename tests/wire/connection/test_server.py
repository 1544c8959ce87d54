"""The server's end of a connection."""

import pytest

from tests.wire.connection.talk import NOW_MS, connected_server, events, sent
from wire import properties as p
from wire import reasons
from wire.codec.packets import (
    Auth,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
    Puback,
    Publish,
    Suback,
    Subscribe,
    Unsuback,
    Unsubscribe,
    Will,
    encode,
)
from wire.connection.server import ServerConnection
from wire.errors import Closed, LocalProtocolError, PacketTooLargeError

MQTT_3_CONNECT = b"\x10\x0d\x00\x04MQTT\x03\x02\x00\x00\x00\x01a"
MQTT_3_1_OF_VERSION_4_CONNECT = b"\x10\x0f\x00\x06MQIsdp\x04\x02\x00\x00\x00\x01a"
MQTT_6_CONNECT = b"\x10\x0e\x00\x04MQTT\x06\x02\x00\x00\x00\x00\x01a"


def test_accept_announces_our_limits_and_the_gateways() -> None:
    server = ServerConnection(receive_maximum=20, maximum_packet_size=1000)
    connect = Connect("", properties={p.RECEIVE_MAXIMUM: 3, p.MAXIMUM_PACKET_SIZE: 100})
    assert events(server, connect) == [connect]
    assert server.connect_packet == connect
    assert (server.connected, server.send_quota) == (False, 0)
    server.accept(True, {p.ASSIGNED_CLIENT_IDENTIFIER: "x", p.RETAIN_AVAILABLE: 0})
    announced = {
        p.RECEIVE_MAXIMUM: 20,
        p.MAXIMUM_PACKET_SIZE: 1000,
        p.ASSIGNED_CLIENT_IDENTIFIER: "x",
        p.RETAIN_AVAILABLE: 0,
    }
    assert sent(server) == [Connack(True, 0, announced)]
    assert (server.connected, server.send_quota, server.maximum_packet_size_peer) == (True, 3, 100)


def test_what_a_client_sends_before_connack_waits() -> None:
    server = ServerConnection()
    connect, message = Connect("dev"), Publish("a", b"")
    assert events(server, connect, message) == [connect]
    assert events(server, b"") == []
    server.accept(False)
    assert events(server) == [message]


def test_refuse_answers_and_closes() -> None:
    server = ServerConnection()
    events(server, Connect("dev"))
    server.refuse(reasons.NOT_AUTHORIZED, "no")
    assert sent(server) == [Connack(False, reasons.NOT_AUTHORIZED, {p.REASON_STRING: "no"})]
    assert events(server, Publish("a", b"")) == [Closed(reasons.NOT_AUTHORIZED, "no")]
    with pytest.raises(LocalProtocolError):
        server.accept(False)


def test_there_must_be_a_connect_to_answer() -> None:
    server = ServerConnection()
    for answer in (lambda: server.accept(False), lambda: server.refuse(0x87)):
        with pytest.raises(LocalProtocolError):
            answer()
    with pytest.raises(LocalProtocolError):
        connected_server().accept(False)


@pytest.mark.parametrize("encoded", [MQTT_3_CONNECT, MQTT_3_1_OF_VERSION_4_CONNECT])
def test_older_protocol_is_refused_in_its_own_form(encoded: bytes) -> None:
    server = ServerConnection()
    (closed,) = events(server, encoded)
    assert closed.reason_code == reasons.UNSUPPORTED_PROTOCOL_VERSION
    assert server.data_to_send() == b"\x20\x02\x00\x01"


def test_unknown_protocol_version_is_refused_in_the_form_of_5() -> None:
    server = ServerConnection()
    (closed,) = events(server, MQTT_6_CONNECT)  # [MQTT-3.1.2-2]
    (answer,) = sent(server)
    assert isinstance(answer, Connack)
    assert answer.reason_code == closed.reason_code == reasons.UNSUPPORTED_PROTOCOL_VERSION


@pytest.mark.parametrize(
    ("first", "reason_code"),
    [
        (encode(Publish("a", b"")), reasons.PROTOCOL_ERROR),  # [MQTT-3.1.0-1]
        (encode(Connack(False)), reasons.PROTOCOL_ERROR),
        (b"GET / HTTP/1.1\r\n\r\n" + bytes(99), reasons.MALFORMED_PACKET),
        (b"\x10\x0d\x00\x04MQTT\x05\x03\x00\x00\x00\x00\x00", reasons.MALFORMED_PACKET),
        (encode(Connect("a", properties={p.AUTHENTICATION_METHOD: "M"})), reasons.BAD_AUTHENTICATION_METHOD),
        (encode(Connect("a" * 2000)), reasons.PACKET_TOO_LARGE),
    ],
)
def test_bad_first_packet_is_answered_with_connack_and_closes(first: bytes, reason_code: int) -> None:
    server = ServerConnection(maximum_packet_size=1000)
    (closed,) = events(server, first)
    (answer,) = sent(server)
    assert isinstance(answer, Connack)
    assert answer.reason_code == closed.reason_code == reason_code


@pytest.mark.parametrize(
    ("packets", "reason_code"),
    [
        ([Connect("dev")], reasons.PROTOCOL_ERROR),  # [MQTT-3.1.0-2]
        ([b"\x10\x0d\x00\x04MQTT\x01\x02\x00\x00\x00\x00\x00"], reasons.PROTOCOL_ERROR),
        ([b"\x10\x0c\x00\x04MQTT\x04\x00\x00\x00\x00\x00"], reasons.PROTOCOL_ERROR),
        ([Publish("a", b"", 2, packet_identifier=1)], reasons.QOS_NOT_SUPPORTED),
        ([Publish("a", b"", retain=True)], reasons.RETAIN_NOT_SUPPORTED),
        ([Publish("a", b"", properties={p.TOPIC_ALIAS: 1})], reasons.TOPIC_ALIAS_INVALID),
        ([Publish("a", b"", properties={p.SUBSCRIPTION_IDENTIFIER: [1]})], reasons.PROTOCOL_ERROR),
        ([Publish("a", b"", 1, packet_identifier=n) for n in (1, 2, 3)], reasons.RECEIVE_MAXIMUM_EXCEEDED),
        ([Publish("a", b"", 1, packet_identifier=1)] * 2, reasons.PROTOCOL_ERROR),
        ([Publish("a", bytes(2000))], reasons.PACKET_TOO_LARGE),
        ([Subscribe(1, [("a", 0)], {p.SUBSCRIPTION_IDENTIFIER: [1]})], reasons.SUBSCRIPTION_IDENTIFIERS_NOT_SUPPORTED),
        ([Subscribe(1, [("a", 0)]), Subscribe(1, [("b", 0)])], reasons.PROTOCOL_ERROR),
        ([Suback(1, [0])], reasons.PROTOCOL_ERROR),
        ([Pingresp()], reasons.PROTOCOL_ERROR),
        ([Auth(0x19, {p.AUTHENTICATION_METHOD: "M"})], reasons.PROTOCOL_ERROR),
        ([Disconnect(0, {p.SESSION_EXPIRY_INTERVAL: 5})], reasons.PROTOCOL_ERROR),
        ([Disconnect(reasons.SERVER_MOVED)], reasons.PROTOCOL_ERROR),
        ([b"\x30\x04\x00\x01+\x00"], reasons.MALFORMED_PACKET),
    ],
    ids=repr,
)
def test_violation_is_answered_with_disconnect_and_closes(packets: list, reason_code: int) -> None:
    announced = {p.RETAIN_AVAILABLE: 0, p.SUBSCRIPTION_IDENTIFIERS_AVAILABLE: 0, p.MAXIMUM_QOS: 1}
    server = connected_server(None, announced, receive_maximum=2, maximum_packet_size=1000)
    found = events(server, *packets)
    assert found[:-1] == packets[:-1]
    assert isinstance(found[-1], Closed)
    (answer,) = sent(server)
    assert isinstance(answer, Disconnect)
    assert answer.reason_code == found[-1].reason_code == reason_code
    assert events(server, Publish("a", b"")) == []
    assert server.next_timer_ms() is None


@pytest.mark.parametrize(
    ("announced", "topic_filter", "reason_code"),
    [
        ({p.SHARED_SUBSCRIPTION_AVAILABLE: 0}, "$share/g/a", reasons.SHARED_SUBSCRIPTIONS_NOT_SUPPORTED),
        ({p.WILDCARD_SUBSCRIPTION_AVAILABLE: 0}, "a/+", reasons.WILDCARD_SUBSCRIPTIONS_NOT_SUPPORTED),
        ({p.WILDCARD_SUBSCRIPTION_AVAILABLE: 0}, "#", reasons.WILDCARD_SUBSCRIPTIONS_NOT_SUPPORTED),
    ],
)
def test_subscription_beyond_the_announced_closes(announced: dict, topic_filter: str, reason_code: int) -> None:
    server = connected_server(None, announced)
    (closed,) = events(server, Subscribe(1, [("a", 0), (topic_filter, 0)]))
    assert closed.reason_code == reason_code


def test_what_is_not_announced_as_missing_is_there() -> None:
    server = connected_server()
    packets: list[Packet] = [
        Publish("a", b"", retain=True),
        Subscribe(1, [("$share/g/+", 1)], {p.SUBSCRIPTION_IDENTIFIER: [9]}),
    ]
    assert events(server, *packets) == packets


@pytest.mark.parametrize(
    ("will", "reason_code"),
    [
        (Will("w", b"", 2), reasons.QOS_NOT_SUPPORTED),  # [MQTT-3.2.2-12]
        (Will("w", b"", 1, True), reasons.RETAIN_NOT_SUPPORTED),  # [MQTT-3.2.2-13]
    ],
)
def test_will_beyond_the_announced_is_refused(will: Will, reason_code: int) -> None:
    server = ServerConnection()
    events(server, Connect("dev", will=will))
    server.accept(False, {p.RETAIN_AVAILABLE: 0, p.MAXIMUM_QOS: 1})
    (answer,) = sent(server)
    assert isinstance(answer, Connack)
    assert answer.reason_code == reason_code
    (closed,) = events(server)
    assert closed.reason_code == reason_code


def test_messages_flow_both_ways() -> None:
    server = connected_server(Connect("dev", properties={p.RECEIVE_MAXIMUM: 1}), receive_maximum=1)
    message = Publish("a", b"x", 1, packet_identifier=5)
    assert events(server, message) == [message]
    server.puback(5, reasons.NO_MATCHING_SUBSCRIBERS)
    again = Publish("a", b"x", 1, dup=True, packet_identifier=5)
    assert events(server, again) == [again]
    server.puback(5)
    assert server.publish("b", b"y", packet_identifier=77, retain=True) == 77
    with pytest.raises(LocalProtocolError):
        server.publish("b", b"z")
    assert sent(server) == [Puback(5, 0x10), Puback(5), Publish("b", b"y", 1, True, packet_identifier=77)]
    assert events(server, Puback(77), Puback(78)) == [Puback(77)]
    assert server.send_quota == 1


def test_requests_are_answered_once_and_in_full() -> None:
    server = connected_server()
    requests: list[Packet] = [Subscribe(1, [("a", 0), ("b", 1)]), Unsubscribe(2, ["a"])]
    assert events(server, *requests) == requests
    for wrong in (lambda: server.suback(1, [0]), lambda: server.suback(2, [0]), lambda: server.unsuback(3, [0])):
        with pytest.raises(LocalProtocolError):
            wrong()
    server.suback(1, [0, 1])
    server.unsuback(2, [0x11])
    assert sent(server) == [Suback(1, [0, 1]), Unsuback(2, [0x11])]
    with pytest.raises(LocalProtocolError):
        server.suback(1, [0, 1])


def test_pingreq_is_answered_unseen() -> None:
    server = connected_server()
    assert events(server, Pingreq()) == []  # [MQTT-3.12.4-1]
    assert sent(server) == [Pingresp()]


def test_nothing_larger_than_the_client_takes_is_sent() -> None:
    server = connected_server(Connect("dev", properties={p.MAXIMUM_PACKET_SIZE: 30}))
    with pytest.raises(PacketTooLargeError):  # [MQTT-3.1.2-24]
        server.publish("a", bytes(30))
    server.disconnect(reasons.SERVER_BUSY, "far too long a reason for this client")
    assert sent(server) == [Disconnect(reasons.SERVER_BUSY)]  # [MQTT-3.14.2-3]


def test_client_that_takes_no_connack_is_closed() -> None:
    server = ServerConnection()
    events(server, Connect("dev", properties={p.MAXIMUM_PACKET_SIZE: 2}))
    server.accept(False)
    assert sent(server) == []
    (closed,) = events(server)
    assert closed.reason_code == reasons.PACKET_TOO_LARGE


@pytest.mark.parametrize(("size", "code"), [(8, reasons.SUCCESS), (7, reasons.PACKET_TOO_LARGE)])
def test_whether_a_connack_fits_is_known_before_it_is_sent(size: int, code: int) -> None:
    server = ServerConnection(receive_maximum=9)
    events(server, Connect("dev", properties={p.MAXIMUM_PACKET_SIZE: size}))
    assert server.may_accept() == (code == reasons.SUCCESS)
    if code == reasons.SUCCESS:
        assert sent(server) == []
        server.accept(False)
        assert sent(server) == [Connack(False, code, {p.RECEIVE_MAXIMUM: 9})]
    else:
        assert sent(server) == [Connack(False, code)]
        assert [event.reason_code for event in events(server)] == [code]


def test_answer_larger_than_the_client_takes_counts_as_sent() -> None:
    server = connected_server(Connect("dev", properties={p.MAXIMUM_PACKET_SIZE: 20}))
    events(server, Subscribe(1, [("a", 0)] * 20))
    server.suback(1, [0] * 20)
    assert sent(server) == []
    assert server.connected


def test_clients_disconnect_is_seen_and_closes() -> None:
    server = connected_server(Connect("dev", properties={p.SESSION_EXPIRY_INTERVAL: 9}))
    goodbye = Disconnect(reasons.DISCONNECT_WITH_WILL, {p.SESSION_EXPIRY_INTERVAL: 5})
    text = "the client says: disconnect with will (0x04)"
    assert events(server, goodbye) == [goodbye, Closed(reasons.DISCONNECT_WITH_WILL, text)]
    assert sent(server) == []
    with pytest.raises(LocalProtocolError):
        server.puback(1)


def test_own_disconnect_closes() -> None:
    server = connected_server()
    server.disconnect(reasons.SESSION_TAKEN_OVER)
    text = "session taken over (0x8e)"
    assert sent(server) == [Disconnect(reasons.SESSION_TAKEN_OVER, {p.REASON_STRING: text})]
    assert events(server) == [Closed(reasons.SESSION_TAKEN_OVER, text)]


def test_missing_connect_closes_in_time() -> None:
    server = ServerConnection(connect_timeout_ms=5000)
    assert server.next_timer_ms() == 0
    server.handle_timer(NOW_MS)
    assert server.next_timer_ms() == NOW_MS + 5000
    server.receive_data(b"\x10", NOW_MS + 4000)
    server.handle_timer(NOW_MS + 4999)
    assert server.next_event() is None
    server.handle_timer(NOW_MS + 5000)
    assert events(server) == [Closed(reasons.UNSPECIFIED_ERROR, "no CONNECT in 5000 ms")]
    assert sent(server) == []


@pytest.mark.parametrize(("properties", "keep_alive_s"), [({}, 10), ({p.SERVER_KEEP_ALIVE: 4}, 4)])
def test_silence_of_one_and_a_half_keep_alive_closes(properties: dict, keep_alive_s: int) -> None:
    server = connected_server(Connect("dev", keep_alive_s=10), properties)
    assert server.next_timer_ms() == NOW_MS + 1500 * keep_alive_s  # [MQTT-3.1.2-22]
    events(server, Pingreq(), now_ms=NOW_MS + 1000)
    sent(server)
    server.handle_timer(NOW_MS + 1500 * keep_alive_s)
    assert server.connected
    server.handle_timer(NOW_MS + 1000 + 1500 * keep_alive_s)
    (closed,) = events(server)
    assert closed.reason_code == reasons.KEEP_ALIVE_TIMEOUT
    (answer,) = sent(server)
    assert isinstance(answer, Disconnect)
    assert answer.reason_code == reasons.KEEP_ALIVE_TIMEOUT


def trickle(server: ServerConnection, bytes_a_second: int, seconds: int) -> None:
    """A large message, on its way."""
    server.receive_data(b"\x30\xff\xff\x03", NOW_MS)
    for second in range(1, seconds + 1):
        now_ms = NOW_MS + 1000 * second
        server.receive_data(b"\0" * bytes_a_second, now_ms)
        assert server.next_event() is None
        server.handle_timer(now_ms)


def test_a_packet_that_never_ends_keeps_no_client_alive() -> None:
    server = connected_server(Connect("dev", keep_alive_s=10))
    trickle(server, bytes_a_second=1, seconds=14)
    assert server.connected
    trickle(server, bytes_a_second=1, seconds=15)
    assert not server.connected


def test_a_large_packet_on_a_slow_line_does() -> None:
    server = connected_server(Connect("dev", keep_alive_s=10))
    trickle(server, bytes_a_second=100, seconds=500)
    assert server.connected


def test_keep_alive_zero_needs_no_timer() -> None:
    server = connected_server(Connect("dev", keep_alive_s=0))
    assert server.next_timer_ms() is None


def test_ill_formed_filters_are_refused_one_by_one_and_the_others_served() -> None:
    server = connected_server()
    subscribe = b"\x82\x15\x00\x01\x00\x00\x02a#\x01\x00\x01b\x02\x00\x02+d\x00\x00\x01c\x01"
    assert events(server, subscribe) == [Subscribe(1, [("b", 2), ("c", 1)])]  # [MQTT-4.7.1-1, MQTT-4.7.1-2]
    with pytest.raises(LocalProtocolError):
        server.suback(1, [0x8F, 2, 0x8F, 1])
    server.suback(1, [2, 1])
    assert sent(server) == [Suback(1, [0x8F, 2, 0x8F, 1])]
    assert events(server, b"\xa2\x0c\x00\x02\x00\x00\x01b\x00\x04#/#/") == [Unsubscribe(2, ["b"])]
    server.unsuback(2, [0])
    assert sent(server) == [Unsuback(2, [0, 0x8F])]


def test_request_without_a_well_formed_filter_is_refused_unseen() -> None:
    server = connected_server()
    assert events(server, b"\x82\x08\x00\x01\x00\x00\x02a#\x01", b"\xa2\x07\x00\x02\x00\x00\x02+b") == []
    suback, unsuback = sent(server)
    assert isinstance(suback, Suback) and suback.reason_codes == [0x8F]
    assert isinstance(unsuback, Unsuback) and unsuback.reason_codes == [0x8F]
    assert server.connected


def test_client_that_wants_no_reasons_gets_them_only_at_the_end() -> None:
    server = connected_server(Connect("dev", properties={p.REQUEST_PROBLEM_INFORMATION: 0}))
    events(server, Publish("a", b"", 1, packet_identifier=1), b"\x82\x08\x00\x02\x00\x00\x02a#\x01")
    server.puback(1, reasons.QUOTA_EXCEEDED, "full")
    server.disconnect(reasons.SERVER_BUSY, "busy")  # [MQTT-3.1.2-29]
    assert sent(server) == [
        Suback(2, [reasons.TOPIC_FILTER_INVALID]),
        Puback(1, reasons.QUOTA_EXCEEDED),
        Disconnect(reasons.SERVER_BUSY, {p.REASON_STRING: "busy"}),
    ]


def test_no_session_is_present_after_a_clean_start() -> None:
    server = ServerConnection()
    events(server, Connect("dev", clean_start=True))
    with pytest.raises(LocalProtocolError):
        server.accept(True)
