"""PUBLISH and PUBACK (sections 3.3, 3.4 and 4.3), but for QoS 2, retained messages and topic aliases."""

from tools.lab.check.outcome import Failed, Skipped
from tools.lab.check.subject import Broker
from tools.lab.check.suite import check
from wire import properties as p
from wire import reasons
from wire.codec import frame
from wire.codec.packets import MQTT_3_1_1, MQTT_5, Puback, Publish, Pubrec, Subscribe, encode
from wire.primitives import encode_string

# Payloads whose packets have a remaining length of one to three bytes, and those at the steps between.
SIZES = {f"{size}_bytes": size for size in (0, 1, 90, 120, 128, 16_300, 16_384, 70_000)}
# name: the property and a value of it, which a subscriber has to get as it was sent
CARRIED = {
    "payload_format_indicator": {p.PAYLOAD_FORMAT_INDICATOR: 1},
    "content_type": {p.CONTENT_TYPE: "text/plain; é"},
    "response_topic": {p.RESPONSE_TOPIC: "hfcheck/answers/é"},
    "correlation_data": {p.CORRELATION_DATA: bytes(range(256))},
    "user_properties": {p.USER_PROPERTY: [("b", "1"), ("a", "2"), ("b", "0"), ("", ""), ("b", "1")]},
}
TOPIC_WITH_WILDCARD = {"plus": "+", "hash": "#", "plus_within": "hfcheck/+/a", "hash_behind": "hfcheck/a#"}


def raw_publish(broker: Broker, topic: bytes, properties: bytes = b"", first_byte: int = 0x30) -> bytes:
    """A PUBLISH of QoS 0 with any bytes as topic name and properties."""
    length = bytes((len(properties),)) if broker.level == MQTT_5 else b""
    return frame(first_byte, len(topic).to_bytes(2, "big") + topic + length + properties)


@check(v3="3.3.1-4 4.8.0-1", v5="3.3.1-4 4.13.1-1")
async def qos_3_closes_the_connection(broker: Broker) -> None:
    packet = frame(0x36, encode_string(broker.topic()) + b"\x00\x01" + broker.no_properties)
    await broker.expect_closed(packet, reasons.MALFORMED_PACKET)


@check(v3="3.3.1-2", v5="3.3.1-2 4.3.1-1")
async def dup_at_qos_0_is_not_passed_on(broker: Broker) -> None:
    topic, watcher, client = await broker.watched()
    await client.send(raw_publish(broker, topic.encode(), first_byte=0x38))
    await watcher.publish(topic, b"marker")
    message = await watcher.expect(Publish)
    if message.dup:
        raise Failed("QoS 0 without DUP", repr(message))


@check(v3="3.3.1-3 4.3.2-1", v5="3.3.1-3 4.3.2-2")
async def dup_is_not_passed_on(broker: Broker) -> None:
    topic, watcher, client = await broker.watched(1)
    await client.send(Publish(topic, b"", 1, dup=True, packet_identifier=7))
    await client.expect(Puback, packet_identifier=7)
    await watcher.receive(qos=1, dup=False)


@check(v3="3.3.2-2 4.7.1-1 4.8.0-1", v5="3.3.2-2 4.7.0-1 4.13.1-1", cases=TOPIC_WITH_WILDCARD)
async def a_topic_name_with_a_wildcard_closes_the_connection(broker: Broker, topic: str) -> None:
    packet = raw_publish(broker, topic.encode())
    await broker.expect_closed(packet, reasons.MALFORMED_PACKET, reasons.PROTOCOL_ERROR, reasons.TOPIC_NAME_INVALID)


@check(v3="4.7.3-1 3.3.2-1 4.8.0-1", v5="4.7.3-1 3.3.2-1 4.13.1-1")
async def an_empty_topic_name_closes_the_connection(broker: Broker) -> None:
    packet = raw_publish(broker, b"")
    await broker.expect_closed(packet, reasons.PROTOCOL_ERROR, reasons.MALFORMED_PACKET, reasons.TOPIC_NAME_INVALID)


@check(v3="2.3.1-1 4.8.0-1", v5="2.2.1-3", cases={"qos_1": 0x32, "qos_2": 0x34})
async def packet_identifier_0_closes_the_connection(broker: Broker, first_byte: int) -> None:
    packet = frame(first_byte, encode_string(broker.topic()) + b"\x00\x00" + broker.no_properties)
    await broker.expect_closed(packet, reasons.PROTOCOL_ERROR, reasons.MALFORMED_PACKET)


@check(v3="3.3.2-3 2.3.1-5 4.3.1-1 4.5.0-1", v5="3.3.2-3 2.2.1-2 4.3.1-1 4.5.0-1")
async def qos_0_arrives_as_it_was_sent(broker: Broker) -> None:
    topic, payload = broker.topic(), bytes(range(256))
    watcher, client = await broker.connect(), await broker.connect()
    await watcher.subscribe(f"{topic}/+")
    await client.publish(f"{topic}/é", payload)
    await watcher.receive(topic=f"{topic}/é", payload=payload, qos=0, packet_identifier=None, retain=False)


@check(v3="3.3.4-1 4.3.2-2 2.3.1-6", v5="3.3.4-1 4.3.2-4 2.2.1-5 3.4.2-1")
async def qos_1_is_answered_with_its_packet_identifier(broker: Broker) -> None:
    client = await broker.connect()
    for packet_identifier in (1, 65_535, 300):
        await client.send(Publish(broker.topic(), b"", 1, packet_identifier=packet_identifier))
        puback = await client.expect(Puback, packet_identifier=packet_identifier)
        if puback.reason_code >= reasons.UNSPECIFIED_ERROR:
            raise Failed("a PUBACK that takes the message", repr(puback))


@check(v3="3.3.4-1", v5="3.3.4-1")
async def qos_0_is_not_answered(broker: Broker) -> None:
    client = await broker.connect()
    await client.send(Publish(broker.topic(), b""))
    await client.ping()
    if len(client.received) != 2:
        raise Failed("nothing but CONNACK and PINGRESP", repr(client.received))


@check(v3="4.3.2-2", v5="4.3.2-5")
async def a_packet_identifier_that_comes_again_after_its_puback_is_a_new_message(broker: Broker) -> None:
    topic, watcher, client = await broker.watched(1)
    for dup in (False, True):
        await client.send(Publish(topic, b"", 1, dup=dup, packet_identifier=9))
        await client.expect(Puback, packet_identifier=9)
    await watcher.receive()
    await watcher.receive()


@check(v3="2.3.1-4 4.3.2-1", v5="2.2.1-4 4.3.2-1 4.3.2-2")
async def messages_on_the_way_have_different_packet_identifiers(broker: Broker) -> None:
    topic, watcher, client = await broker.watched(1)
    for _ in range(5):
        await client.publish(topic, qos=1)
    messages = [await watcher.expect(Publish, qos=1, dup=False) for _ in range(5)]
    if len({message.packet_identifier for message in messages}) != 5:
        raise Failed("five different packet identifiers", repr(messages))


@check(v3="4.3.2-2", v5="4.3.2-4")
async def both_sides_may_use_the_same_packet_identifier(broker: Broker) -> None:
    topic, watcher, client = await broker.watched(1)
    await client.publish(topic, b"", qos=1)
    message = await watcher.expect(Publish)
    await watcher.send(Publish(broker.topic(), b"", 1, packet_identifier=message.packet_identifier))
    await watcher.expect(Puback, packet_identifier=message.packet_identifier)
    await watcher.answer(Puback, message)
    await watcher.ping()


@check(v3="2.3.1-4 4.3.3-1", v5="2.2.1-4 4.3.3-1")
async def messages_of_qos_1_and_2_on_the_way_have_different_packet_identifiers(broker: Broker) -> None:
    topic, watcher, client = await broker.watched(2)
    for qos in (1, 2, 1, 2):
        await client.publish(topic, qos=qos)
    messages = [await watcher.expect(Publish) for _ in range(4)]
    if len({message.packet_identifier for message in messages}) != 4:
        raise Failed("four different packet identifiers", repr(messages))


@check(v3="4.5.0-1", v5="4.5.0-1", cases=SIZES)
async def a_payload_of_any_size_arrives(broker: Broker, size: int) -> None:
    topic, payload = broker.topic(), b"x" * size
    client = await broker.connect()
    if size > client.connack.properties.get(p.MAXIMUM_PACKET_SIZE, size + 100) - 100:
        raise Skipped("the broker takes no packets of this size")
    await client.subscribe(topic)
    await client.publish(topic, payload)
    message = await client.receive(topic=topic)
    if message.payload != payload:
        raise Failed(f"{size} bytes x", f"{len(message.payload)} bytes {message.payload[:9]!r}…")


@check(v3="7.1.1-1 4.5.0-1", v5="4.2.0-1 4.5.0-1")
async def packets_that_come_byte_by_byte_are_taken(broker: Broker) -> None:
    topic, client = broker.topic(), await broker.open()
    packets = (broker.connect_packet(), Subscribe(1, [(topic, 0)]), Publish(topic, b"in pieces"))
    for byte in b"".join(encode(packet, broker.level) for packet in packets):
        await client.send(bytes((byte,)))
    await client.receive(topic=topic, payload=b"in pieces")


@check(v5="3.3.2-4 3.3.2-15 3.3.2-16 3.3.2-17 3.3.2-18 3.3.2-20", cases=CARRIED)
async def properties_arrive_as_they_were_sent(broker: Broker, properties: dict[int, object]) -> None:
    topic, client = broker.topic(), await broker.connect()
    await client.subscribe(topic)
    await client.publish(topic, b"", properties=properties)
    message = await client.receive(topic=topic)
    ((identifier, value),) = properties.items()
    came = message.properties.get(identifier)
    if identifier == p.USER_PROPERTY:  # a server may add its own, behind the received ones
        came = (came or [])[: len(properties[identifier])]  # type: ignore[arg-type]
    if came != value:
        raise Failed(f"property 0x{identifier:02x} with {value!r}", repr(message))


@check(v3="3.3.5-2", v5="3.3.4-1", cases={"qos_1": 1, "qos_2": 2})
async def a_message_that_is_not_allowed_is_answered_or_ends_the_connection(broker: Broker, qos: int) -> None:
    client = await broker.connect()
    await client.send(Publish("$SYS/hfcheck", b"", qos, packet_identifier=1))
    answer = await client.expect_or_close(Puback if qos == 1 else Pubrec)
    if answer is not None and answer.packet_identifier != 1:
        raise Failed("an answer with packet identifier 1", repr(answer))


@check(v5="3.3.2-14 4.13.1-1")
async def a_response_topic_with_a_wildcard_closes_the_connection(broker: Broker) -> None:
    packet = raw_publish(broker, broker.topic().encode(), b"\x08" + encode_string("a/+"))
    await broker.expect_closed(packet, reasons.PROTOCOL_ERROR, reasons.MALFORMED_PACKET, reasons.TOPIC_NAME_INVALID)


@check(v5="3.3.4-6 4.13.1-1")
async def a_subscription_identifier_from_a_client_closes_the_connection(broker: Broker) -> None:
    packet = raw_publish(broker, broker.topic().encode(), b"\x0b\x01")
    await broker.expect_closed(packet, reasons.PROTOCOL_ERROR, reasons.MALFORMED_PACKET)


@check(v3="4.5.0-1", v5="4.5.0-1")
async def the_other_version_of_mqtt_is_reached(broker: Broker) -> None:
    topic, client = broker.topic(), await broker.connect()
    other = Broker(broker.address, MQTT_3_1_1 if broker.level == MQTT_5 else MQTT_5)
    try:
        watcher = await other.connect()
        await watcher.subscribe(topic, options=1)
        await client.publish(topic, b"across", qos=1)
        await watcher.receive(topic=topic, payload=b"across", qos=1)
    finally:
        await other.clean_up()


@check(v5="4.13.1-1", cases={"payload_format_2": b"\x01\x02", "expiry_twice": b"\x02\x00\x00\x00\x09" * 2})
async def bad_properties_of_a_publish_close_the_connection(broker: Broker, properties: bytes) -> None:
    packet = raw_publish(broker, broker.topic().encode(), properties)
    await broker.expect_closed(packet, reasons.PROTOCOL_ERROR, reasons.MALFORMED_PACKET, reasons.PAYLOAD_FORMAT_INVALID)
