"""Random sessions by the hot path and packet by packet: clients receive the same, and the store holds the same."""

import dataclasses
import random
import time
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from gateway.broker import Broker
from gateway.delivery import sender
from tests.gateway.store.support import epoch_of, messages_in, stored
from tests.gateway.support import Client, connected, running, tcp_port
from wire.bulk.connection import BulkConnection
from wire.bulk.reader import BulkReader
from wire.codec.packets import MQTT_3_1_1, MQTT_5, Puback, Pubcomp, Publish, Pubrec, Pubrel
from wire.hops import HOPS_PROPERTY
from wire.identity import IDENTITY_PROPERTY, RECEIVE, RECEIVED_PROPERTY
from wire.properties import CONTENT_TYPE, CORRELATION_DATA, MESSAGE_EXPIRY_INTERVAL, RESPONSE_TOPIC, USER_PROPERTY
from wire.route_numbers import VIA_PROPERTY, encode_via

SUBSCRIBERS: list[tuple[str, int, int, tuple[str, ...]]] = [
    ("old", MQTT_3_1_1, 1, ()),
    ("new", MQTT_5, 1, ()),
    ("exact", MQTT_5, 2, (RECEIVE,)),
    ("asking", MQTT_5, 1, (RECEIVE,)),
]
Seen = dict[str, list[Any]]


class Step(NamedTuple):
    """Messages that one client publishes at once, all of one QoS."""

    level: int
    qos: int
    messages: list[dict[str, Any]]


def properties(dice: random.Random) -> dict[int, Any]:
    some: list[dict[int, Any]] = [
        {},
        {CONTENT_TYPE: "application/senml+cbor"},
        {CONTENT_TYPE: "text/plain", MESSAGE_EXPIRY_INTERVAL: 3600},
        {CORRELATION_DATA: b"7"},
        {RESPONSE_TOPIC: "answers"},
    ]
    found = dict(dice.choice(some))
    pairs = [("site", "north")] if dice.random() < 0.2 else []
    if dice.random() < 0.6:
        number = dice.randrange(1, 10**6)
        own = f"0000a3f1/{number}/publisher-5"
        identity = (IDENTITY_PROPERTY, dice.choice([own] * 18 + ["ill-formed", f"0000a3f1/{number}/other"]))
        gateway = dice.choice(["publisher-5"] * 9 + ["other"])
        via = (VIA_PROPERTY, encode_via(1, [(number, number)], gateway, "up"))
        is_handed_on = dice.random() < 0.5
        pairs += (
            [(HOPS_PROPERTY, "0000beef"), identity, (RECEIVED_PROPERTY, "17/n"), via] if is_handed_on else [identity]
        )
    if pairs:
        found[USER_PROPERTY] = pairs
    return found


def session(dice: random.Random) -> list[Step]:
    steps = []
    for _ in range(dice.randrange(3, 8)):
        level = dice.choice([MQTT_3_1_1, MQTT_5])
        messages = [
            {
                "topic": dice.choice(["a/b", "a/b", "a/c", "other"]),
                "payload": dice.randbytes(dice.choice([0, 10, 100, 130])),
                "retain": dice.random() < 0.02,
                "properties": properties(dice) if level == MQTT_5 else {},
            }
            for _ in range(dice.randrange(1, 60))
        ]
        steps.append(Step(level, dice.choice([1, 1, 2]), messages))
    return steps


async def play(broker: Broker, steps: list[Step]) -> Seen:
    """Returns what each client gets, with a last message at the end of it."""
    port = tcp_port(broker)
    subscribers = [
        (await Client(name, wishes=wishes, protocol_level=level).connect(port), qos)
        for name, level, qos, wishes in SUBSCRIBERS
    ]
    for subscriber, qos in subscribers:
        await subscriber.subscribe("a/#", options=qos)
    seen: Seen = {name: [] for name, *_ in SUBSCRIBERS} | {"answers": []}
    publishers = {level: await Client(f"publisher-{level}", protocol_level=level).connect(port) for level in (4, 5)}
    for level, qos, messages in steps:
        publisher = publishers[level]
        sent = [publisher.protocol.publish(qos=qos, **message) for message in messages]
        publisher.flush()
        kinds: list[Any] = [Puback] if qos == 1 else [Pubrec, Pubcomp]
        for kind in kinds:
            answers = [await publisher.expect(kind) for _ in sent]
            seen["answers"] += [(sent.index(answer.packet_identifier), answer.reason_code) for answer in answers]
            if kind is Pubrec:
                answers = [answer for answer in answers if not answer.reason_code]
                sent = [answer.packet_identifier for answer in answers]
                for answer in answers:
                    publisher.protocol.pubrel(answer.packet_identifier)
                publisher.flush()
    await publishers[MQTT_5].publish("a/end", b"")
    for (subscriber, _), (name, *_) in zip(subscribers, SUBSCRIBERS, strict=True):
        seen[name] = [of(packet, broker) for packet in await receive_all(subscriber)]
    return seen


async def receive_all(subscriber: Client) -> list[Publish]:
    """All messages up to the last, each acknowledged to its end."""
    found: list[Publish] = []
    unreleased = 0
    while not found or found[-1].topic != "a/end" or unreleased:
        match event := await subscriber.event():
            case Publish():
                found.append(event)
                subscriber.acknowledge(event)
                unreleased += event.qos == 2
            case Pubrel():
                subscriber.protocol.pubcomp(event.packet_identifier)
                subscriber.flush()
                unreleased -= 1
            case _:
                raise AssertionError(f"a message expected, got {event!r}")
    return found


def of(packet: Publish, broker: Broker) -> tuple[Any, ...]:
    """What is the same each time: no epoch of a store, no time."""
    found = dict(packet.properties)
    epoch = f"{epoch_of(Path(broker.config.store.path)):08x}"
    found[USER_PROPERTY] = [
        (name, value.replace(epoch, "epoch") if name == IDENTITY_PROPERTY else value)
        for name, value in packet.properties.get(USER_PROPERTY, ())
        if name != RECEIVED_PROPERTY
    ]
    if left_s := found.get(MESSAGE_EXPIRY_INTERVAL):
        found[MESSAGE_EXPIRY_INTERVAL] = round(left_s, -2)  # a crowded machine takes seconds
    return packet.topic, packet.payload, packet.qos, packet.retain, packet.dup, found


def at_rest(folder: Path, epoch: int) -> list[Any]:
    return [
        (
            position,
            dataclasses.replace(
                message,
                received_ms=0,
                epoch=message.epoch if message.epoch != epoch else 0,
                expires_ms=round(message.expires_ms - int(time.time() * 1000), -6) if message.expires_ms else 0,
                properties={
                    key: [tuple(pair) for pair in value] if key == USER_PROPERTY else value
                    for key, value in message.properties.items()
                },
            ),
        )
        for position, message in messages_in(folder)
    ]


async def test_it_is_the_same_by_the_hot_path_and_packet_by_packet(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    dice = random.Random(seed)
    taken = 0
    feed = BulkReader.feed

    def noting_feed(inflow: BulkReader, *data: Any) -> Any:
        nonlocal taken
        for step in feed(inflow, *data):
            taken += len(step.identifiers) if step else 0
            yield step

    for number in range(4):
        steps = session(dice)
        outcomes = []
        for way in ("hot", "plain"):
            folder = tmp_path / f"{way}-{number}"
            with monkeypatch.context() as patch:
                patch.setattr(BulkReader, "feed", noting_feed)
                if way == "plain":
                    patch.setattr(BulkConnection, "takes_bulk", False)
                    patch.setattr(sender, "plain_ones", lambda qos, deliveries: [])
                async with running(folder) as broker:
                    keeper = await connected(broker, "keeper")
                    await keeper.subscribe("#")  # and acknowledges nothing, so that nothing is trimmed
                    seen = await play(broker, steps)
                    epoch = epoch_of(folder)
            outcomes.append((seen, at_rest(folder, epoch), stored(folder, "SELECT * FROM incoming")))
        assert outcomes[0] == outcomes[1]
    assert taken > 100
