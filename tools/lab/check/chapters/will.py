"""Wills (sections 3.1.2.5 to 3.1.2.7, 3.1.3.2 and 3.14.4)."""

import time

from tools.lab.check.chapters.connect import raw_connect
from tools.lab.check.client import Client, elapse
from tools.lab.check.outcome import Failed
from tools.lab.check.subject import Broker
from tools.lab.check.suite import check
from wire import properties as p
from wire.codec.packets import Will
from wire.primitives import encode_string
from wire.reasons import (
    DISCONNECT_WITH_WILL,
    MALFORMED_PACKET,
    PROTOCOL_ERROR,
    QOS_NOT_SUPPORTED,
    RETAIN_NOT_SUPPORTED,
    UNSPECIFIED_ERROR,
)

ALL_QOS = {"qos_0": 0, "qos_1": 1, "qos_2": 2}
PROPERTIES = {
    p.PAYLOAD_FORMAT_INDICATOR: 1,
    p.CONTENT_TYPE: "text/plain",
    p.RESPONSE_TOPIC: "hfcheck/answers",
    p.CORRELATION_DATA: b"\x00\xff",
    p.USER_PROPERTY: [("b", "1"), ("a", "2"), ("b", "0")],
}


async def watch(broker: Broker, name: str = "") -> tuple[str, Client]:
    """Returns a topic name, a new one unless it is given, and a client that has subscribed to it."""
    topic, watcher = name or broker.topic(), await broker.connect()
    await watcher.subscribe(topic, options=min(2, broker.offered.get(p.MAXIMUM_QOS, 2)))
    return topic, watcher


async def expect_no_will(watcher: Client, topic: str) -> None:
    await watcher.publish(topic, b"marker", qos=1)
    await watcher.receive(payload=b"marker")


@check(v3="3.1.2-8 3.1.2-9 3.1.2-14", v5="3.1.2-7 3.1.2-8 3.1.2-9 3.1.2-12", cases=ALL_QOS)
async def a_lost_connection_publishes_the_will(broker: Broker, qos: int) -> None:
    broker.needs(p.MAXIMUM_QOS, qos)
    topic, watcher = await watch(broker)
    client = await broker.connect(will=Will(topic, b"gone", qos))
    client.cut()
    await watcher.receive(topic=topic, payload=b"gone", qos=qos, retain=False)


@check(v3="3.1.2-8", v5="3.1.2-8 3.1.2-22")
async def a_keep_alive_that_passes_publishes_the_will(broker: Broker) -> None:
    topic, watcher = await watch(broker)
    await broker.connect(keep_alive_s=1, will=Will(topic, b"silent"))
    await watcher.receive(payload=b"silent")


@check(v3="3.1.2-8 4.8.0-1", v5="3.1.2-8 4.13.1-1")
async def a_protocol_error_publishes_the_will(broker: Broker) -> None:
    topic, watcher = await watch(broker)
    client = await broker.connect(will=Will(topic, b"wrong"))
    await client.send(b"\x00\x00")
    await watcher.receive(payload=b"wrong")


@check(v3="3.1.2-8")
async def a_connection_that_is_taken_over_publishes_the_will(broker: Broker) -> None:
    topic, watcher = await watch(broker)
    client = await broker.connect(will=Will(topic, b"taken over"))
    await broker.connect(client.client_id)
    await watcher.publish(topic, b"marker")
    messages = [await watcher.receive() for _ in range(2)]
    if b"taken over" not in [message.payload for message in messages]:
        raise Failed("the will", repr(messages))


@check(v3="3.1.2-10 3.14.4-3", v5="3.1.2-10 3.14.4-3")
async def a_disconnect_discards_the_will(broker: Broker) -> None:
    topic, watcher = await watch(broker)
    client = await broker.connect(will=Will(topic, b"will", 1))
    await client.disconnect()
    await expect_no_will(watcher, topic)


@check(v5="3.1.2-8 3.14.4-3")
async def a_disconnect_with_will_publishes_it(broker: Broker) -> None:
    topic, watcher = await watch(broker)
    client = await broker.connect(will=Will(topic, b"will", 1))
    await client.disconnect(DISCONNECT_WITH_WILL)
    await watcher.receive(payload=b"will")


@check(v3="3.1.2-10 3.1.2-12", v5="3.1.2-10")
async def a_will_is_published_once(broker: Broker) -> None:
    topic, watcher = await watch(broker)
    client = await broker.resume(broker.client_id(), will=Will(topic, b"once", 1))
    client.cut()
    await watcher.receive(payload=b"once")
    again = await broker.resume(client.client_id)
    await again.close()
    await expect_no_will(watcher, topic)


@check(v3="3.1.2-12", v5="3.1.2-7")
async def a_will_does_not_pass_on_to_the_next_connection(broker: Broker) -> None:
    topic, watcher = await watch(broker)
    client = await broker.resume(broker.client_id(), will=Will(topic, b"will", 1))
    await client.disconnect()
    again = await broker.resume(client.client_id)
    await again.close()
    await expect_no_will(watcher, topic)


@check(v3="3.1.2-16 3.1.2-17", v5="3.1.2-14 3.1.2-15", cases={"retained": True, "not_retained": False})
async def a_will_is_retained_as_it_says(broker: Broker, retain: bool) -> None:
    broker.needs(p.RETAIN_AVAILABLE)
    topic = broker.retained_topic()
    _, watcher = await watch(broker, topic)
    client = await broker.connect(will=Will(topic, b"gone", 1, retain))
    client.cut()
    await watcher.receive(payload=b"gone")
    _, later = await watch(broker, topic)
    if retain:
        await later.receive(payload=b"gone", retain=True)
    await later.expect_no_message()


@check(v5="3.1.3-10 3.1.2-9 3.3.2-4 3.3.2-15 3.3.2-16 3.3.2-20")
async def a_will_keeps_its_properties(broker: Broker) -> None:
    topic, watcher = await watch(broker)
    client = await broker.connect(will=Will(topic, b"gone", properties=PROPERTIES))
    client.cut()
    message = await watcher.receive(payload=b"gone")
    came = {identifier: message.properties.get(identifier) for identifier in PROPERTIES}
    came[p.USER_PROPERTY] = (came[p.USER_PROPERTY] or [])[:3]  # a server may add its own
    if came != PROPERTIES:
        raise Failed(f"properties {PROPERTIES}", str(message.properties))


@check(v5="3.1.2-8")
async def a_will_waits_for_its_delay(broker: Broker) -> None:
    topic, watcher = await watch(broker)
    will = Will(topic, b"gone", properties={p.WILL_DELAY_INTERVAL: 2})
    client = await broker.resume(broker.client_id(), will=will)
    started = time.monotonic()
    client.cut()
    message = await watcher.receive(payload=b"gone")
    waited_s = time.monotonic() - started
    if waited_s < 1:
        raise Failed("the will after 2 s", f"after {waited_s:.1f} s {message!r}")


@check(v5="3.1.3-9 3.1.2-8")
async def a_client_that_comes_back_within_the_delay_has_no_will_published(broker: Broker) -> None:
    topic, watcher = await watch(broker)
    client_id = broker.client_id()
    client = await broker.resume(client_id, will=Will(topic, b"gone", 1, properties={p.WILL_DELAY_INTERVAL: 4}))
    await client.close()
    again = await broker.resume(client_id)
    await elapse(5.5)
    await again.ping()
    await expect_no_will(watcher, topic)


@check(v5="3.1.2-8")
async def a_session_that_ends_before_the_delay_publishes_the_will(broker: Broker) -> None:
    topic, watcher = await watch(broker)
    client = await broker.connect(expiry_s=1, will=Will(topic, b"gone", properties={p.WILL_DELAY_INTERVAL: 3600}))
    client.cut()
    await watcher.receive(payload=b"gone")


@check(v5="3.1.2-8")
async def a_disconnect_that_ends_the_session_publishes_the_will_at_once(broker: Broker) -> None:
    topic, watcher = await watch(broker)
    will = Will(topic, b"gone", properties={p.WILL_DELAY_INTERVAL: 3600})
    client = await broker.resume(broker.client_id(), will=will)
    await client.disconnect(DISCONNECT_WITH_WILL, {p.SESSION_EXPIRY_INTERVAL: 0})
    await watcher.receive(payload=b"gone")


@check(v5="3.1.2-8 3.1.2-10")
async def a_disconnect_with_an_error_publishes_the_will(broker: Broker) -> None:
    topic, watcher = await watch(broker)
    client = await broker.connect(will=Will(topic, b"gone"))
    await client.disconnect(UNSPECIFIED_ERROR)
    await watcher.receive(payload=b"gone")


@check(v5="3.2.2-9 3.2.2-12 3.2.2-13", cases={"qos_2": (2, False), "retained": (0, True)})
async def a_will_is_accepted_unless_the_broker_announces_that_it_cannot(broker: Broker, case: tuple[int, bool]) -> None:
    qos, retain = case
    will = Will(broker.retained_topic(), b"gone", qos, retain)
    able = qos <= broker.offered.get(p.MAXIMUM_QOS, 2) and retain <= broker.offered.get(p.RETAIN_AVAILABLE, 1)
    if able:
        await (await broker.connect(will=will)).disconnect()
        return
    await broker.expect_refused(broker.connect_packet(will=will), QOS_NOT_SUPPORTED, RETAIN_NOT_SUPPORTED)


@check(v3="3.1.2-14 3.1.4-1", v5="3.1.2-12 3.1.4-1")
async def a_will_of_qos_3_is_refused(broker: Broker) -> None:
    await broker.expect_refused(
        raw_connect(broker, 0x1C, broker.no_properties + encode_string(broker.topic()) + encode_string("x")),
        MALFORMED_PACKET,
        PROTOCOL_ERROR,
    )
