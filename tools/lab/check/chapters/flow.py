"""Flow control and packet sizes (sections 3.1.2.11.3, 3.1.2.11.4, 3.3.4 and 4.9 of MQTT 5.0)."""

from tools.lab.check.client import Client
from tools.lab.check.outcome import Failed, Skipped
from tools.lab.check.subject import Broker
from tools.lab.check.suite import check
from wire import properties as p
from wire import reasons
from wire.codec.packets import (
    Packet,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    Unsuback,
    Unsubscribe,
)

LARGE = 20_000_000  # bytes that a check sends to go beyond a Maximum Packet Size
PATIENT = 4000  # messages that a check sends to go beyond a Receive Maximum


async def full(broker: Broker, qos: int) -> tuple[Client, Client, str]:
    """A subscriber with a Receive Maximum of 2 and five messages for it, their publisher, and the topic."""
    broker.needs(p.MAXIMUM_QOS, qos)
    topic, watcher, client = await broker.watched(qos, properties={p.RECEIVE_MAXIMUM: 2})
    await client.publish_all(topic, [bytes((number,)) for number in range(5)], qos)
    return watcher, client, topic


def expect_on_the_way(client: Client, most: int) -> None:
    """No more QoS 1 and 2 messages have come than that."""
    came = [packet for packet in client.received if isinstance(packet, Publish) and packet.qos]
    if len(came) > most:
        raise Failed(f"{most} messages at most without an acknowledgement", repr(came))


@check(v5="3.3.4-9 4.9.0-1 4.9.0-2", cases={"qos_1": 1, "qos_2": 2})
async def no_more_messages_are_on_the_way_than_the_client_takes(broker: Broker, qos: int) -> None:
    watcher, _, _ = await full(broker, qos)
    for number in range(5):
        await watcher.ping()
        expect_on_the_way(watcher, number + 2)
        await watcher.receive(payload=bytes((number,)))


@check(v5="3.3.4-9 4.9.0-2")
async def a_pubrec_frees_no_place(broker: Broker) -> None:
    watcher, _, _ = await full(broker, 2)
    for _ in range(2):
        message = await watcher.expect(Publish)
        await watcher.answer(Pubrec, message)
        await watcher.expect(Pubrel)
    await watcher.ping()
    expect_on_the_way(watcher, 2)


@check(v5="3.3.4-9")
async def a_pubrec_that_refuses_frees_its_place(broker: Broker) -> None:
    watcher, _, _ = await full(broker, 2)
    for number in range(5):
        message = await watcher.expect(Publish, payload=bytes((number,)))
        await watcher.answer(Pubrec, message, reasons.UNSPECIFIED_ERROR)


@check(v5="4.9.0-1 3.3.4-9 4.4.0-1")
async def the_send_quota_begins_anew_with_each_connection(broker: Broker) -> None:
    two = {p.RECEIVE_MAXIMUM: 2}
    topic, watcher, client = await broker.watched(1, is_kept=True, properties=two)
    await client.publish_all(topic, [bytes((number,)) for number in range(4)], 1)
    await watcher.expect(Publish)
    await watcher.expect(Publish)
    watcher = await broker.reconnect(watcher, properties=two)
    for number in range(4):
        await watcher.ping()
        expect_on_the_way(watcher, number + 2)
        await watcher.receive(payload=bytes((number,)), dup=number < 2)


@check(v5="4.9.0-1 3.3.4-9 4.4.0-1")
async def a_smaller_receive_maximum_of_the_next_connection_counts(broker: Broker) -> None:
    topic, watcher, client = await broker.watched(1, is_kept=True)
    await client.publish_all(topic, [bytes((number,)) for number in range(5)], 1)
    for _ in range(5):
        await watcher.expect(Publish)
    watcher = await broker.reconnect(watcher, properties={p.RECEIVE_MAXIMUM: 2})
    for number in range(5):
        await watcher.ping()
        expect_on_the_way(watcher, number + 2)
        await watcher.receive(payload=bytes((number,)), dup=True)


@check(v5="3.3.4-10 4.9.0-3")
async def all_else_is_answered_while_the_client_takes_no_messages(broker: Broker) -> None:
    watcher, client, _ = await full(broker, 1)
    other = broker.topic()
    await watcher.ping()
    await watcher.subscribe(other, options=0)
    await watcher.publish(broker.topic(), b"", qos=1)
    await watcher.unsubscribe(other)
    await client.ping()
    expect_on_the_way(watcher, 2)


@check(v5="4.9.0-3 3.3.4-8")
async def all_else_is_answered_while_the_broker_takes_no_messages(broker: Broker) -> None:
    client = await broker.connect()
    await fill(client, receive_maximum(client))
    await client.ping()
    await client.subscribe(broker.topic())
    await client.send(Pubrel(1))
    await client.expect(Pubcomp, packet_identifier=1)


@check(v5="3.3.4-7 4.13.1-1")
async def more_messages_than_the_broker_takes_close_the_connection(broker: Broker) -> None:
    client = await broker.connect()
    largest = receive_maximum(client)
    await fill(client, largest)
    await client.send(Publish(broker.topic(), b"", 2, packet_identifier=largest + 1))
    await client.expect_closed(reasons.RECEIVE_MAXIMUM_EXCEEDED)


@check(v5="3.2.2-15 4.13.1-1")
async def a_packet_larger_than_the_broker_takes_closes_the_connection(broker: Broker) -> None:
    client = await broker.connect()
    largest = client.connack.properties.get(p.MAXIMUM_PACKET_SIZE, LARGE + 1)
    if largest > LARGE:
        raise Skipped(f"the broker takes packets of more than {LARGE} bytes")
    await client.send(Publish(broker.topic(), b"x" * largest))
    await client.expect_closed(reasons.PACKET_TOO_LARGE)


def receive_maximum(client: Client) -> int:
    largest: int = client.connack.properties.get(p.RECEIVE_MAXIMUM, 65_535)
    if largest > PATIENT or client.connack.properties.get(p.MAXIMUM_QOS, 2) < 2:
        raise Skipped(f"the broker takes {largest} messages at once, or no QoS 2")
    return largest


async def fill(client: Client, count: int) -> None:
    """Sends ``count`` QoS 2 messages without their PUBRELs."""
    topic = f"hfcheck/{client.client_id}"
    await client.send(*(Publish(topic, b"", 2, packet_identifier=number + 1) for number in range(count)))
    for number in range(count):
        await client.expect(Pubrec, packet_identifier=number + 1)


@check(v5="3.1.2-24 3.1.2-25")
async def a_message_too_large_for_one_client_is_left_out_for_it_alone(broker: Broker) -> None:
    topic = broker.topic()
    small, large = await broker.connect(properties={p.MAXIMUM_PACKET_SIZE: 100}), await broker.connect()
    client = await broker.connect()
    for watcher in (small, large):
        await watcher.subscribe(topic, options=1)
    for payload in (b"fits", b"x" * 100, b"fits too"):
        await client.publish(topic, payload, qos=1)
    for payload in (b"fits", b"x" * 100, b"fits too"):
        await large.receive(payload=payload)
    for payload in (b"fits", b"fits too"):
        await small.receive(payload=payload)


@check(v5="3.1.2-24 4.5.0-1")
async def a_message_as_large_as_the_client_takes_arrives(broker: Broker) -> None:
    topic, largest = broker.topic(), 100
    size = len(Publish(topic, b"", 1, packet_identifier=1).encode())
    watcher, client = await broker.connect(properties={p.MAXIMUM_PACKET_SIZE: largest}), await broker.connect()
    await watcher.subscribe(topic, options=1)
    for payload in (b"x" * (largest - size + 1), b"x" * (largest - size)):
        await client.publish(topic, payload, qos=1)
    await watcher.receive(payload=b"x" * (largest - size))


@check(v5="3.1.2-25 3.1.2-24")
async def messages_too_large_take_none_of_the_places(broker: Broker) -> None:
    properties = {p.MAXIMUM_PACKET_SIZE: 100, p.RECEIVE_MAXIMUM: 1}
    topic, watcher, client = await broker.watched(1, properties=properties)
    for payload in (b"x" * 100, b"x" * 200, b"fits"):
        await client.publish(topic, payload, qos=1)
    await watcher.receive(payload=b"fits")


@check(v5="3.1.2-24 3.1.2-25")
async def a_retained_message_too_large_for_the_client_is_left_out(broker: Broker) -> None:
    broker.needs(p.RETAIN_AVAILABLE)
    topic = broker.retained_topic()
    client, watcher = await broker.connect(), await broker.connect(properties={p.MAXIMUM_PACKET_SIZE: 150})
    await client.publish(topic, b"x" * 150, qos=1, retain=True)
    await watcher.subscribe(topic, options=1)
    await watcher.expect_no_message()


@check(
    v5="3.1.2-24 3.4.2-2 3.4.2-3 3.5.2-2 3.5.2-3 3.6.2-2 3.6.2-3 3.7.2-2 3.7.2-3 3.9.2-1 3.9.2-2 3.11.2-1 3.11.2-2"
    " 3.14.2-3 3.14.2-4"
)
async def no_answer_is_larger_than_the_client_takes(broker: Broker) -> None:
    largest = 40
    client = await broker.connect(properties={p.MAXIMUM_PACKET_SIZE: largest})
    for packet, kind in refusals(broker):
        await client.send(packet)
        await client.expect(kind)
    await client.send(broker.connect_packet(client.client_id))
    await client.expect_closed(reasons.PROTOCOL_ERROR)
    for answer in client.received:
        if len(answer.encode()) > largest:
            raise Failed(f"packets of {largest} bytes at most", repr(answer))


@check(v5="3.1.2-29")
async def a_client_that_wants_no_reasons_gets_them_only_at_the_end(broker: Broker) -> None:
    client = await broker.connect(properties={p.REQUEST_PROBLEM_INFORMATION: 0})
    for packet, kind in refusals(broker):
        await client.send(packet)
        answer = await client.expect(kind)
        if {p.REASON_STRING, p.USER_PROPERTY} & answer.properties.keys():
            raise Failed("neither reason string nor user property", repr(answer))


def refusals(broker: Broker) -> list[tuple[Packet, type[Puback | Pubrec | Pubcomp | Suback | Unsuback]]]:
    """Sends requests that succeed and requests that fail, to which a server might add a reason string, and expects
    their answers."""
    return [
        (Publish(f"{broker.topic()}/unread", b"", 1, packet_identifier=1), Puback),
        (Publish(f"{broker.topic()}/unread", b"", 2, packet_identifier=2), Pubrec),
        (Pubrel(2), Pubcomp),
        (Pubrel(99), Pubcomp),
        (Subscribe(3, [(broker.topic(), 0), ("$SYS/hfcheck/+", 0)]), Suback),
        (Unsubscribe(4, [broker.topic()]), Unsuback),
    ]
