"""Limits on retained messages: which are refused, which are delivered and not kept."""

from pathlib import Path
from typing import Any

import pytest

from gateway.config.schema import LimitsConfig, StoreConfig
from tests.gateway.steps import away, dropped, limited, received, with_publisher
from tests.gateway.support import connected, running, subscribed
from wire.codec.packets import Puback, Pubrec, Will
from wire.identity import IDENTITY_PROPERTY, RECEIVED_PROPERTY
from wire.properties import USER_PROPERTY


@pytest.mark.parametrize(("qos", "answer"), [(1, Puback), (2, Pubrec)])
async def test_only_so_many_topics_have_a_retained_message(tmp_path: Path, qos: int, answer: Any) -> None:
    async with with_publisher(tmp_path, limits=LimitsConfig(retained_messages=2)) as (broker, publisher):
        for topic in ("a", "b"):
            await publisher.publish(topic, b"1", retain=True)
        publisher.send("c", b"1", qos=qos, retain=True)
        assert (await publisher.expect(answer)).reason_code == 0x97
        await publisher.publish("c", b"1")
        await publisher.publish("c", b"", retain=True)
        await publisher.publish("a", b"2", retain=True)
        await publisher.publish("b", b"", retain=True)
        await publisher.publish("c", b"2", retain=True)
        reader = await subscribed(broker, "reader", "#")
        assert {(packet.topic, packet.payload) for packet in [await reader.receive(), await reader.receive()]} == {
            ("a", b"2"),
            ("c", b"2"),
        }
        await publisher.publish("d", b"marker")
        assert (await reader.receive()).topic == "d"
        assert broker.log.space.retained.topics == 2
    assert dropped(tmp_path) == [("rejected", "gateway", 0, 0, 1)]


async def test_beyond_that_what_cannot_be_refused_is_delivered_and_not_kept(tmp_path: Path) -> None:
    async with running(tmp_path, limits=LimitsConfig(retained_messages=1)) as broker:
        reader, publisher = await connected(broker, "reader"), await connected(broker, "publisher")
        await publisher.publish("a", b"1", retain=True)
        await reader.subscribe("b")
        publisher.send("b", b"1", qos=0, retain=True)
        assert (await reader.receive()).payload == b"1"
        (await connected(broker, "dying", will=Will("b", b"2", 1, True))).cut()
        assert (await reader.receive()).payload == b"2"
        assert broker.log.space.retained.topics == 1
    assert [row[:2] + row[4:] for row in dropped(tmp_path)] == [("rejected", "retained", 1)] * 2


@pytest.mark.parametrize("by", ["limit", "half of the store"])
async def test_retained_messages_have_only_so_many_bytes(tmp_path: Path, by: str) -> None:
    """Whatever way they come: at QoS 0, at QoS 1 and as a will; small ones take another one's place all the same."""
    settings: dict[str, Any] = {"limits": LimitsConfig(retained_bytes=500_000)}
    if by != "limit":
        settings = {"store": StoreConfig(str(tmp_path), max_bytes=1_000_000)}
    async with with_publisher(tmp_path, **settings) as (broker, publisher):
        for number in range(4):
            await publisher.publish(str(number), bytes(100_000), retain=True)
        publisher.send("4", bytes(100_000), qos=0, retain=True)
        publisher.send("5", bytes(100_000), retain=True)
        assert (await publisher.expect(Puback)).reason_code == 0x97
        will = Will("6", bytes(60_000), 1, True)
        (await connected(broker, "dying", will=will)).cut()
        await publisher.publish("0", bytes(50_000), retain=True)
        await publisher.publish("0", bytes(100_000), retain=True)
        assert (broker.log.space.retained.topics, 400_000 < broker.log.space.retained.bytes <= 500_000) == (
            5,
            True,
        )  # with the will
        await publisher.publish("small", b"1", retain=True)
        await publisher.publish("1", bytes(139_500), retain=True)
        await publisher.publish("small", bytes(900), retain=True)
        publisher.send("small", bytes(10_000), retain=True)
        assert (await publisher.expect(Puback)).reason_code == 0x97
        held = broker.log.space.retained.bytes
    async with running(tmp_path, **settings) as broker:
        assert broker.log.space.retained.bytes == held
    assert [row[:2] for row in dropped(tmp_path)].count(("rejected", "retained")) >= 1


async def test_retained_messages_count_with_all_names_and_properties(tmp_path: Path) -> None:
    """Each has a payload of one byte, and the store 700 bytes more for it."""
    long = 250 * "x"
    rules = tmp_path / "rules"
    rules.write_text("allow * publish,subscribe #\nallow * identify *\n")
    limits = LimitsConfig(retained_bytes=65_536)
    async with running(tmp_path / "store", limits=limits, acl=str(rules)) as broker:
        publisher = await connected(broker, 200 * "p")
        codes = []
        for number in range(100):
            names = [(IDENTITY_PROPERTY, f"00000001/{number + 1}/{long}"), (RECEIVED_PROPERTY, f"1/{long}")]
            publisher.send(str(number), b"1", retain=True, properties={USER_PROPERTY: names})
            codes.append((await publisher.expect(Puback)).reason_code)
        assert codes[93] == 0x97, "93 of 704 bytes fit"
        assert 65_536 - 800 < broker.log.space.retained.bytes <= 65_536
        held = broker.log.space.retained.bytes
    async with running(tmp_path / "store", limits=limits, acl=str(rules)) as broker:
        assert broker.log.space.retained.bytes == held


async def test_a_full_store_keeps_no_retained_message_of_qos_0(tmp_path: Path) -> None:
    async with limited(tmp_path, max_messages=1, when_full="reject_incoming") as broker:
        await away(broker, "a")
        publisher, reader = await connected(broker, "publisher"), await connected(broker, "reader")
        await reader.subscribe("r")
        await publisher.publish("a", b"0")
        publisher.send("r", b"1", qos=0, retain=True)
        assert (await reader.receive()).payload == b"1"
        assert await received(broker, 1) == [0]
        assert broker.log.space.retained.topics == 0


async def test_an_older_client_is_left_without_an_answer_to_a_retained_message_too_many(tmp_path: Path) -> None:
    async with running(tmp_path, limits=LimitsConfig(retained_messages=1)) as broker:
        publisher = await connected(broker, "publisher", protocol_level=4, session_expiry_s=0)
        await publisher.publish("a", b"1", retain=True)
        publisher.send("b", b"1", retain=True)
        await publisher.publish("a", b"2", retain=True)
