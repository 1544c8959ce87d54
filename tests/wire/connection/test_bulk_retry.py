"""A connection that sends many messages at once, to a server that does not acknowledge one of them."""

from collections.abc import Callable

import pytest

from wire.bulk.connection import BulkClientConnection
from wire.codec.connack import Connack
from wire.codec.connect import Connect
from wire.codec.packets import MQTT_3_1_1, MQTT_5, Publish
from wire.errors import Closed
from wire.packet_types import PUBACK, PUBREC

INTERVAL_MS = 20_000


def connected(level: int = MQTT_5, interval_ms: int = INTERVAL_MS) -> BulkClientConnection:
    client = BulkClientConnection(Connect("route", protocol_level=level), retry_interval_ms=interval_ms)
    client.connect(0)
    client.receive_data(Connack(False, 0, {}).encode(level), 0)
    client.next_event()
    return client


def send(client: BulkClientConnection, identifiers: list[int], qos: int = 1) -> None:
    packets = [Publish("a", b"", qos, packet_identifier=one).encode(client.protocol_level) for one in identifiers]
    assert client.publish_all(identifiers, b"".join(packets), max(map(len, packets)), qos)


def run_until_closed(client: BulkClientConnection, each: Callable[[int], None] = lambda _: None) -> tuple[int, Closed]:
    """Returns when the connection closes, and its last event."""
    while (now_ms := client.next_timer_ms()) is not None:
        client.handle_timer(now_ms)
        if (event := client.next_event()) is not None:
            assert isinstance(event, Closed)
            return now_ms, event
        each(now_ms)
    raise AssertionError("it waits for ever")


@pytest.mark.parametrize("level", [MQTT_5, MQTT_3_1_1])
@pytest.mark.parametrize("qos", [1, 2])
def test_a_message_without_an_acknowledgement_ends_the_connection_after_the_interval(level: int, qos: int) -> None:
    client = connected(level)
    send(client, [7, 8], qos)
    assert client.take_acknowledgements(PUBACK if qos == 1 else PUBREC, [7])
    closed_ms, closed = run_until_closed(client)
    assert INTERVAL_MS <= closed_ms <= INTERVAL_MS * 1.25
    assert "no acknowledgement of packet identifier 8 in 20 s" in closed.text


def test_a_pubrel_without_a_pubcomp_ends_it_an_interval_after_the_pubrel() -> None:
    client = connected()
    send(client, [7], 2)
    released_ms: list[int] = []

    def answer(now_ms: int) -> None:
        if now_ms >= INTERVAL_MS // 2 and not released_ms:
            assert client.take_acknowledgements(PUBREC, [7])
            client.pubrel_all([7])
            released_ms.append(now_ms)

    closed_ms, _ = run_until_closed(client, answer)
    assert released_ms[0] + INTERVAL_MS <= closed_ms <= released_ms[0] + INTERVAL_MS * 1.5


def test_a_pubrel_that_waits_for_our_own_disk_ends_nothing() -> None:
    client = connected()
    send(client, [7], 2)
    assert client.take_acknowledgements(PUBREC, [7])
    for _ in range(20):
        client.handle_timer(client.next_timer_ms())  # type: ignore[arg-type]
    assert client.connected


def test_a_packet_identifier_that_is_used_again_counts_from_its_newest_message() -> None:
    client = connected()
    answered: list[int] = []

    def answer(now_ms: int) -> None:
        if now_ms < 4 * INTERVAL_MS:
            assert client.take_acknowledgements(PUBACK, [7])
            send(client, [7])
            answered.append(now_ms)

    send(client, [7])
    closed_ms, _ = run_until_closed(client, answer)
    assert answered[-1] + INTERVAL_MS <= closed_ms <= answered[-1] + INTERVAL_MS * 1.25


def test_without_an_interval_the_connection_waits_for_ever() -> None:
    client = connected(interval_ms=0)
    send(client, [7])
    assert client.next_timer_ms() is None


def test_a_message_counts_from_when_the_line_has_taken_it() -> None:
    """A large message on a slow line: its server cannot answer what it does not have."""
    client = connected()
    client.note_line(written=10, taken=10)
    send(client, [7])
    taken_by_ms = 10 * INTERVAL_MS

    def trickle(now_ms: int) -> None:
        client.note_line(written=1010, taken=10 + min(1000, 1000 * now_ms // taken_by_ms))

    trickle(0)
    closed_ms, closed = run_until_closed(client, trickle)
    assert taken_by_ms + INTERVAL_MS <= closed_ms <= taken_by_ms + INTERVAL_MS * 1.5
    assert "no acknowledgement of packet identifier 7" in closed.text


def test_a_line_that_takes_nothing_ends_the_connection_after_the_interval() -> None:
    client = connected()
    send(client, [7])
    client.note_line(written=1010, taken=10)
    closed_ms, _ = run_until_closed(client, lambda _: client.note_line(written=1010, taken=10))
    assert INTERVAL_MS <= closed_ms <= INTERVAL_MS * 1.5


def test_a_line_that_takes_later_messages_does_not_excuse_an_earlier_one_that_it_has_taken() -> None:
    client = connected()
    client.note_line(written=0, taken=0)
    send(client, [7])
    client.note_line(written=100, taken=100)
    steps = iter(range(200, 100_000, 100))

    def send_more(_: int) -> None:
        taken = next(steps)
        client.note_line(written=taken + 1000, taken=taken)

    closed_ms, _ = run_until_closed(client, send_more)
    assert closed_ms <= INTERVAL_MS * 1.5


@pytest.mark.parametrize(("is_moving", "is_alive"), [(True, True), (False, False)])
def test_a_ping_behind_much_that_the_line_is_still_taking_does_not_end_the_connection(
    is_moving: bool, is_alive: bool
) -> None:
    client = BulkClientConnection(Connect("route", keep_alive_s=10))
    client.connect(0)
    client.receive_data(Connack(False, 0, {}).encode(), 0)
    client.next_event()
    taken = 100
    client.note_line(written=1_000_000, taken=taken)
    for _ in range(10):
        if (now_ms := client.next_timer_ms()) is None:
            break
        taken += 1000 * is_moving
        client.note_line(written=1_000_000, taken=taken)
        client.handle_timer(now_ms)
    assert client.connected is is_alive
