"""QoS 2 to clients: each message is sent until it is received, and no step is taken before it is durable."""

import asyncio
import contextlib
import sqlite3
from pathlib import Path

from tests.gateway.store.support import messages_in, stored
from tests.gateway.support import Client, GatewayProcess, running, tcp_port, until
from tests.gateway.test_custody import commits_held_up
from wire.packets import Disconnect, Publish, Pubrel


async def test_no_publish_and_no_pubrel_leaves_before_its_state_is_durable(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        subscriber = await Client("subscriber").connect(tcp_port(broker))
        await subscriber.subscribe("a", options=2)
        publisher = await Client("publisher").connect(tcp_port(broker))
        await publisher.publish_once("a", b"1")
        packet = await subscriber.expect(Publish)
        assert stored(tmp_path, "SELECT session, packet_identifier, state FROM flow") == [
            ("subscriber", packet.packet_identifier, 0)
        ]
        with commits_held_up(tmp_path):
            subscriber.acknowledge(packet)
            assert await subscriber.silent()
        await subscriber.expect(Pubrel)
        assert stored(tmp_path, "SELECT state FROM flow") == [(1,)]


async def test_what_was_released_before_a_crash_is_released_again_and_not_sent_again(tmp_path: Path) -> None:
    gateway = GatewayProcess(tmp_path)
    await gateway.start()
    subscriber = await Client("subscriber").connect(gateway.port)
    await subscriber.subscribe("a", options=2)
    publisher = await Client("publisher").connect(gateway.port)
    for payload in (b"1", b"2", b"3"):
        await publisher.publish_once("a", payload)
    first, second, _ = [await subscriber.expect(Publish) for _ in range(3)]
    for packet in (first, second):
        subscriber.acknowledge(packet)
        await subscriber.expect(Pubrel)
    subscriber.complete(first)
    await gateway.kill()
    await gateway.start()
    subscriber = await Client("subscriber").connect(gateway.port)
    subscriber.protocol.resume([first.packet_identifier, second.packet_identifier])
    events = await rest_of(subscriber)
    released = {event.packet_identifier for event in events if isinstance(event, Pubrel)}
    assert second.packet_identifier in released
    (again,) = [event for event in events if isinstance(event, Publish)]
    assert (again.payload, again.dup) == (b"3", True)


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
    async with running(tmp_path) as broker:
        first = await Client("first").connect(tcp_port(broker))
        await first.subscribe("$share/group/a", options=2)
        publisher = await Client("publisher").connect(tcp_port(broker))
        await publisher.publish_once("a", b"1")
        packet = await first.expect(Publish)
        second = await Client("second").connect(tcp_port(broker))
        await second.subscribe("$share/group/a", options=2)
        first.cut()
        assert await second.silent()
    async with running(tmp_path) as broker:
        second = await Client("second").connect(tcp_port(broker))
        assert await second.silent()
        first = await Client("first").connect(tcp_port(broker))
        again = await first.receive()
        assert (again.payload, again.packet_identifier, again.dup) == (b"1", packet.packet_identifier, True)


async def test_what_was_begun_for_a_member_that_leaves_its_group_still_comes(tmp_path: Path) -> None:
    groups = ("$share/one/a", "$share/two/b")
    async with running(tmp_path) as broker:
        member = await Client("member").connect(tcp_port(broker))
        await member.subscribe(*groups, options=2)
        await member.disconnect()
        publisher = await Client("publisher").connect(tcp_port(broker))
        for topic in ("a", "a", "b", "b"):
            await publisher.publish_once(topic, topic.encode())
        member = await Client("member", receive_maximum=2).connect(tcp_port(broker))
        first = [await member.expect(Publish), await member.expect(Publish)]
        session = broker.sessions.get("member")
        assert session is not None
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
        await until(lambda: broker.log.needed_count == 0, "nobody needs them")


async def test_a_refused_message_does_not_come_again(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        subscriber = await Client("subscriber").connect(tcp_port(broker))
        await subscriber.subscribe("a", options=2)
        publisher = await Client("publisher").connect(tcp_port(broker))
        await publisher.publish_once("a", b"1")
        packet = await subscriber.expect(Publish)
        assert packet.packet_identifier is not None
        subscriber.protocol.pubrec(packet.packet_identifier, 0x83)
        subscriber.flush()
        await publisher.publish_once("a", b"2")
        assert (await subscriber.receive()).payload == b"2"
        subscriber.cut()
        subscriber = await Client("subscriber").connect(tcp_port(broker))
        assert await subscriber.silent()


async def test_the_log_keeps_what_a_client_has_not_received(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        subscriber = await Client("subscriber").connect(tcp_port(broker))
        await subscriber.subscribe("a", options=2)
        publisher = await Client("publisher").connect(tcp_port(broker))
        await publisher.publish_once("a", b"1")
        await subscriber.expect(Publish)
        for _ in range(5):
            await publisher.publish_once("b", b"")
        subscriber.cut()
    assert messages_in(tmp_path)[0][0] == 1
    async with running(tmp_path) as broker:
        subscriber = await Client("subscriber").connect(tcp_port(broker))
        assert (await subscriber.receive()).payload == b"1"
        await subscriber.publish("b")  # what it sent before is handled
    assert messages_in(tmp_path)[0][0] != 1


async def test_what_cannot_be_noted_is_not_sent_and_comes_when_it_can(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        subscriber = await Client("subscriber").connect(tcp_port(broker))
        await subscriber.subscribe("a", options=2)
        with contextlib.closing(sqlite3.connect(tmp_path / "messages.sqlite")) as other:
            other.execute("CREATE TRIGGER broken BEFORE INSERT ON flow BEGIN SELECT RAISE(ABORT, 'broken'); END")
            other.commit()
            publisher = await Client("publisher").connect(tcp_port(broker))
            for payload in (b"1", b"2"):
                publisher.send("a", payload, qos=1)
                publisher.send("a", payload, qos=2)
            assert (await subscriber.expect(Disconnect)).reason_code == 0x83
            other.execute("DROP TRIGGER broken")
            other.commit()
        subscriber = await Client("subscriber", receive_maximum=1).connect(tcp_port(broker))
        received = set()
        publisher = await Client("publisher", session_expiry_s=0, clean_start=True).connect(tcp_port(broker))
        await publisher.publish_once("a", b"3")
        while b"3" not in received:
            received.add((await subscriber.receive()).payload)
    assert stored(tmp_path, "SELECT * FROM flow") == []


async def test_many_messages_are_noted_and_released_together_and_each_arrives_once(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        subscriber = await Client("subscriber").connect(tcp_port(broker))
        await subscriber.subscribe("a", options=2)
        publisher = await Client("publisher").connect(tcp_port(broker))
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
    async with running(tmp_path) as broker:
        subscriber = await Client("subscriber", session_expiry_s=0).connect(tcp_port(broker))
        await subscriber.subscribe("a", options=2)
        publisher = await Client("publisher").connect(tcp_port(broker))
        publisher.send("a", b"1", qos=2)
        packet = await subscriber.expect(Publish)
        with commits_held_up(tmp_path):  # nothing has to be written before it is released
            subscriber.acknowledge(packet)
            await subscriber.expect(Pubrel)
            subscriber.complete(packet)
        assert stored(tmp_path, "SELECT * FROM flow") == []
