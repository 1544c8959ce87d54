"""UNSUBSCRIBE and UNSUBACK (sections 3.10 and 3.11)."""

from tools.lab.check.outcome import Failed
from tools.lab.check.subject import Broker
from tools.lab.check.suite import check
from wire import properties as p
from wire import reasons
from wire.codec import frame
from wire.codec.packets import MQTT_5, Publish, Unsuback, Unsubscribe
from wire.primitives import encode_string


@check(v3="3.10.4-4 2.3.1-7", v5="3.10.4-4 3.10.4-5 2.2.1-6 3.11.3-2")
async def an_unsubscribe_is_answered_with_its_packet_identifier(broker: Broker) -> None:
    topic, client = broker.topic(), await broker.connect()
    for packet_identifier in (1, 65_535):
        await client.subscribe(topic)
        await client.send(Unsubscribe(packet_identifier, [topic]))
        unsuback = await client.expect(Unsuback, packet_identifier=packet_identifier)
        if broker.level == MQTT_5 and unsuback.reason_codes != [reasons.SUCCESS]:
            raise Failed("UNSUBACK with success", repr(unsuback))


@check(v3="3.10.4-5", v5="3.10.4-5 3.11.3-2")
async def an_unsubscribe_from_nothing_is_answered(broker: Broker) -> None:
    client = await broker.connect()
    unsuback = await client.unsubscribe(broker.topic())
    if broker.level == MQTT_5 and unsuback.reason_codes != [reasons.NO_SUBSCRIPTION_EXISTED]:
        raise Failed("0x11", repr(unsuback))


@check(v3="3.10.4-6", v5="3.10.4-6 3.11.3-1")
async def many_filters_are_unsubscribed_by_one_packet(broker: Broker) -> None:
    client = await broker.connect()
    first, never, second, kept = (broker.topic() for _ in range(4))
    await client.subscribe(first, second, kept)
    unsuback = await client.unsubscribe(first, never, second)
    expected = [reasons.SUCCESS, reasons.NO_SUBSCRIPTION_EXISTED, reasons.SUCCESS]
    if broker.level == MQTT_5 and unsuback.reason_codes != expected:
        raise Failed(f"reason codes {expected}", repr(unsuback))
    for topic in (first, second, kept):
        await client.publish(topic)
    await client.receive(topic=kept)


@check(v3="3.10.4-1", v5="3.10.4-1")
async def a_filter_that_only_matches_is_not_unsubscribed(broker: Broker) -> None:
    topic, client = broker.topic(), await broker.connect()
    await client.subscribe(f"{topic}/a", f"{topic}/+")
    await client.unsubscribe(f"{topic}/#", f"{topic}/A", f"{topic}/+/")
    await client.unsubscribe(f"{topic}/+")
    await client.publish(f"{topic}/b")
    await client.publish(f"{topic}/a")
    await client.receive(topic=f"{topic}/a")


@check(v3="3.10.4-1 3.10.4-2", v5="3.10.4-1 3.10.4-2")
async def nothing_is_delivered_after_an_unsubscribe(broker: Broker) -> None:
    topic = broker.topic()
    watcher, client = await broker.connect(), await broker.connect()
    await watcher.subscribe(f"{topic}/a", f"{topic}/b", options=1)
    await watcher.unsubscribe(f"{topic}/a")
    await client.publish(f"{topic}/a", qos=1)
    await client.publish(f"{topic}/b", qos=1)
    await watcher.receive(topic=f"{topic}/b")


@check(v5="3.10.4-1")
async def a_share_is_unsubscribed_by_its_whole_filter_alone(broker: Broker) -> None:
    broker.needs(p.SHARED_SUBSCRIPTION_AVAILABLE)
    topic, client = broker.topic(), await broker.connect()
    await client.subscribe(f"$share/a/{topic}")
    await client.unsubscribe(topic, f"$share/b/{topic}")
    await client.publish(topic, b"shared")
    await client.receive(payload=b"shared")
    await client.unsubscribe(f"$share/a/{topic}")
    await client.publish(topic, b"unwanted")
    await client.expect_no_message()


@check(v3="3.10.4-3", v5="3.10.4-3", cases={"qos_1": 1, "qos_2": 2})
async def a_delivery_that_has_begun_goes_on_after_an_unsubscribe(broker: Broker, qos: int) -> None:
    topic, watcher, client = await broker.watched(qos, is_kept=True)
    await client.publish(topic, b"begun", qos=qos)
    message = await watcher.expect(Publish, qos=qos)
    await watcher.unsubscribe(topic)
    watcher = await broker.reconnect(watcher)
    again = await watcher.expect(Publish, packet_identifier=message.packet_identifier, dup=True)
    await watcher.complete(again)


@check(v3="3.10.1-1 2.2.2-2", v5="3.10.1-1 2.1.3-1")
async def an_unsubscribe_with_other_flags_closes_the_connection(broker: Broker) -> None:
    packet = frame(0xA0, b"\x00\x01" + broker.no_properties + encode_string(broker.topic()))
    await broker.expect_closed(packet, reasons.MALFORMED_PACKET)


@check(v3="3.10.3-2 4.8.0-1", v5="3.10.3-2 4.13.1-1")
async def an_unsubscribe_without_a_filter_closes_the_connection(broker: Broker) -> None:
    packet = frame(0xA2, b"\x00\x01" + broker.no_properties)
    await broker.expect_closed(packet, reasons.PROTOCOL_ERROR, reasons.MALFORMED_PACKET)


@check(v3="2.3.1-1 4.8.0-1", v5="2.2.1-3")
async def an_unsubscribe_with_packet_identifier_0_closes_the_connection(broker: Broker) -> None:
    packet = frame(0xA2, b"\x00\x00" + broker.no_properties + encode_string(broker.topic()))
    await broker.expect_closed(packet, reasons.PROTOCOL_ERROR, reasons.MALFORMED_PACKET)
