"""Shared subscriptions (section 4.8.2 of MQTT 5.0)."""

from tools.lab.check.chapters.subscribe import expect_not_granted, raw_subscribe
from tools.lab.check.client import Client, first_of
from tools.lab.check.outcome import Failed
from tools.lab.check.subject import Broker
from tools.lab.check.suite import check
from wire import properties as p
from wire import reasons
from wire.codec.packets import NO_LOCAL, Puback, Pubcomp, Publish, Pubrec, Pubrel

BAD_SHARES = {
    "no_share_name": "$share//{}",
    "plus_in_the_share_name": "$share/a+/{}",
    "hash_in_the_share_name": "$share/#/{}",
    "no_filter": "$share/a/",
    "nothing_behind_the_share_name": "$share/a",
}


async def members(broker: Broker, topic: str, *qos: int) -> list[Client]:
    """Clients with sessions that are kept, which share a subscription."""
    broker.needs(p.SHARED_SUBSCRIPTION_AVAILABLE)
    clients = [await broker.resume(broker.client_id()) for _ in qos]
    for client, granted in zip(clients, qos, strict=True):
        await client.subscribe(f"$share/group/{topic}", options=granted)
    return clients


async def one_that_got(first: Client, second: Client) -> tuple[Client, Client, Publish]:
    """Returns which of two members gets the next message, the other member, and the message."""
    member, message = await first_of((first, second), Publish)
    return member, second if member is first else first, message


@check(v5="4.8.2-1 4.8.2-2", cases=BAD_SHARES)
async def an_ill_formed_share_is_not_granted(broker: Broker, pattern: str) -> None:
    broker.needs(p.SHARED_SUBSCRIPTION_AVAILABLE)
    client = await broker.connect()
    await client.send(raw_subscribe(broker, pattern.format(broker.topic()).encode()))
    await expect_not_granted(client, reasons.TOPIC_FILTER_INVALID, reasons.NOT_AUTHORIZED)


@check(v5="3.8.3-4 4.13.1-1")
async def a_share_with_no_local_closes_the_connection(broker: Broker) -> None:
    broker.needs(p.SHARED_SUBSCRIPTION_AVAILABLE)
    packet = raw_subscribe(broker, f"$share/group/{broker.topic()}".encode(), NO_LOCAL)
    await broker.expect_closed(packet, reasons.PROTOCOL_ERROR, reasons.MALFORMED_PACKET)


@check(v5="4.8.2-1 4.8.2-2")
async def each_message_goes_to_one_of_the_group(broker: Broker) -> None:
    topic = broker.topic()
    first, second = await members(broker, topic, 1, 1)
    alone, client = await broker.connect(), await broker.connect()
    await alone.subscribe(topic, options=1)
    numbers = [bytes((number,)) for number in range(12)]
    await client.publish_all(topic, numbers, 1)
    came: list[bytes] = []
    while len(came) < len(numbers):
        member, message = await first_of((first, second), Publish)
        await member.answer(Puback, message)
        came.append(message.payload)
    for number in numbers:
        await alone.receive(payload=number)
    if sorted(came) != numbers:
        raise Failed("each message once in the group", str(came))
    for member in (first, second):
        await member.expect_no_message()


@check(v5="4.8.2-1 4.8.2-2 4.5.0-1")
async def each_group_gets_each_message(broker: Broker) -> None:
    broker.needs(p.SHARED_SUBSCRIPTION_AVAILABLE)
    topic, client = broker.topic(), await broker.connect()
    groups = [await broker.connect() for _ in range(2)]
    for number, member in enumerate(groups):
        await member.subscribe(f"$share/group{number}/{topic}", options=1)
    for payload in (b"first", b"second"):
        await client.publish(topic, payload, qos=1)
        for member in groups:
            await member.receive(topic=topic, payload=payload)


@check(v5="4.8.2-3", cases={"qos_0": 0, "qos_1": 1})
async def a_member_gets_no_more_than_its_own_qos(broker: Broker, granted: int) -> None:
    topic = broker.topic()
    (member,) = await members(broker, topic, granted)
    client = await broker.connect()
    await client.publish(topic, b"", qos=min(2, broker.offered.get(p.MAXIMUM_QOS, 2)))
    await member.receive(qos=granted)


@check(v5="4.8.2-4 4.4.0-1")
async def a_qos_2_delivery_that_has_begun_ends_with_the_same_member(broker: Broker) -> None:
    broker.needs(p.MAXIMUM_QOS, 2)
    topic = broker.topic()
    pair = await members(broker, topic, 2, 2)
    client = await broker.connect()
    await client.publish(topic, b"", qos=2)
    member, other, message = await one_that_got(*pair)
    await member.answer(Pubrec, message)
    await member.expect(Pubrel)
    member = await broker.reconnect(member)
    await member.expect(Pubrel, packet_identifier=message.packet_identifier)
    await member.answer(Pubcomp, message)
    await other.expect_no_message()


@check(v5="4.8.2-5")
async def a_qos_2_delivery_that_has_begun_ends_with_the_session_of_its_member(broker: Broker) -> None:
    broker.needs(p.MAXIMUM_QOS, 2)
    topic = broker.topic()
    pair = await members(broker, topic, 2, 2)
    client = await broker.connect()
    await client.publish(topic, b"", qos=2)
    member, other, message = await one_that_got(*pair)
    await member.answer(Pubrec, message)
    await member.expect(Pubrel)
    await member.disconnect(properties={p.SESSION_EXPIRY_INTERVAL: 0})
    await client.publish(topic, b"marker", qos=2)
    await other.receive(payload=b"marker")


@check(v5="4.8.2-6")
async def a_message_that_a_member_refuses_goes_to_no_other(broker: Broker) -> None:
    topic = broker.topic()
    pair = await members(broker, topic, 1, 1)
    client = await broker.connect()
    await client.publish(topic, b"refused", qos=1)
    member, other, message = await one_that_got(*pair)
    await member.answer(Puback, message, reasons.IMPLEMENTATION_SPECIFIC_ERROR)
    await member.ping()
    await other.expect_no_message()
    await member.disconnect(properties={p.SESSION_EXPIRY_INTERVAL: 0})
    await client.publish(topic, b"marker", qos=1)
    await other.receive(payload=b"marker")
