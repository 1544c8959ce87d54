"""QoS 2 to clients: each message is sent until it is received, and no step is taken before it is durable."""

import asyncio
import contextlib
import sqlite3
from pathlib import Path

import pytest

from tests.gateway.connection.test_custody import commits_held_up
from tests.gateway.steps import session_of, started, with_publisher
from tests.gateway.store.support import messages_in, stored
from tests.gateway.support import Client, all_connected, connected, joined, running, subscribed, until
from wire.codec.packets import Disconnect, Publish, Pubrel


async def test_no_publish_and_no_pubrel_leaves_before_its_state_is_durable(tmp_path: Path) -> None:
    async with with_publisher(tmp_path) as (broker, publisher):
        subscriber = await subscribed(broker, "subscriber", "a", options=2)
        await publisher.publish_once("a", b"1")
        packet = await subscriber.expect(Publish)
        assert stored(tmp_path, "SELECT session, packet_identifier, state FROM flow") == [
            ("subscriber", packet.packet_identifier, 0)
        ]
        with commits_held_up(tmp_path):
            subscriber.acknowledge(packet)
            await subscriber.ping()  # and no PUBREL before
        await subscriber.expect(Pubrel)
        assert stored(tmp_path, "SELECT state FROM flow") == [(1,)]


async def test_what_was_released_before_a_crash_is_released_again_and_not_sent_again(tmp_path: Path) -> None:
    gateway = await started(tmp_path)
    subscriber = await joined(gateway.port, "subscriber", "a", options=2)
    publisher = await Client("publisher").connect(gateway.port)
    for payload in (b"1", b"2", b"3"):
        await publisher.publish_once("a", payload)
    first, second, _ = [await subscriber.expect(Publish) for _ in range(3)]
    for packet in (first, second):
        subscriber.acknowledge(packet)
        await subscriber.expect(Pubrel)
    subscriber.complete(first)
    await gateway.restart()
    subscriber = await Client("subscriber").connect(gateway.port)
    subscriber.protocol.resume([first.packet_identifier, second.packet_identifier])
    events = await rest_of(subscriber)
    released = {event.packet_identifier for event in events if isinstance(event, Pubrel)}
    assert second.packet_identifier in released
    (again,) = [event for event in events if isinstance(event, Publish)]
    assert (again.payload, again.dup) == (b"3", True)


async def test_packet_identifiers_go_on_behind_those_before_a_restart(tmp_path: Path) -> None:
    """libmosquitto hands out a message that it has kept under an identifier in the place of a new one."""
    gateway = await started(tmp_path)
    subscriber = await joined(gateway.port, "subscriber", "a", options=2)
    publisher = await Client("publisher").connect(gateway.port)
    used = []
    for turn in range(3):
        for number in range(3):
            await publisher.publish_once("a", b"%d" % number)
            used.append((await subscriber.receive()).packet_identifier)
        await publisher.publish_once("b")
        await until(lambda: not stored(tmp_path, "SELECT * FROM flow WHERE state < 2"), "all flows are complete")
        await (gateway.kill if turn % 2 else gateway.stop)()
        await gateway.start()
        subscriber = await Client("subscriber").connect(gateway.port)
        publisher = await Client("publisher").connect(gateway.port)
    assert len(set(used)) == len(used)


async def rest_of(client: Client) -> list[object]:
    events: list[object] = []
    try:
        async with asyncio.timeout(0.3):
            while True:
                events.append(await client.event())
    except TimeoutError:
        return events


async def test_a_message_begun_belongs_to_its_member_of_the_group(tmp_path: Path) -> None:
    """[MQTT-4.8.2-4, MQTT-4.8.2-5]"""
    async with with_publisher(tmp_path) as (broker, publisher):
        first = await subscribed(broker, "first", "$share/group/a", options=2)
        await publisher.publish_once("a", b"1")
        packet = await first.expect(Publish)
        second = await subscribed(broker, "second", "$share/group/a", options=2)
        first.cut()
        await publisher.publish_once("a", b"2")
        assert (await second.receive()).payload == b"2"
    async with running(tmp_path) as broker:
        second, publisher = await all_connected(broker, "second", "publisher")
        await publisher.publish_once("a", b"3")
        assert (await second.receive()).payload == b"3"
        first = await connected(broker, "first")
        again = await first.receive()
        assert (again.payload, again.packet_identifier, again.dup) == (b"1", packet.packet_identifier, True)


async def test_what_was_begun_for_a_member_that_leaves_its_group_still_comes(tmp_path: Path) -> None:
    groups = ("$share/one/a", "$share/two/b")
    async with running(tmp_path) as broker:
        member = await subscribed(broker, "member", *groups, options=2)
        await member.disconnect()
        publisher = await connected(broker, "publisher")
        for topic in ("a", "a", "b", "b"):
            await publisher.publish_once(topic, topic.encode())
        member = await connected(broker, "member", receive_maximum=2)
        first = [await member.expect(Publish), await member.expect(Publish)]
        session = session_of(broker, "member")
        await until(lambda: len(session.outgoing.flows) == 4, "all of them have begun")
        await member.unsubscribe(*groups)
        arrived = {packet.packet_identifier: packet for packet in first}
        for packet in first:
            member.acknowledge(packet)
        for _ in range(6):  # two PUBLISHes and four PUBRELs
            match await member.event():
                case Publish() as packet:
                    arrived[packet.packet_identifier] = packet
                    member.acknowledge(packet)
                case Pubrel() as pubrel:
                    member.complete(arrived[pubrel.packet_identifier])
        assert sorted(packet.payload for packet in arrived.values()) == [b"a", b"a", b"b", b"b"]
        await publisher.publish("c")
        await until(lambda: broker.log.space.needed_count == 0, "no consumer needs them")


async def test_a_refused_message_does_not_come_again(tmp_path: Path) -> None:
    async with with_publisher(tmp_path) as (broker, publisher):
        subscriber = await subscribed(broker, "subscriber", "a", options=2)
        await publisher.publish_once("a", b"1")
        packet = await subscriber.expect(Publish)
        assert packet.packet_identifier is not None
        subscriber.protocol.pubrec(packet.packet_identifier, 0x83)
        subscriber.flush()
        await publisher.publish_once("a", b"2")
        assert (await subscriber.receive()).payload == b"2"
        subscriber.cut()
        subscriber = await connected(broker, "subscriber")
        await subscriber.expect_no_message()


async def test_the_log_keeps_what_a_client_has_not_received(tmp_path: Path) -> None:
    async with with_publisher(tmp_path) as (broker, publisher):
        subscriber = await subscribed(broker, "subscriber", "a", options=2)
        await publisher.publish_once("a", b"1")
        await subscriber.expect(Publish)
        for _ in range(5):
            await publisher.publish_once("b", b"")
        subscriber.cut()
    assert messages_in(tmp_path)[0][0] == 1
    async with running(tmp_path) as broker:
        subscriber = await connected(broker, "subscriber")
        assert (await subscriber.receive()).payload == b"1"
        await subscriber.publish("b")  # what it sent before is handled
    assert messages_in(tmp_path)[0][0] != 1


async def test_what_cannot_be_noted_is_not_sent_and_comes_when_it_can(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        subscriber = await subscribed(broker, "subscriber", "a", options=2)
        with contextlib.closing(sqlite3.connect(tmp_path / "messages.sqlite")) as other:
            other.execute("CREATE TRIGGER broken BEFORE INSERT ON flow BEGIN SELECT RAISE(ABORT, 'broken'); END")
            other.commit()
            publisher = await connected(broker, "publisher")
            for payload in (b"1", b"2"):
                publisher.send("a", payload, qos=1)
                publisher.send("a", payload, qos=2)
            assert (await subscriber.expect(Disconnect)).reason_code == 0x83
            other.execute("DROP TRIGGER broken")
            other.commit()
        subscriber = await connected(broker, "subscriber", receive_maximum=1)
        received = set()
        publisher = await connected(broker, "publisher", session_expiry_s=0, clean_start=True)
        await publisher.publish_once("a", b"3")
        while b"3" not in received:
            received.add((await subscriber.receive()).payload)
    assert stored(tmp_path, "SELECT * FROM flow WHERE state < 2") == []


async def test_many_messages_are_noted_and_released_together_and_each_arrives_once(tmp_path: Path) -> None:
    async with with_publisher(tmp_path) as (broker, publisher):
        subscriber = await subscribed(broker, "subscriber", "a", options=2)
        for number in range(100):
            publisher.protocol.publish("a", b"%d" % number, qos=2)
        publisher.flush()
        packets = [await subscriber.expect(Publish) for _ in range(100)]
        assert [packet.payload for packet in packets] == [b"%d" % number for number in range(100)]
        identifiers = [packet.packet_identifier for packet in packets]
        assert len(stored(tmp_path, "SELECT * FROM flow WHERE session = 'subscriber' AND state = 0")) == 100
        for identifier in identifiers:
            subscriber.protocol.pubrec(identifier or 0)
        subscriber.flush()
        assert [(await subscriber.expect(Pubrel)).packet_identifier for _ in identifiers] == identifiers
        assert len(stored(tmp_path, "SELECT * FROM flow WHERE session = 'subscriber' AND state = 1")) == 100
        for identifier in identifiers:
            subscriber.protocol.pubcomp(identifier or 0)
        subscriber.flush()
        await until(lambda: not stored(tmp_path, "SELECT * FROM flow WHERE state < 2"), "the flows end")


async def test_what_ends_with_the_connection_is_not_noted(tmp_path: Path) -> None:
    async with with_publisher(tmp_path) as (broker, publisher):
        subscriber = await subscribed(broker, "subscriber", "a", options=2, session_expiry_s=0)
        publisher.send("a", b"1", qos=2)
        packet = await subscriber.expect(Publish)
        with commits_held_up(tmp_path):  # nothing has to be written before it is released
            subscriber.acknowledge(packet)
            await subscriber.expect(Pubrel)
            subscriber.complete(packet)
        assert stored(tmp_path, "SELECT * FROM flow") == []


@pytest.mark.parametrize("ends", ["the connection is cut", "the gateway is killed"])
async def test_messages_of_both_qos_are_sent_again_in_their_order(ends: str, tmp_path: Path) -> None:
    """[MQTT-4.6.0-1]"""
    gateway = await started(tmp_path)
    subscriber = await joined(gateway.port, "subscriber", "a", options=2)
    publisher = await Client("publisher").connect(gateway.port)
    sent = [str(number).encode() for number in range(1, 9)]
    for index, payload in enumerate(sent):
        await (publisher.publish_once if index % 2 else publisher.publish)("a", payload)
    first = [await subscriber.expect(Publish) for _ in sent]
    assert [packet.payload for packet in first] == sent
    if ends == "the gateway is killed":
        await gateway.restart()
        publisher = await Client("publisher").connect(gateway.port)
    else:
        subscriber.cut()
    await publisher.publish("a", b"new")
    subscriber = await Client("subscriber").connect(gateway.port)
    again = [await subscriber.expect(Publish) for _ in [*sent, b"new"]]
    assert [packet.payload for packet in again] == [*sent, b"new"]
    assert [packet.packet_identifier for packet in again[:-1]] == [packet.packet_identifier for packet in first]
    await gateway.kill()
