"""Retained messages (section 3.3.1.3), and the subscription options that concern them (section 3.8.3.1)."""

from tools.lab.check.client import Client, elapse
from tools.lab.check.outcome import Failed
from tools.lab.check.subject import Broker
from tools.lab.check.suite import check
from wire import properties as p
from wire.codec.packets import RETAIN_AS_PUBLISHED, RETAIN_IF_NEW, RETAIN_NEVER

QOS = {f"published_{sent}_subscribed_{granted}": (sent, granted) for sent in range(3) for granted in range(3)}
ALL_QOS = {"qos_0": 0, "qos_1": 1, "qos_2": 2}


async def retain(broker: Broker, payload: bytes = b"retained", qos: int = 1, **fields: object) -> tuple[Client, str]:
    """A client, and a new topic on which it has retained a message."""
    broker.needs(p.RETAIN_AVAILABLE)
    broker.needs(p.MAXIMUM_QOS, qos)
    topic, client = broker.retained_topic(), await broker.connect()
    await client.publish(topic, payload, qos=qos, retain=True, **fields)
    await client.ping()
    return client, topic


async def subscribed(broker: Broker, topic_filter: str, options: int = 1) -> Client:
    client = await broker.connect()
    await client.subscribe(topic_filter, options=options)
    return client


@check(v3="3.3.1-5 3.3.1-6 3.3.1-8", v5="3.3.1-5 3.3.1-9", cases=ALL_QOS)
async def a_retained_message_comes_with_a_subscription(broker: Broker, qos: int) -> None:
    _, topic = await retain(broker, qos=qos)
    later = await subscribed(broker, topic, options=2)
    await later.receive(topic=topic, payload=b"retained", qos=qos, retain=True, dup=False)


@check(v3="3.8.4-6", v5="3.8.4-8", cases=QOS)
async def a_retained_message_comes_at_the_lower_qos(broker: Broker, case: tuple[int, int]) -> None:
    published, granted = case
    _, topic = await retain(broker, qos=published)
    later = await subscribed(broker, topic, options=granted)
    await later.receive(qos=min(case), retain=True)


@check(v3="3.3.1-5 3.3.1-6 3.3.1-7", v5="3.3.1-5", cases=ALL_QOS)
async def a_retained_message_replaces_the_one_before(broker: Broker, qos: int) -> None:
    client, topic = await retain(broker, b"first", qos=1)
    await client.publish(topic, b"second", qos=qos, retain=True)
    await client.ping()
    later = await subscribed(broker, topic)
    await later.receive(payload=b"second", retain=True)
    await later.expect_no_message()


@check(v3="3.3.1-6", v5="3.3.1-9")
async def a_wildcard_brings_every_retained_message_that_it_takes(broker: Broker) -> None:
    broker.needs(p.RETAIN_AVAILABLE)
    client = await broker.connect()
    topics = [broker.retained_topic() for _ in range(5)]
    for topic in topics:
        await client.publish(topic, topic.encode(), qos=1, retain=True)
    later = await broker.connect()
    await later.subscribe("hfcheck/+", options=1)  # it may bring those of other checks too
    missing = set(topics)
    while missing:
        message = await later.receive()
        if message.topic in missing and not (message.retain and message.payload == message.topic.encode()):
            raise Failed("a retained message with its topic as payload", repr(message))
        missing.discard(message.topic)


@check(v3="3.3.1-10 3.3.1-11", v5="3.3.1-6 3.3.1-7", cases=ALL_QOS)
async def an_empty_payload_removes_the_retained_message(broker: Broker, qos: int) -> None:
    client, topic = await retain(broker)
    watcher = await subscribed(broker, topic)
    await watcher.receive(payload=b"retained", retain=True)
    await client.publish(topic, b"", qos=qos, retain=True)
    await watcher.receive(payload=b"", retain=False)
    later = await subscribed(broker, topic)
    await later.expect_no_message()


@check(v3="3.3.1-12", v5="3.3.1-8", cases={"with_payload": b"not retained", "empty": b""})
async def a_message_without_retain_leaves_the_retained_one(broker: Broker, payload: bytes) -> None:
    client, topic = await retain(broker)
    await client.publish(topic, payload, qos=1)
    later = await subscribed(broker, topic)
    await later.receive(payload=b"retained", retain=True)


@check(v3="3.3.1-12", v5="3.3.1-8")
async def a_message_without_retain_is_not_retained(broker: Broker) -> None:
    topic, client = broker.retained_topic(), await broker.connect()
    await client.publish(topic, b"not retained", qos=1)
    later = await subscribed(broker, topic)
    await later.expect_no_message()


@check(v3="3.3.1-9", v5="3.3.1-12")
async def a_subscription_that_stands_gets_retained_messages_without_the_flag(broker: Broker) -> None:
    broker.needs(p.RETAIN_AVAILABLE)
    topic = broker.retained_topic()
    watcher = await subscribed(broker, topic)
    client = await broker.connect()
    await client.publish(topic, b"retained", qos=1, retain=True)
    await watcher.receive(payload=b"retained", retain=False)


@check(v5="3.3.1-13", cases={"retained": True, "not_retained": False})
async def retain_as_published_keeps_the_flag(broker: Broker, flag: bool) -> None:
    broker.needs(p.RETAIN_AVAILABLE)
    topic = broker.retained_topic()
    watcher = await subscribed(broker, topic, options=RETAIN_AS_PUBLISHED | 1)
    client = await broker.connect()
    await client.publish(topic, b"x", qos=1, retain=flag)
    await watcher.receive(payload=b"x", retain=flag)


@check(v3="3.1.2-7", v5="3.3.1-5")
async def a_retained_message_outlives_the_session_of_its_sender(broker: Broker) -> None:
    client, topic = await retain(broker)
    await client.disconnect()
    later = await subscribed(broker, topic)
    await later.receive(payload=b"retained", retain=True)


@check(v3="3.8.4-3", v5="3.8.4-4 3.3.1-9")
async def a_filter_that_comes_again_brings_the_retained_message_again(broker: Broker) -> None:
    _, topic = await retain(broker)
    later = await subscribed(broker, topic)
    await later.receive(payload=b"retained", retain=True)
    await later.subscribe(topic, options=1)
    await later.receive(payload=b"retained", retain=True)


@check(v5="3.3.1-10")
async def retain_handling_1_brings_retained_messages_to_new_subscriptions_alone(broker: Broker) -> None:
    _, topic = await retain(broker)
    later = await subscribed(broker, topic, options=RETAIN_IF_NEW | 1)
    await later.receive(payload=b"retained", retain=True)
    await later.subscribe(topic, options=RETAIN_IF_NEW | 1)
    await later.expect_no_message()


@check(v5="3.3.1-10")
async def retain_handling_1_sees_a_subscription_of_an_earlier_connection(broker: Broker) -> None:
    _, topic = await retain(broker)
    later = await broker.resume(broker.client_id())
    await later.subscribe(topic, options=RETAIN_IF_NEW | 1)
    await later.receive(retain=True)
    await later.ping()
    later = await broker.reconnect(later)
    await later.subscribe(topic, options=RETAIN_IF_NEW | 1)
    await later.expect_no_message()


@check(v5="3.3.1-11")
async def retain_handling_2_brings_no_retained_message(broker: Broker) -> None:
    _, topic = await retain(broker)
    later = await subscribed(broker, topic, options=RETAIN_NEVER | 1)
    await later.expect_no_message()


@check(v5="3.3.2-5")
async def a_retained_message_that_has_expired_is_not_delivered(broker: Broker) -> None:
    _, topic = await retain(broker, properties={p.MESSAGE_EXPIRY_INTERVAL: 1})
    await elapse(2.5)
    later = await subscribed(broker, topic)
    await later.expect_no_message()


@check(v5="3.3.2-6")
async def the_expiry_interval_of_a_retained_message_shrinks(broker: Broker) -> None:
    _, topic = await retain(broker, properties={p.MESSAGE_EXPIRY_INTERVAL: 100})
    await elapse(2.5)
    later = await subscribed(broker, topic)
    message = await later.receive(retain=True)
    if not 80 <= message.properties.get(p.MESSAGE_EXPIRY_INTERVAL, 0) <= 98:
        raise Failed("a Message Expiry Interval of 97 or 98 s", repr(message))


@check(v5="3.3.2-4 3.3.2-15 3.3.2-16 3.3.2-17 3.3.2-18 3.3.2-20")
async def a_retained_message_keeps_its_properties(broker: Broker) -> None:
    answers = broker.topic()
    sent = {p.CONTENT_TYPE: "a", p.RESPONSE_TOPIC: answers, p.CORRELATION_DATA: b"c", p.PAYLOAD_FORMAT_INDICATOR: 1}
    users = [("b", "1"), ("a", "2"), ("b", "1")]
    _, topic = await retain(broker, properties={**sent, p.USER_PROPERTY: users})
    later = await subscribed(broker, topic)
    message = await later.receive(retain=True)
    came = {identifier: message.properties.get(identifier) for identifier in sent}
    if came != sent or message.properties.get(p.USER_PROPERTY, [])[:3] != users:
        raise Failed(f"{sent} and user properties {users}", repr(message))


@check(v5="3.3.4-3 3.3.1-9")
async def a_retained_message_names_its_subscription(broker: Broker) -> None:
    broker.needs(p.SUBSCRIPTION_IDENTIFIERS_AVAILABLE)
    _, topic = await retain(broker)
    later = await broker.connect()
    await later.subscribe(topic, options=1, properties={p.SUBSCRIPTION_IDENTIFIER: [7]})
    message = await later.receive(retain=True)
    if message.properties.get(p.SUBSCRIPTION_IDENTIFIER) != [7]:
        raise Failed("subscription identifier 7", repr(message))
