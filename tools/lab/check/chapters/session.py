"""Sessions: what is kept when a connection ends, and for how long (sections 3.1.2.4, 4.1, 4.4 to 4.6)."""

from tools.lab.check.client import elapse
from tools.lab.check.outcome import Failed
from tools.lab.check.subject import Broker
from tools.lab.check.suite import check
from wire import properties as p
from wire.codec.packets import Connack, Puback, Publish

QOS_ABOVE_0 = {"qos_1": 1, "qos_2": 2}
ALL_QOS = {"qos_0": 0, **QOS_ABOVE_0}


def expect_present(connack: Connack, present: bool) -> None:
    if connack.session_present != present:
        raise Failed(f"session present {present}", repr(connack))


@check(v3="3.1.2-4 3.2.2-2 3.1.3-2", v5="3.1.2-5 3.2.2-3 3.1.3-2 3.1.2-23")
async def a_session_goes_on_over_a_new_connection(broker: Broker) -> None:
    topic, first = broker.topic(), await broker.resume(broker.client_id())
    expect_present(first.connack, False)
    await first.subscribe(topic)
    second = await broker.reconnect(first)
    expect_present(second.connack, True)
    await second.publish(topic)
    await second.receive(topic=topic)


@check(v3="3.1.2-4 3.2.2-3 3.1.3-2", v5="3.1.2-6 3.2.2-3 3.1.3-2")
async def a_client_identifier_without_a_session_gets_a_new_one(broker: Broker) -> None:
    other = await broker.resume(broker.client_id())
    client = await broker.resume(f"{other.client_id}a")
    expect_present(client.connack, False)


@check(v3="3.1.2-6 3.2.2-1 3.1.4-3", v5="3.1.2-4 3.2.2-2 3.1.4-4")
async def a_clean_start_discards_the_session(broker: Broker) -> None:
    topic, other = broker.topic(), broker.topic()
    first, client = await broker.resume(broker.client_id()), await broker.connect()
    await first.subscribe(topic, options=1)
    await first.close()
    await client.publish(topic, b"for the first session", qos=1)
    second = await broker.connect(first.client_id)
    expect_present(second.connack, False)
    await second.subscribe(other, options=1)
    await client.publish(topic, b"to the first subscription", qos=1)
    await client.publish(other, b"marker", qos=1)
    await second.receive(payload=b"marker")


@check(v3="3.1.2-6", v5="3.1.2-23 4.1.0-2")
async def a_session_that_is_not_kept_ends_with_its_connection(broker: Broker) -> None:
    topic, first = broker.topic(), await broker.connect()
    await first.subscribe(topic)
    second = await broker.reconnect(first)
    expect_present(second.connack, False)
    await second.publish(topic)
    await second.expect_no_message()


@check(v3="3.1.2-5 4.1.0-1", v5="3.1.2-23 4.5.0-1", cases=QOS_ABOVE_0)
async def messages_for_a_client_that_is_away_are_kept(broker: Broker, qos: int) -> None:
    broker.needs(p.MAXIMUM_QOS, qos)
    topic, watcher, client = await broker.watched(qos, is_kept=True)
    await watcher.close()
    numbers = [bytes((number,)) for number in range(10)]
    await client.publish_all(topic, numbers, qos)
    watcher = await broker.resume(watcher.client_id)
    for number in numbers:
        await watcher.receive(payload=number, qos=qos, dup=False)


@check(v3="3.3.1-1 4.4.0-1 2.3.1-4 4.6.0-1", v5="3.3.1-1 4.4.0-1 4.3.2-3")
async def unacknowledged_messages_are_sent_again_in_order_over_a_new_connection(broker: Broker) -> None:
    topic, watcher, client = await broker.watched(1, is_kept=True)
    await client.publish_all(topic, [bytes((number,)) for number in range(5)], 1)
    messages = [await watcher.expect(Publish) for _ in range(5)]
    await watcher.answer(Puback, messages[1])
    await watcher.ping()
    watcher = await broker.reconnect(watcher)
    for message in (messages[0], *messages[2:]):
        await watcher.receive(payload=message.payload, packet_identifier=message.packet_identifier, dup=True)


@check(v3="3.1.4-2 3.1.2-4 4.4.0-1", v5="3.1.4-3 3.1.2-5 4.4.0-1")
async def a_session_that_is_taken_over_goes_on(broker: Broker) -> None:
    topic = broker.topic()
    first, client = await broker.resume(broker.client_id()), await broker.connect()
    await first.subscribe(topic, options=1)
    await client.publish(topic, b"on the way", qos=1)
    message = await first.expect(Publish)
    second = await broker.resume(first.client_id)
    expect_present(second.connack, True)
    await second.receive(payload=b"on the way", packet_identifier=message.packet_identifier, dup=True)
    await client.publish(topic, b"afterwards", qos=1)
    await second.receive(payload=b"afterwards")


@check(v3="4.6.0-5 4.6.0-6 4.5.0-1", v5="4.6.0-5 4.6.0-6", cases=ALL_QOS)
async def messages_arrive_in_the_order_in_which_they_were_sent(broker: Broker, qos: int) -> None:
    broker.needs(p.MAXIMUM_QOS, qos)
    topic, watcher, client = await broker.watched(qos)
    numbers = [number.to_bytes(2, "big") for number in range(50)]
    await client.publish_all(topic, numbers, qos)
    for number in numbers:
        await watcher.receive(payload=number)


@check(v3="4.6.0-5 4.6.0-6 3.1.2-5", v5="4.6.0-5 4.6.0-6 4.5.0-1", cases=QOS_ABOVE_0)
async def messages_keep_their_order_over_an_absence(broker: Broker, qos: int) -> None:
    broker.needs(p.MAXIMUM_QOS, qos)
    topic, watcher, client = await broker.watched(qos, is_kept=True)
    await watcher.close()
    numbers = [bytes((number,)) for number in range(60)]
    await client.publish_all(topic, numbers[:30], qos)
    watcher = await broker.resume(watcher.client_id)
    await client.publish_all(topic, numbers[30:], qos)
    for number in numbers:
        await watcher.receive(payload=number)


@check(v3="4.6.0-2 4.6.0-6", v5="4.3.2-4")
async def pubacks_come_in_the_order_of_their_messages(broker: Broker) -> None:
    client = await broker.connect()
    identifiers = [7, 3, 9, 1, 20, 2]
    await client.send(*(Publish(broker.topic(), b"", 1, packet_identifier=one) for one in identifiers))
    for packet_identifier in identifiers:
        await client.expect(Puback, packet_identifier=packet_identifier)


@check(v5="4.1.0-2 3.1.2-23")
async def a_session_ends_when_its_expiry_interval_has_passed(broker: Broker) -> None:
    first = await broker.connect(expiry_s=1)
    await first.close()
    await elapse(3)
    second = await broker.resume(first.client_id)
    expect_present(second.connack, False)


@check(v3="4.1.0-1 4.1.0-2", v5="4.1.0-1")
async def a_session_does_not_end_while_it_is_connected(broker: Broker) -> None:
    topic, client = broker.topic(), await broker.connect(expiry_s=1)
    await client.subscribe(topic, options=1)
    await elapse(2.5)
    await client.publish(topic, b"", qos=1)
    await client.receive(topic=topic)


@check(v5="3.1.2-23 4.1.0-2")
async def a_disconnect_may_end_the_session(broker: Broker) -> None:
    first = await broker.resume(broker.client_id())
    await first.disconnect(properties={p.SESSION_EXPIRY_INTERVAL: 0})
    second = await broker.resume(first.client_id)
    expect_present(second.connack, False)


@check(v5="3.1.2-23")
async def a_session_outlives_its_connection_by_the_interval_of_the_disconnect(broker: Broker) -> None:
    first = await broker.connect(broker.client_id(), expiry_s=1)
    await first.disconnect(properties={p.SESSION_EXPIRY_INTERVAL: 60})
    await elapse(2.5)
    second = await broker.resume(first.client_id)
    expect_present(second.connack, True)


@check(v5="4.13.1-1")
async def an_expiry_interval_in_a_disconnect_after_none_in_the_connect_is_an_error(broker: Broker) -> None:
    client = await broker.connect()
    await client.disconnect(properties={p.SESSION_EXPIRY_INTERVAL: 60})
    again = await broker.resume(client.client_id)
    expect_present(again.connack, False)


@check(v5="3.3.2-5")
async def a_message_that_has_expired_is_not_delivered(broker: Broker) -> None:
    topic, watcher, client = await broker.watched(1, is_kept=True)
    await watcher.close()
    await client.publish(topic, b"expires", qos=1, properties={p.MESSAGE_EXPIRY_INTERVAL: 1})
    await client.publish(topic, b"marker", qos=1)
    await elapse(2.5)
    watcher = await broker.resume(watcher.client_id)
    await watcher.receive(payload=b"marker")


@check(v5="3.3.2-6")
async def the_expiry_interval_shrinks_by_the_time_a_message_has_waited(broker: Broker) -> None:
    topic, watcher, client = await broker.watched(1, is_kept=True)
    await watcher.close()
    await client.publish(topic, b"", qos=1, properties={p.MESSAGE_EXPIRY_INTERVAL: 100})
    await elapse(2.5)
    watcher = await broker.resume(watcher.client_id)
    message = await watcher.receive(topic=topic)
    left_s = message.properties.get(p.MESSAGE_EXPIRY_INTERVAL, 0)
    if not 80 <= left_s <= 98:
        raise Failed("a Message Expiry Interval of 97 or 98 s", repr(message))
