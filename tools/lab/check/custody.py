"""Tries whether a broker may have custody of a gateway's messages: what it keeps for a client that is away."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import cast

from tools.lab.check.client import Client
from tools.lab.check.outcome import Failed
from tools.lab.check.subject import Address, Broker
from wire.codec.packets import MQTT_3_1_1, MQTT_5, Puback, Publish
from wire.properties import (
    MAXIMUM_PACKET_SIZE,
    MAXIMUM_QOS,
    RECEIVE_MAXIMUM,
    RETAIN_AVAILABLE,
    SESSION_EXPIRY_INTERVAL,
)
from wire.reasons import NO_MATCHING_SUBSCRIBERS, SUCCESS, UNSPECIFIED_ERROR, describe

OK, NOTE, FAIL = "ok", "note", "FAIL"
AT_ONCE = 100  # PUBLISHes without an acknowledgement, unless the broker takes fewer
MARKER_EVERY = 100  # messages that have come
MARKER = b"marker"
KEPT_S = 3600  # for which a session is asked for: a restart may take long
PACKET_USUAL = 1 << 20  # bytes; a gateway takes no larger PUBLISH
RECEIVE_LEAST = 100
RESTART_DEADLINE_S = 60.0

QUEUE_ADVICE = (
    "let it queue without limit for durable sessions; mosquitto: `max_queued_messages 0`, `max_queued_bytes 0`"
)
SESSION_ADVICE = "let sessions outlive connections; mosquitto: `persistent_client_expiration` not set"
RESTART_ADVICE = "let it write sessions and queues to disk; mosquitto: `persistence true`, `autosave_interval 1`"


@dataclass(frozen=True)
class Finding:
    """What was found: ``verdict`` is OK, NOTE or FAIL. ``advice`` is "" where there is nothing to do."""

    what: str
    verdict: str
    text: str
    advice: str = ""


@dataclass
class Kept:
    """How many messages the broker acknowledged for a client that was away, refused, and delivered to it later."""

    acknowledged: int = 0
    refused: int = 0
    delivered: int = 0
    twice: int = 0
    has_session: bool = True

    @property
    def lost(self) -> int:
        return self.acknowledged - self.delivered


class CustodyTrial:
    """Tries one broker.

    Args:
        address: where it is.
        messages: how many messages it has to keep for a client that is away.
        restart: restarts the broker; None: it is not restarted.

    ``lost`` is how many messages the broker has acknowledged and not delivered, and ``twice`` how many came twice.
    """

    def __init__(self, address: Address, messages: int, restart: Callable[[], Awaitable[None]] | None = None) -> None:
        self._address = address
        self._messages = messages
        self._restart = restart
        self.sent = self.lost = self.twice = 0

    async def run(self) -> list[Finding]:
        """Returns what was found. Raises Failed if the broker does not follow the protocol, OSError."""
        broker = Broker(self._address, MQTT_5)
        try:
            await broker.connect()
        except Failed:  # it does not speak MQTT 5
            await broker.clean_up()
            broker = Broker(self._address, MQTT_3_1_1)
        try:
            publisher = await broker.connect()
            found = list(_announced(publisher, broker.level))
            if publisher.connack.properties.get(MAXIMUM_QOS, 2):
                found.append(await _ask_without_subscriber(publisher, broker))
                found += _judge("session over a reconnect", await self._keep(broker), SESSION_ADVICE, QUEUE_ADVICE)
                if self._restart is not None:
                    kept = await self._keep(broker, self._restart)
                    found += _judge("session over a restart", kept, RESTART_ADVICE, RESTART_ADVICE)
                else:
                    found.append(
                        Finding("session over a restart", NOTE, "not tried", "say with --restart how to do it")
                    )
            return found
        finally:
            await broker.clean_up()

    async def _keep(self, broker: Broker, restart: Callable[[], Awaitable[None]] | None = None) -> Kept:
        """Lets a client subscribe and go away, publishes to it, and counts what it gets when it is back."""
        topic, kept = broker.topic(), Kept()
        # mosquitto 2.0.11 does not write a session to disk that began with a clean start.
        away = await broker.connect(broker.client_id(), clean_start=False, expiry_s=KEPT_S)
        await away.subscribe(topic, options=1)
        await away.disconnect()
        publisher = await broker.connect()
        await self._publish(publisher, topic, kept)
        if restart is not None:
            await publisher.disconnect()
            await restart()
            publisher = await _connect_again(broker)
        back = await broker.connect(away.client_id, clean_start=False, expiry_s=KEPT_S)
        kept.has_session = back.connack.session_present
        if kept.has_session:
            await _count(back, publisher, topic, kept)
        await back.disconnect()
        await (await broker.connect(away.client_id)).disconnect()  # and its session ends
        self.sent += kept.acknowledged + kept.refused
        self.lost += kept.lost
        self.twice += kept.twice
        return kept

    async def _publish(self, publisher: Client, topic: str, kept: Kept) -> None:
        at_once = min(AT_ONCE, publisher.connack.properties.get(RECEIVE_MAXIMUM, AT_ONCE))
        numbers = iter(range(self._messages))
        while batch := [
            Publish(topic, b"%d" % number, 1, packet_identifier=publisher.identifier())
            for number in islice(numbers, at_once)
        ]:
            await publisher.send(*batch)
            for _ in batch:
                if (await publisher.expect(Puback)).reason_code < UNSPECIFIED_ERROR:
                    kept.acknowledged += 1
                else:
                    kept.refused += 1


async def _count(back: Client, publisher: Client, topic: str, kept: Kept) -> None:
    """Counts what comes up to a marker, which is published again now and then, as the queue may have no room for it."""
    numbers: set[bytes] = set()
    await publisher.send(_marker(publisher, topic))
    while True:
        try:
            message = await back.expect(Publish)
        except Failed:  # nothing comes any more, and no marker came
            break
        await back.send(Puback(cast(int, message.packet_identifier)))
        if bytes(message.payload) == MARKER:
            break
        kept.twice += bytes(message.payload) in numbers
        numbers.add(bytes(message.payload))
        if len(numbers) % MARKER_EVERY == 0:
            await publisher.send(_marker(publisher, topic))
    kept.delivered = len(numbers)


def _marker(publisher: Client, topic: str) -> Publish:
    return Publish(topic, MARKER, 1, packet_identifier=publisher.identifier())


async def _connect_again(broker: Broker) -> Client:
    """Connects to a broker that is starting."""
    async with asyncio.timeout(RESTART_DEADLINE_S):
        while True:
            try:
                return await broker.connect()
            except (OSError, Failed):
                await asyncio.sleep(0.1)


async def _ask_without_subscriber(publisher: Client, broker: Broker) -> Finding:
    what = "message without a subscriber"
    identifier = publisher.identifier()
    await publisher.send(Publish(broker.topic(), b"", 1, packet_identifier=identifier))
    code = (await publisher.expect(Puback, packet_identifier=identifier)).reason_code
    if code == NO_MATCHING_SUBSCRIBERS:
        return Finding(what, OK, "it answers 0x10, so that the gateway keeps the message until there is a subscriber")
    if code == SUCCESS:
        text = "it answers success, and keeps no copy: what comes before the first subscriber is lost"
        return Finding(what, NOTE, text, "let the lander subscribe before the gateway connects")
    return Finding(
        what, FAIL, f"it answers {describe(code)}", "let this user publish to every topic that the gateway sends"
    )


def _announced(client: Client, level: int) -> Iterator[Finding]:
    """Yields what the broker's CONNACK says of its limits."""
    if level == MQTT_3_1_1:
        yield Finding("version", NOTE, "MQTT 3.1.1: identities do not travel, so that tables cannot tell a duplicate")
        return
    properties = client.connack.properties
    yield Finding("version", OK, "MQTT 5")
    qos = properties.get(MAXIMUM_QOS, 2)
    texts = ["it acknowledges nothing", "each message arrives at least once", "each message can arrive exactly once"]
    yield Finding("Maximum QoS", (FAIL, NOTE, OK)[qos], f"{qos}: {texts[qos]}")
    if properties.get(RETAIN_AVAILABLE, 1):
        yield Finding("retained messages", OK, "it takes them")
    else:
        yield Finding("retained messages", NOTE, "it takes none: the gateway sets them aside", "allow them")
    size = properties.get(MAXIMUM_PACKET_SIZE)
    if size is None or size >= PACKET_USUAL:
        yield Finding(
            "Maximum Packet Size", OK, "as large as a gateway's messages" if size is None else f"{size} bytes"
        )
    else:
        text = f"{size} bytes: the gateway sets larger messages aside"
        yield Finding("Maximum Packet Size", NOTE, text, f"allow {PACKET_USUAL} bytes; mosquitto: `max_packet_size`")
    most = properties.get(RECEIVE_MAXIMUM, 65_535)
    text = f"{most} messages may be in flight"
    if most < RECEIVE_LEAST:
        advice = "allow 1000; mosquitto: `max_inflight_messages 1000`"
        yield Finding("Receive Maximum", NOTE, f"{text}: a link with a long delay is slow", advice)
    else:
        yield Finding("Receive Maximum", OK, text)
    if (expiry_s := properties.get(SESSION_EXPIRY_INTERVAL)) is not None:
        yield Finding("session expiry", NOTE, f"it ends sessions after {expiry_s} s, whatever a client asks for")


def _judge(what: str, kept: Kept, session_advice: str, queue_advice: str) -> Iterator[Finding]:
    if not kept.has_session:
        yield Finding(what, FAIL, "the session is gone, and what waited for its client", session_advice)
        return
    yield Finding(what, OK, "the session is still there")
    what = f"queue, {what.rpartition(' ')[2]}"
    refused = f", and refused {kept.refused}" if kept.refused else ""
    if kept.lost:
        text = f"of {kept.acknowledged} messages that it acknowledged for a client that was away, {kept.lost} are lost"
        yield Finding(what, FAIL, text + refused, queue_advice)
    elif kept.refused:
        text = (
            f"it kept {kept.delivered} messages for a client that was away{refused}: the gateway keeps those meanwhile"
        )
        yield Finding(what, NOTE, text, queue_advice)
    else:
        yield Finding(what, OK, f"it kept all {kept.delivered} messages for a client that was away")
