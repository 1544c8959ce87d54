"""Topic aliases (section 3.3.2.3.4 of MQTT 5.0), both ways."""

from tools.lab.check.client import Client
from tools.lab.check.outcome import Failed, Skipped
from tools.lab.check.subject import Broker
from tools.lab.check.suite import check
from wire import properties as p
from wire import reasons
from wire.codec import frame
from wire.codec.packets import Publish
from wire.primitives import encode_string

BAD_ALIAS = (reasons.TOPIC_ALIAS_INVALID, reasons.PROTOCOL_ERROR, reasons.MALFORMED_PACKET)


def maximum(client: Client) -> int:
    """The highest alias that the broker takes; where it takes none the check ends."""
    largest: int = client.connack.properties.get(p.TOPIC_ALIAS_MAXIMUM, 0)
    if largest == 0:
        raise Skipped("the broker takes no topic aliases")
    return largest


@check(v5="3.3.2-12")
async def aliases_are_taken_up_to_the_maximum_announced(broker: Broker) -> None:
    topic, client = broker.topic(), await broker.connect()
    largest = maximum(client)
    await client.subscribe(f"{topic}/+")
    for alias in (1, largest):
        await client.publish(f"{topic}/{alias}", b"named", properties={p.TOPIC_ALIAS: alias})
        await client.receive(topic=f"{topic}/{alias}", payload=b"named")
        await client.publish("", b"by alias", properties={p.TOPIC_ALIAS: alias})
        await client.receive(topic=f"{topic}/{alias}", payload=b"by alias")


@check(v5="3.3.2-12", cases={"qos_0": 0, "qos_1": 1, "qos_2": 2})
async def an_alias_may_be_given_to_another_topic(broker: Broker, qos: int) -> None:
    topic, client = broker.topic(), await broker.connect()
    maximum(client)
    await client.subscribe(f"{topic}/+", options=2)
    for name in ("a", "b", ""):
        named = f"{topic}/{name}" if name else ""
        await client.publish(named, name.encode(), qos=qos, properties={p.TOPIC_ALIAS: 1})
        await client.receive(topic=named or f"{topic}/b", payload=name.encode(), qos=qos)


@check(v5="3.3.2-8 4.13.1-1")
async def alias_0_closes_the_connection(broker: Broker) -> None:
    await broker.expect_closed(frame(0x30, encode_string(broker.topic()) + b"\x03\x23\x00\x00"), *BAD_ALIAS)


@check(v5="3.3.2-9 3.2.2-17 3.2.2-18 4.13.1-1")
async def an_alias_beyond_the_maximum_announced_closes_the_connection(broker: Broker) -> None:
    client = await broker.connect()
    largest = client.connack.properties.get(p.TOPIC_ALIAS_MAXIMUM, 0)
    if largest == 65_535:
        return
    await client.send(Publish(broker.topic(), b"", properties={p.TOPIC_ALIAS: largest + 1}))
    await client.expect_closed(reasons.TOPIC_ALIAS_INVALID)


@check(v5="3.3.2-7 4.13.1-1")
async def an_alias_ends_with_its_connection(broker: Broker) -> None:
    client = await broker.resume(broker.client_id())
    maximum(client)
    await client.publish(broker.topic(), b"", properties={p.TOPIC_ALIAS: 1})
    await client.ping()
    client = await broker.reconnect(client)
    await client.publish("", b"", properties={p.TOPIC_ALIAS: 1})
    await client.expect_closed(reasons.PROTOCOL_ERROR, reasons.TOPIC_ALIAS_INVALID)


@check(v5="3.1.2-27 3.3.2-11")
async def no_alias_goes_to_a_client_that_takes_none(broker: Broker) -> None:
    topic, client = broker.topic(), await broker.connect()
    await client.subscribe(topic)
    for _ in range(3):
        await client.publish(topic)
        message = await client.receive(topic=topic)
        if p.TOPIC_ALIAS in message.properties:
            raise Failed("no topic alias", repr(message))


@check(v5="3.1.2-26 3.3.2-11 3.3.2-8")
async def no_alias_is_beyond_what_the_client_takes(broker: Broker) -> None:
    topic, client = broker.topic(), await broker.connect(properties={p.TOPIC_ALIAS_MAXIMUM: 2})
    await client.subscribe(f"{topic}/+")
    for name in ("a", "b", "c", "a", "b", "c"):
        await client.publish(f"{topic}/{name}")
        message = await client.receive(topic=f"{topic}/{name}")
        if message.properties.get(p.TOPIC_ALIAS, 1) > 2:
            raise Failed("a topic alias of 2 at most", repr(message))


@check(v5="3.3.2-7")
async def aliases_of_the_broker_begin_anew_with_each_connection(broker: Broker) -> None:
    topic = broker.topic()
    client_id = broker.client_id()
    for _ in range(2):
        client = await broker.resume(client_id, properties={p.TOPIC_ALIAS_MAXIMUM: 5})
        await client.subscribe(topic)
        await client.publish(topic)
        await client.receive(topic=topic)
        await client.close()
