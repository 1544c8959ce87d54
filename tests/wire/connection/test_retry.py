"""What is sent again, and when."""

import pytest

from tests.wire.connection.talk import NOW_MS, connected_client, events, sent
from wire import reasons
from wire.codec.packets import MQTT_3_1_1, Puback, Pubcomp, Publish, Pubrec
from wire.connection.client import RETRY_INTERVAL_3_1_1_MS
from wire.connection.retry import LONGEST_FACTOR, RetryDue, RetryTimer
from wire.errors import Closed, LocalProtocolError


def test_unacknowledged_goes_out_again_in_order_over_3_1_1() -> None:
    client = connected_client(protocol_level=MQTT_3_1_1, keep_alive_s=0)
    for qos in (1, 2, 2, 1):
        client.publish("a", b"x", qos=qos)
    events(client, Pubrec(3))
    client.pubrel(3)
    sent(client)
    assert client.next_timer_ms() == NOW_MS + RETRY_INTERVAL_3_1_1_MS
    client.handle_timer(NOW_MS + RETRY_INTERVAL_3_1_1_MS - 1)
    assert events(client) == []
    client.handle_timer(NOW_MS + RETRY_INTERVAL_3_1_1_MS)
    assert events(client) == [RetryDue([1, 2, 4])]
    client.publish("a", b"x", qos=1, dup=True, packet_identifier=1)
    client.publish("a", b"x", qos=2, dup=True, packet_identifier=2)
    encoded = client.data_to_send()
    assert encoded == b"\x62\x02\x00\x03\x3a\x06\x00\x01a\x00\x01x\x3c\x06\x00\x01a\x00\x02x"
    assert events(client, Puback(1), Pubcomp(3), Puback(1)) == [Puback(1), Pubcomp(3)]


def test_what_was_acknowledged_meanwhile_is_not_due() -> None:
    client = connected_client(protocol_level=MQTT_3_1_1, retry_interval_ms=100, keep_alive_s=0)
    client.publish("a", b"x")
    client.publish("a", b"y")
    client.handle_timer(NOW_MS + 100)
    client.receive_data(b"\x40\x02\x00\x01", NOW_MS + 100)
    assert events(client) == [RetryDue([1, 2]), Puback(1)]
    client.handle_timer(NOW_MS + 300)
    client.receive_data(b"\x40\x02\x00\x02", NOW_MS + 300)
    assert events(client) == [RetryDue([2]), Puback(2)]
    assert client.next_timer_ms() is None


def test_message_whose_pubrec_is_being_noted_is_not_sent_again() -> None:
    client = connected_client(protocol_level=MQTT_3_1_1, retry_interval_ms=100, keep_alive_s=0)
    client.publish("a", b"x", qos=2)
    events(client, Pubrec(1))
    assert client.next_timer_ms() is None


def test_version_5_closes_so_that_the_session_may_be_resumed() -> None:
    client = connected_client(retry_interval_ms=5_000, keep_alive_s=0)
    client.publish("a", b"x")
    sent(client)
    client.handle_timer(NOW_MS + 5_000)
    (closed,) = events(client)
    assert isinstance(closed, Closed)
    assert closed.reason_code == reasons.UNSPECIFIED_ERROR
    assert sent(client) == []


def test_version_5_waits_for_ever_unless_told() -> None:
    client = connected_client(keep_alive_s=0)
    client.publish("a", b"x")
    assert client.next_timer_ms() is None


@pytest.mark.parametrize("interval_ms", [0, None])
def test_keep_alive_goes_on_beside_the_retries(interval_ms: int | None) -> None:
    client = connected_client(protocol_level=MQTT_3_1_1, retry_interval_ms=interval_ms, keep_alive_s=10)
    client.publish("a", b"x")
    sent(client)
    client.handle_timer(NOW_MS + 10_000)
    assert client.data_to_send() == b"\xc0\x00"


def test_dup_of_a_message_that_is_not_on_the_way_takes_a_place() -> None:
    client = connected_client(protocol_level=MQTT_3_1_1)
    assert client.publish("a", b"x", dup=True, packet_identifier=9) == 9
    with pytest.raises(LocalProtocolError):
        client.publish("a", b"x", packet_identifier=9)
    with pytest.raises(LocalProtocolError):
        client.publish("a", b"x", qos=2, dup=True, packet_identifier=9)
    assert sent(client) == [Publish("a", b"x", 1, dup=True, packet_identifier=9)]


def test_late_broker_gets_fewer_and_fewer_copies() -> None:
    timer = RetryTimer(1000)
    timer.sent(1, 0)
    now_ms, waits = 0, []
    for _ in range(8):
        due_ms = timer.next_timer_ms()
        assert due_ms is not None
        assert timer.take_due(due_ms) == [1]
        waits.append(due_ms - now_ms)
        now_ms = due_ms
    assert waits == [1000, 2000, 4000, 8000, 16_000, 16_000, 16_000, 16_000]
    assert waits[-1] == 1000 * LONGEST_FACTOR


def test_late_answer_to_a_first_copy_does_not_shorten_the_wait() -> None:
    timer = RetryTimer(1000)
    timer.sent(1, 0)
    timer.take_due(1000)
    timer.acknowledged(1, 1200)
    timer.sent(2, 1500)
    assert timer.next_timer_ms() == 3500
    timer.acknowledged(2, 1800)
    timer.sent(3, 2000)
    assert timer.next_timer_ms() == 3000
    timer.acknowledged(3, 2700)
    timer.sent(4, 3000)
    assert timer.next_timer_ms() == 4400
    timer.acknowledged(9, 4000)


def test_broker_that_answers_after_the_interval_gets_few_copies() -> None:
    """30 s late, 8 messages on the way, 20 s interval: an hour of messages goes out little more than once."""
    timer = RetryTimer(20_000)
    answers: list[tuple[int, int]] = []
    identifier = copies = 0
    for now_ms in range(0, 3_600_000, 1000):
        while answers and answers[0][0] <= now_ms:
            timer.acknowledged(answers.pop(0)[1], now_ms)
        copies += len(timer.take_due(now_ms))
        while len(answers) < 8:
            identifier += 1
            timer.sent(identifier, now_ms)
            answers.append((now_ms + 30_000, identifier))
    assert identifier > 900
    assert copies < 10
