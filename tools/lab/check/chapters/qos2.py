"""QoS 2: PUBLISH, PUBREC, PUBREL, PUBCOMP (sections 3.5 to 3.7 and 4.3.3), both ways."""

from tools.lab.check.client import Client, elapse
from tools.lab.check.outcome import Failed, Skipped
from tools.lab.check.subject import Broker
from tools.lab.check.suite import check
from wire import reasons
from wire.codec.packets import Puback, Pubcomp, Publish, Pubrec, Pubrel
from wire.properties import MESSAGE_EXPIRY_INTERVAL


async def expect_only_marker(client: Client, publisher: Client, topic: str) -> None:
    """Nothing has come to a client before a message that is published now."""
    await publisher.publish(topic, b"marker", qos=2)
    await client.receive(payload=b"marker")


@check(v3="4.3.3-2 2.3.1-6 3.3.4-1", v5="4.3.3-8 4.3.3-11 2.2.1-5 3.3.4-1 3.5.2-1 3.7.2-1")
async def qos_2_is_answered_in_its_two_steps(broker: Broker) -> None:
    client = await broker.connect()
    for packet_identifier in (1, 65_535):
        await client.exchange(Publish(broker.topic(), b"", 2, packet_identifier=packet_identifier))


@check(v3="4.3.3-2", v5="4.3.3-10")
async def a_message_that_comes_again_before_its_pubrel_is_delivered_once(broker: Broker) -> None:
    topic, watcher, client = await broker.watched(2, is_kept=True)
    await client.send(Publish(topic, b"once", 2, packet_identifier=5))
    await client.expect(Pubrec, packet_identifier=5)
    await client.exchange(Publish(topic, b"once", 2, dup=True, packet_identifier=5))
    await watcher.receive(payload=b"once", qos=2)
    await expect_only_marker(watcher, client, topic)


@check(v3="4.3.3-2 4.4.0-1 3.1.2-4", v5="4.3.3-10 4.1.0-1 3.1.2-5")
async def a_message_that_comes_again_over_a_new_connection_is_delivered_once(broker: Broker) -> None:
    topic, watcher, _ = await broker.watched(2, is_kept=True)
    client = await broker.resume(broker.client_id())
    await client.send(Publish(topic, b"once", 2, packet_identifier=5))
    await client.expect(Pubrec, packet_identifier=5)
    client = await broker.reconnect(client)
    await client.exchange(Publish(topic, b"once", 2, dup=True, packet_identifier=5))
    await watcher.receive(payload=b"once", qos=2)
    await expect_only_marker(watcher, client, topic)


@check(v3="4.3.3-2", v5="4.3.3-12")
async def a_packet_identifier_that_comes_again_after_its_pubcomp_is_a_new_message(broker: Broker) -> None:
    topic, watcher, client = await broker.watched(2, is_kept=True)
    for payload in (b"first", b"second"):
        await client.exchange(Publish(topic, payload, 2, packet_identifier=5))
        await watcher.receive(payload=payload)


@check(v3="4.3.3-2", v5="4.3.3-11 3.7.2-1")
async def a_pubrel_of_an_unknown_packet_identifier_is_answered(broker: Broker) -> None:
    client = await broker.connect()
    await client.send(Pubrel(77))
    pubcomp = await client.expect(Pubcomp, packet_identifier=77)
    known = (reasons.SUCCESS, reasons.PACKET_IDENTIFIER_NOT_FOUND)
    if pubcomp.reason_code not in known:
        raise Failed("0x92 or success", repr(pubcomp))


@check(v3="4.3.3-1 2.3.1-4 3.6.1-1", v5="4.3.3-1 4.3.3-2 4.3.3-4 2.2.1-4 3.6.1-1 3.6.2-1")
async def qos_2_is_delivered_in_its_two_steps(broker: Broker) -> None:
    topic, watcher, client = await broker.watched(2, is_kept=True)
    await client.publish(topic, b"first", qos=2)
    await client.publish(topic, b"second", qos=2)
    first = await watcher.expect(Publish, qos=2, dup=False, payload=b"first")
    second = await watcher.expect(Publish, qos=2, dup=False, payload=b"second")
    if first.packet_identifier == second.packet_identifier:
        raise Failed("two different packet identifiers", repr((first, second)))
    for message in (first, second):
        await watcher.complete(message)
    await watcher.ping()


@check(v3="4.3.3-1", v5="4.3.3-4 3.6.2-1")
async def a_pubrec_that_comes_again_is_answered_again(broker: Broker) -> None:
    topic, watcher, client = await broker.watched(2, is_kept=True)
    await client.publish(topic, b"", qos=2)
    message = await watcher.expect(Publish, qos=2)
    for _ in range(2):
        await watcher.answer(Pubrec, message)
        await watcher.expect(Pubrel, packet_identifier=message.packet_identifier)
    await watcher.answer(Pubcomp, message)
    await watcher.expect_no_message()


@check(v3="4.3.3-1 4.4.0-1 3.3.1-1 2.3.1-4", v5="4.3.3-3 4.4.0-1 3.3.1-1")
async def a_publish_without_pubrec_is_sent_again_over_a_new_connection(broker: Broker) -> None:
    topic, watcher, client = await broker.watched(2, is_kept=True)
    await client.publish(topic, b"", qos=2)
    message = await watcher.expect(Publish, qos=2)
    watcher = await broker.reconnect(watcher)
    await watcher.receive(qos=2, dup=True, packet_identifier=message.packet_identifier)


@check(v3="4.3.3-1 4.4.0-1", v5="4.3.3-5 4.3.3-6 4.4.0-1")
async def a_pubrel_without_pubcomp_is_sent_again_over_a_new_connection_and_its_publish_is_not(broker: Broker) -> None:
    topic, watcher, client = await broker.watched(2, is_kept=True)
    await client.publish(topic, b"", qos=2)
    message = await watcher.expect(Publish, qos=2)
    await watcher.answer(Pubrec, message)
    await watcher.expect(Pubrel, packet_identifier=message.packet_identifier)
    watcher = await broker.reconnect(watcher)
    await watcher.expect(Pubrel, packet_identifier=message.packet_identifier)
    await watcher.answer(Pubcomp, message)
    await expect_only_marker(watcher, client, topic)


@check(v3="4.4.0-1 4.3.3-1 4.6.0-1", v5="4.4.0-1 4.3.3-3 4.3.3-5 4.3.3-6")
async def each_delivery_goes_on_where_it_stopped_over_a_new_connection(broker: Broker) -> None:
    topic, watcher, client = await broker.watched(2, is_kept=True)
    for payload in (b"first", b"second", b"third"):
        await client.publish(topic, payload, qos=2)
    first, second, third = [await watcher.expect(Publish, qos=2) for _ in range(3)]
    await watcher.answer(Pubrec, second)
    await watcher.expect(Pubrel, packet_identifier=second.packet_identifier)
    watcher = await broker.reconnect(watcher)
    for message in (first, third):
        await watcher.expect(Publish, packet_identifier=message.packet_identifier, payload=message.payload, dup=True)
    await watcher.expect(Pubrel, packet_identifier=second.packet_identifier)
    await watcher.answer(Pubcomp, second)
    for message in (first, third):
        await watcher.complete(message)
    await watcher.expect_no_message()


@check(v3="4.4.0-1", v5="4.4.0-1")
async def what_is_acknowledged_is_not_sent_again_over_a_new_connection(broker: Broker) -> None:
    topic, watcher, client = await broker.watched(2, is_kept=True)
    await client.publish(topic, b"done", qos=2)
    await watcher.receive(payload=b"done")
    await watcher.ping()
    watcher = await broker.reconnect(watcher)
    await expect_only_marker(watcher, client, topic)


@check(v3="4.6.0-3 4.6.0-6", v5="4.3.3-8 4.3.3-11")
async def pubrecs_and_pubcomps_come_in_the_order_of_what_they_answer(broker: Broker) -> None:
    client = await broker.connect()
    identifiers = [7, 3, 9, 1]
    await client.send(*(Publish(broker.topic(), b"", 2, packet_identifier=one) for one in identifiers))
    for packet_identifier in identifiers:
        await client.expect(Pubrec, packet_identifier=packet_identifier)
    await client.send(*map(Pubrel, reversed(identifiers)))
    for packet_identifier in reversed(identifiers):
        await client.expect(Pubcomp, packet_identifier=packet_identifier)


@check(v3="4.6.0-4 4.6.0-6", v5="4.3.3-4")
async def pubrels_come_in_the_order_of_the_pubrecs(broker: Broker) -> None:
    topic, watcher, client = await broker.watched(2, is_kept=True)
    for _ in range(4):
        await client.publish(topic, b"", qos=2)
    messages = [await watcher.expect(Publish, qos=2) for _ in range(4)]
    for message in reversed(messages):
        await watcher.answer(Pubrec, message)
    for message in reversed(messages):
        await watcher.expect(Pubrel, packet_identifier=message.packet_identifier)


@check(v5="4.4.0-1")
async def nothing_is_sent_again_over_the_same_connection(broker: Broker) -> None:
    topic, watcher, client = await broker.watched(2, is_kept=True)
    await client.publish(topic, b"", qos=2)
    await watcher.expect(Publish, qos=2)
    await watcher.ping()
    await watcher.expect_no_message()


@check(v5="4.3.3-4 4.4.0-2 3.5.2-1")
async def a_pubrec_that_refuses_ends_the_delivery(broker: Broker) -> None:
    topic, watcher, client = await broker.watched(2, is_kept=True)
    await client.publish(topic, b"refused", qos=2)
    message = await watcher.expect(Publish, qos=2)
    await watcher.answer(Pubrec, message, reasons.IMPLEMENTATION_SPECIFIC_ERROR)
    await watcher.expect_no(Pubrel)
    watcher = await broker.reconnect(watcher)
    await watcher.expect_no(Pubrel)
    await expect_only_marker(watcher, client, topic)


@check(v5="4.3.3-9")
async def a_packet_identifier_that_was_refused_stands_for_a_new_message(broker: Broker) -> None:
    topic, watcher, client = await broker.watched(2, is_kept=True)
    await client.send(Publish("$SYS/hfcheck", b"", 2, packet_identifier=5))
    refusal = await client.expect_or_close(Pubrec)
    if refusal is None or refusal.reason_code < reasons.UNSPECIFIED_ERROR:
        raise Skipped("the broker refuses no message, or ends the connection instead")
    await client.exchange(Publish(topic, b"new", 2, packet_identifier=5))
    await watcher.receive(payload=b"new")


@check(v5="4.4.0-2")
async def a_puback_that_refuses_ends_the_delivery(broker: Broker) -> None:
    topic, watcher, client = await broker.watched(1, is_kept=True)
    await client.publish(topic, b"refused", qos=1)
    message = await watcher.expect(Publish, qos=1)
    await watcher.answer(Puback, message, reasons.IMPLEMENTATION_SPECIFIC_ERROR)
    await watcher.ping()
    watcher = await broker.reconnect(watcher)
    await client.publish(topic, b"marker", qos=1)
    await watcher.receive(payload=b"marker")


@check(v3="3.6.1-1 2.2.2-2", v5="3.6.1-1 2.1.3-1")
async def a_pubrel_with_other_flags_closes_the_connection(broker: Broker) -> None:
    client = await broker.connect()
    await client.send(Publish(broker.topic(), b"", 2, packet_identifier=1))
    await client.expect(Pubrec)
    await client.send(b"\x60\x02\x00\x01")
    await client.expect_closed(reasons.MALFORMED_PACKET)


@check(v5="4.3.3-13")
async def the_exchange_goes_on_when_its_message_has_expired(broker: Broker) -> None:
    client = await broker.connect()
    expires_at_once = Publish(broker.topic(), b"", 2, packet_identifier=1, properties={MESSAGE_EXPIRY_INTERVAL: 1})
    await client.send(expires_at_once)
    await client.expect(Pubrec, packet_identifier=1)
    await elapse(1.5)
    await client.send(Pubrel(1))
    await client.expect(Pubcomp, packet_identifier=1, reason_code=0)


@check(v5="4.3.3-7")
async def a_message_that_was_sent_no_longer_expires(broker: Broker) -> None:
    topic, watcher, client = await broker.watched(2, is_kept=True)
    await client.publish(topic, b"sent", qos=2, properties={MESSAGE_EXPIRY_INTERVAL: 1})
    message = await watcher.expect(Publish, qos=2)
    await watcher.close()
    await elapse(2)
    watcher = await broker.resume(watcher.client_id)
    await client.publish(topic, b"marker", qos=2)
    await watcher.receive(payload=b"sent", packet_identifier=message.packet_identifier)
