"""SUBSCRIBE and SUBACK (sections 3.8 and 3.9), but for retained messages and shared subscriptions."""

from tools.lab.check.client import NO_REASON, Client
from tools.lab.check.outcome import Failed
from tools.lab.check.subject import Broker
from tools.lab.check.suite import check
from wire import properties as p
from wire import reasons
from wire.codec import frame
from wire.codec.packets import MQTT_5, NO_LOCAL, Publish, Suback, Subscribe


def raw_subscribe(
    broker: Broker, topic_filter: bytes, options: int = 0, *, first_byte: int = 0x82, properties: bytes = b""
) -> bytes:
    """A SUBSCRIBE with any bytes as filter and options."""
    length = bytes((len(properties),)) if broker.level == MQTT_5 else b""
    body = b"\x00\x01" + length + properties + len(topic_filter).to_bytes(2, "big") + topic_filter + bytes((options,))
    return frame(first_byte, body)


async def expect_not_granted(client: Client, *reason_codes: int) -> None:
    """The SUBACK refuses, with one of these reasons in MQTT 5; or the connection closes, which MQTT allows after any
    error."""
    packet = await client.expect_or_close(Suback)
    if packet is None:
        return
    code = packet.reason_codes[0]
    refused = code in (*reason_codes, *NO_REASON) if client.level == MQTT_5 else code >= 0x80
    if not refused:
        raise Failed("a refusal", repr(packet))


RESERVED_OPTIONS = {"bit_6": 0x40, "bit_7": 0x80}
OPTIONS_OF_5 = {"no_local": 0x04, "retain_as_published": 0x08, "retain_handling": 0x10}
QOS = {f"published_{sent}_subscribed_{granted}": (sent, granted) for sent in range(3) for granted in range(3)}
BAD_FILTERS = {
    "hash_not_last": "{}/#/a",
    "hash_not_alone": "{}/a#",
    "plus_before_a_name": "{}/+a",
    "plus_behind_a_name": "{}/a+",
}
# filter behind the check's own topic: names that it takes, names that it does not take
MATCHES = {
    "hash": ("/#", ("", "/", "/a", "/a/b", "//"), ()),
    "plus": ("/+", ("/a", "/"), ("", "/a/b", "//")),
    "plus_within": ("/+/b", ("/a/b", "//b"), ("/b", "/a/b/c", "/a/c")),
    "two_plus": ("/+/+", ("/a/b", "//"), ("/a", "/a/b/c")),
    "plus_then_hash": ("/+/#", ("/a", "/a/b", "/a/b/c"), ("",)),
    "name": ("/a", ("/a",), ("/A", "/a/", "//a", "", "/ a")),
    "empty_levels": ("//a/", ("//a/",), ("/a/", "//a", "///a/")),
    "dollar_within": ("/$a", ("/$a",), ("/a",)),
}


@check(v3="3.8.4-1 3.8.4-2 2.3.1-7 3.8.4-5", v5="3.8.4-1 3.8.4-2 2.2.1-6 3.8.4-6 3.8.4-7 3.9.3-2")
async def a_subscribe_is_answered_with_its_packet_identifier(broker: Broker) -> None:
    client = await broker.connect()
    for packet_identifier in (1, 65_535):
        await client.send(Subscribe(packet_identifier, [(broker.topic(), 0)]))
        await client.expect(Suback, packet_identifier=packet_identifier, reason_codes=[0])


@check(v3="3.8.4-4 3.8.4-5 3.9.3-1 3.9.3-2", v5="3.8.4-5 3.8.4-6 3.8.4-7 3.9.3-1 3.9.3-2 3.2.2-10")
async def each_filter_has_its_answer_in_order(broker: Broker) -> None:
    client = await broker.connect()
    wanted = [2, 0, 1, 0, 2]
    await client.send(Subscribe(1, [(broker.topic(), qos) for qos in wanted]))
    suback = await client.expect(Suback)
    highest = broker.offered.get(p.MAXIMUM_QOS, 2)
    if suback.reason_codes not in (wanted, [min(qos, highest) for qos in wanted]):
        raise Failed(f"return codes {wanted}", repr(suback))


@check(v3="3.8.4-4", v5="3.8.4-5")
async def many_filters_in_one_packet_all_count(broker: Broker) -> None:
    client = await broker.connect()
    topics = [broker.topic() for _ in range(20)]
    await client.subscribe(*topics)
    for topic in topics:
        await client.publish(topic)
        await client.receive(topic=topic)


@check(v3="3.8.1-1 2.2.2-2", v5="3.8.1-1 2.1.3-1")
async def a_subscribe_with_other_flags_closes_the_connection(broker: Broker) -> None:
    packet = raw_subscribe(broker, broker.topic().encode(), first_byte=0x80)
    await broker.expect_closed(packet, reasons.MALFORMED_PACKET)


@check(v3="3.8.3-3 4.8.0-1", v5="3.8.3-2 4.13.1-1")
async def a_subscribe_without_a_filter_closes_the_connection(broker: Broker) -> None:
    packet = frame(0x82, b"\x00\x01" + broker.no_properties)
    await broker.expect_closed(packet, reasons.PROTOCOL_ERROR, reasons.MALFORMED_PACKET)


@check(v3="2.3.1-1 4.8.0-1", v5="2.2.1-3")
async def a_subscribe_with_packet_identifier_0_closes_the_connection(broker: Broker) -> None:
    client = await broker.connect()
    packet = raw_subscribe(broker, broker.topic().encode())
    await client.send(packet[:2] + b"\x00\x00" + packet[4:])
    await client.expect_closed(reasons.PROTOCOL_ERROR, reasons.MALFORMED_PACKET)


@check(v3="3-8.3-4", v5="3.8.3-5", cases=RESERVED_OPTIONS)
async def reserved_options_close_the_connection(broker: Broker, options: int) -> None:
    await broker.expect_closed(raw_subscribe(broker, broker.topic().encode(), options), reasons.MALFORMED_PACKET)


@check(v3="3-8.3-4", cases=OPTIONS_OF_5)
async def options_of_a_later_version_close_the_connection(broker: Broker, options: int) -> None:
    await broker.expect_closed(raw_subscribe(broker, broker.topic().encode(), options))


@check(v3="3-8.3-4", v5="4.13.1-1")
async def a_subscription_at_qos_3_closes_the_connection(broker: Broker) -> None:
    packet = raw_subscribe(broker, broker.topic().encode(), 3)
    await broker.expect_closed(packet, reasons.PROTOCOL_ERROR, reasons.MALFORMED_PACKET)


@check(v5="4.13.1-1")
async def retain_handling_3_closes_the_connection(broker: Broker) -> None:
    packet = raw_subscribe(broker, broker.topic().encode(), 0x30)
    await broker.expect_closed(packet, reasons.PROTOCOL_ERROR, reasons.MALFORMED_PACKET)


@check(v5="4.13.1-1")
async def subscription_identifier_0_closes_the_connection(broker: Broker) -> None:
    packet = raw_subscribe(broker, broker.topic().encode(), properties=b"\x0b\x00")
    await broker.expect_closed(packet, reasons.PROTOCOL_ERROR, reasons.MALFORMED_PACKET)


@check(v3="3.8.4-6 3.3.5-1", v5="3.8.4-8", cases=QOS)
async def a_message_arrives_at_the_lower_qos(broker: Broker, case: tuple[int, int]) -> None:
    published, granted = case
    broker.needs(p.MAXIMUM_QOS, max(case))
    topic, watcher, client = await broker.watched(granted)
    await client.publish(topic, b"", qos=published)
    await watcher.receive(qos=min(published, granted))


@check(v3="3.8.4-3", v5="3.8.4-3")
async def a_filter_that_comes_again_replaces_the_first(broker: Broker) -> None:
    topic, client = broker.topic(), await broker.connect()
    await client.subscribe(topic, options=0)
    await client.subscribe(topic, options=1)
    await client.publish(topic, b"", qos=1)
    await client.receive(qos=1)
    await client.publish(topic, b"marker", qos=1)
    await client.receive(payload=b"marker", qos=1)


@check(v3="3.8.4-3", v5="3.8.4-4")
async def no_message_is_lost_while_a_filter_is_replaced(broker: Broker) -> None:
    topic, watcher, client = await broker.watched(1)
    numbers = [bytes((number,)) for number in range(20)]
    for number in numbers:
        await client.send(Publish(topic, number, 1, packet_identifier=client.identifier()))
        await watcher.send(Subscribe(watcher.identifier(), [(topic, 1)]))
    for number in numbers:
        await watcher.receive(payload=number)


@check(v3="4.7.1-2 4.7.1-3", v5="4.7.1-1 4.7.1-2", cases=BAD_FILTERS)
async def an_ill_formed_filter_is_not_granted(broker: Broker, pattern: str) -> None:
    client = await broker.connect()
    await client.send(raw_subscribe(broker, pattern.format(broker.topic()).encode()))
    await expect_not_granted(client, reasons.TOPIC_FILTER_INVALID, reasons.NOT_AUTHORIZED)


@check(v3="4.7.3-1", v5="4.7.3-1 4.13.1-1", cases={"subscribe": 0x82, "unsubscribe": 0xA2})
async def an_empty_filter_closes_the_connection(broker: Broker, first_byte: int) -> None:
    client = await broker.connect()
    options = b"\0" if first_byte == 0x82 else b""
    await client.send(frame(first_byte, b"\0\1" + broker.no_properties + b"\0\0" + options))
    await client.expect_closed(reasons.MALFORMED_PACKET, reasons.PROTOCOL_ERROR, reasons.TOPIC_FILTER_INVALID)


@check(v3="4.7.1-2 4.7.1-3 4.7.3-4 3.3.2-3 3.8.3-2", v5="4.7.1-1 4.7.1-2 4.7.3-4 3.3.2-3", cases=MATCHES)
async def a_filter_takes_what_it_names(broker: Broker, case: tuple[str, tuple[str, ...], tuple[str, ...]]) -> None:
    ending, taken, not_taken = case
    topic, client = broker.topic(), await broker.connect()
    await client.subscribe(f"{topic}{ending}")
    for name in (*not_taken, *taken):
        await client.publish(f"{topic}{name}")
    for name in taken:
        await client.receive(topic=f"{topic}{name}")
    await client.expect_no_message()


@check(v3="4.7.3-4", v5="4.7.3-4")
async def characters_are_compared_as_they_are(broker: Broker) -> None:
    topic, client = broker.topic(), await broker.connect()
    composed, decomposed = f"{topic}/\u00e9", f"{topic}/e\u0301"
    await client.subscribe(composed)
    await client.publish(decomposed)
    await client.publish(composed)
    await client.receive(topic=composed)


@check(v3="4.7.2-1", v5="4.7.2-1", cases={"plus": "+/{}", "plus_then_hash": "+/{}/#"})
async def a_filter_that_begins_with_a_wildcard_takes_no_dollar_topic(broker: Broker, pattern: str) -> None:
    name = broker.client_id()
    watcher, client = await broker.connect(), await broker.connect()
    await watcher.subscribe(pattern.format(name))
    await client.publish(f"$hfcheck/{name}")
    client = await broker.connect()  # the broker may have disconnected the first client: servers may reserve such names
    await client.publish(f"hfcheck/{name}")
    await watcher.receive(topic=f"hfcheck/{name}")


@check(v3="4.7.2-1", v5="4.7.2-1")
async def a_lone_hash_takes_no_dollar_topic(broker: Broker) -> None:
    name = broker.client_id()
    watcher, client = await broker.connect(), await broker.connect()
    await watcher.subscribe("#")
    await client.publish(f"$hfcheck/{name}")
    client = await broker.connect()
    await client.publish(f"hfcheck/{name}")
    while (message := await watcher.receive()).topic != f"hfcheck/{name}":
        if message.topic.startswith("$"):
            raise Failed("no topic that begins with $", message.topic)


@check(v3="4.7.2-1", v5="4.7.2-1", cases={"plus": "+/{}", "plus_then_hash": "+/{}/#"})
async def a_filter_that_begins_with_a_wildcard_brings_no_retained_dollar_topic(broker: Broker, pattern: str) -> None:
    broker.needs(p.RETAIN_AVAILABLE)
    name = broker.client_id()
    for start in ("$hfcheck", "hfcheck"):
        client = await broker.connect()
        await client.publish(broker.retained_topic(f"{start}/{name}"), b"1", retain=True)
        await client.disconnect()
    watcher = await broker.connect()
    await watcher.subscribe(pattern.format(name))
    await watcher.receive(topic=f"hfcheck/{name}")


@check(v3="3.3.5-1", v5="3.3.4-2")
async def overlapping_filters_give_the_highest_qos(broker: Broker) -> None:
    topic, client = broker.topic(), await broker.connect()
    highest = min(2, broker.offered.get(p.MAXIMUM_QOS, 2))
    await client.subscribe(f"{topic}/#", options=0)
    await client.subscribe(f"{topic}/+", options=highest)
    for name in ("a", "end"):
        await client.publish(f"{topic}/{name}", b"", qos=highest)
    messages = [await client.receive()]
    while messages[-1].topic != f"{topic}/end":
        messages.append(await client.receive())
    if max(message.qos for message in messages) != highest:
        raise Failed(f"a message of QoS {highest}", repr(messages))


def identifiers(messages: list[Publish]) -> list[int]:
    return sorted(one for message in messages for one in message.properties.get(p.SUBSCRIPTION_IDENTIFIER, []))


@check(v5="3.3.4-3 3.3.4-4 3.3.4-5")
async def a_message_names_the_subscriptions_that_it_answers(broker: Broker) -> None:
    broker.needs(p.SUBSCRIPTION_IDENTIFIERS_AVAILABLE)
    topic = broker.topic()
    watcher, client = await broker.connect(), await broker.connect()
    for identifier, ending in ((1, "a"), (200, "+"), (268_435_455, "#")):
        await watcher.subscribe(f"{topic}/{ending}", properties={p.SUBSCRIPTION_IDENTIFIER: [identifier]})
    await watcher.subscribe(f"{topic}/b", f"{topic}/end", properties={p.SUBSCRIPTION_IDENTIFIER: [9]})
    await client.publish(f"{topic}/a")
    await client.publish(f"{topic}/end")
    messages = [await watcher.receive()]
    while messages[-1].topic != f"{topic}/end":
        messages.append(await watcher.receive())
    found = identifiers([message for message in messages if message.topic == f"{topic}/a"])
    if found != [1, 200, 268_435_455]:
        raise Failed("subscription identifiers 1, 200 and 268435455", repr(messages))


@check(v5="3.8.4-4")
async def what_waits_for_room_comes_though_its_filter_was_replaced(broker: Broker) -> None:
    topic, watcher, client = await broker.watched(1, properties={p.RECEIVE_MAXIMUM: 1})
    numbers = [bytes((number,)) for number in range(4)]
    await client.publish_all(topic, numbers, 1)
    await watcher.subscribe(topic, options=1)
    for number in numbers:
        await watcher.receive(payload=number)


@check(v5="3.8.4-3 3.3.4-3")
async def a_filter_that_comes_again_brings_its_own_identifier_or_none(broker: Broker) -> None:
    broker.needs(p.SUBSCRIPTION_IDENTIFIERS_AVAILABLE)
    topic, client = broker.topic(), await broker.connect()
    for given in ({p.SUBSCRIPTION_IDENTIFIER: [1]}, {p.SUBSCRIPTION_IDENTIFIER: [2]}, {}):
        await client.subscribe(topic, properties=given)
        await client.publish(topic)
        message = await client.receive(topic=topic)
        if message.properties.get(p.SUBSCRIPTION_IDENTIFIER) != given.get(p.SUBSCRIPTION_IDENTIFIER):
            raise Failed(f"subscription identifiers {given.get(p.SUBSCRIPTION_IDENTIFIER)}", repr(message))


@check(v5="3.8.3-3")
async def no_local_keeps_a_clients_own_messages_away_from_it(broker: Broker) -> None:
    topic = broker.topic()
    client, other = await broker.connect(), await broker.connect()
    await client.subscribe(topic, options=NO_LOCAL | 1)
    await client.publish(topic, b"own", qos=1)
    await other.publish(topic, b"another's", qos=1)
    await client.receive(payload=b"another's")
    await client.expect_no_message()
