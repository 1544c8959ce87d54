"""What a session has in a stream: durable subscriptions, QoS 2, retained messages, share groups, wills."""

from pathlib import Path

import pytest

from gateway.config.streams import StreamConfig
from tests.gateway.store.support import stored
from tests.gateway.streams.support import IMPLIED, PLANT, WAYS, Way, client, listeners, publish, subscribe
from tests.gateway.support import Client, running, until
from wire import properties as p
from wire.codec.connect import Will
from wire.codec.packets import Publish, Pubrec, Pubrel

IN_PLANT = {name: way for name, way in (WAYS | IMPLIED).items() if way.stream == "plant"}
PREFIX = WAYS["writes a prefix"]
DEFAULT = WAYS["writes a topic"]
DURABLE = {"clean_start": False, "session_expiry_s": 1000}


@pytest.mark.parametrize("kind", IN_PLANT)
@pytest.mark.parametrize("qos", [1, 2])
async def test_what_comes_while_a_client_is_away_waits_in_the_stream_over_a_restart(
    tmp_path: Path, kind: str, qos: int
) -> None:
    way = IN_PLANT[kind]
    async with running(tmp_path, *listeners(), stream=[PLANT]) as broker:
        reader = await client(broker, "reader", way, **DURABLE)
        assert await subscribe(reader, way, qos=qos) == [qos]
        assert await subscribe(reader, DEFAULT, "own", qos=qos) == [qos]
        await reader.disconnect()
        publisher = await client(broker, "publisher", way)
        for number in range(3):
            await publish(publisher, way, b"%d" % number)
    async with running(tmp_path, *listeners(), stream=[PLANT]) as broker:
        publisher = await client(broker, "publisher", way)
        await publish(publisher, way, b"3")
        reader = await client(broker, "reader", way, **DURABLE)
        assert reader.connack.session_present
        packets = [await reader.receive() for _ in range(4)]
        assert [(packet.topic, packet.payload) for packet in packets] == [(way.topic, b"%d" % n) for n in range(4)]
        await reader.expect_no_message()


async def test_a_message_of_a_stream_is_in_its_store_alone(tmp_path: Path) -> None:
    plant = tmp_path / "a folder"
    async with running(tmp_path / "store", stream=[StreamConfig("plant", str(plant))]) as broker:
        reader = await client(broker, "reader", PREFIX, **DURABLE)
        await subscribe(reader, PREFIX)
        await reader.disconnect()
        publisher = await client(broker, "publisher", PREFIX)
        await publish(publisher, PREFIX, b"in the stream")
    assert len(stored(plant, "SELECT body FROM message_group")) == 1
    assert stored(tmp_path / "store", "SELECT body FROM message_group") == []


async def test_a_client_gets_messages_of_all_its_streams_under_packet_identifiers_that_do_not_collide(
    tmp_path: Path,
) -> None:
    names = ["plant", "office"]
    ways = [DEFAULT, *(Way(name, f"$SYS/STREAM/{name}/t") for name in names)]
    async with running(tmp_path, stream=[StreamConfig(name) for name in names]) as broker:
        reader = await client(broker, "reader", DEFAULT, receive_maximum=100)
        for way in ways:
            await subscribe(reader, way, qos=2)
        publisher = await client(broker, "publisher", DEFAULT)
        for number in range(30):
            for way in ways:
                await publish(publisher, way, b"%d" % number)
                await publisher.publish_once(way.topic, b"%d" % number)
        waiting: list[Publish] = []
        found: list[tuple[str, bytes]] = []
        while len(found) < 180:
            packet = await reader.event()
            if isinstance(packet, Publish):
                waiting.append(packet)
                found.append((packet.topic, packet.payload))
                if len(waiting) == 20:  # all of them are in flight at once
                    assert len({one.packet_identifier for one in waiting}) == 20
                    for one in waiting:
                        reader.acknowledge(one)
                    waiting.clear()
            elif isinstance(packet, Pubrel):
                reader.protocol.pubcomp(packet.packet_identifier)
                reader.flush()
        for way in ways:
            assert [payload for topic, payload in found if topic == way.topic] == [
                b"%d" % number for number in range(30) for _ in range(2)
            ]


async def test_a_flow_of_qos_2_goes_on_in_its_stream_after_a_restart(tmp_path: Path) -> None:
    async with running(tmp_path, stream=[PLANT]) as broker:
        reader = await client(broker, "reader", PREFIX, **DURABLE)
        await subscribe(reader, PREFIX, qos=2)
        publisher = await client(broker, "publisher", PREFIX, **DURABLE)
        identifier = publisher.send(PREFIX.topic, b"once", qos=2)
        assert identifier is not None
        await publisher.expect(Pubrec)
        first = await reader.expect(Publish)
    async with running(tmp_path, stream=[PLANT]) as broker:
        publisher = await client(broker, "publisher", PREFIX, **DURABLE)
        publisher.write(b"\x62\x02" + identifier.to_bytes(2, "big"))
        assert await publisher.read(4) == b"\x70\x02" + identifier.to_bytes(2, "big")
        reader = await client(broker, "reader", PREFIX, **DURABLE)
        again = await reader.receive()
        assert (again.packet_identifier, again.dup, again.payload) == (first.packet_identifier, True, b"once")
        await reader.expect_no_message()


async def test_a_session_that_is_made_anew_has_nothing_in_any_stream(tmp_path: Path) -> None:
    async with running(tmp_path, stream=[PLANT]) as broker:
        reader = await client(broker, "reader", PREFIX, **DURABLE)
        await subscribe(reader, PREFIX)
        await reader.disconnect()
        reader = await client(broker, "reader", PREFIX, clean_start=True)
        publisher = await client(broker, "publisher", PREFIX)
        await publish(publisher, PREFIX, b"message")
        await reader.expect_no_message()


async def test_members_of_a_share_group_in_a_stream_take_turns(tmp_path: Path) -> None:
    async with running(tmp_path, stream=[PLANT]) as broker:
        members = [await client(broker, name, PREFIX) for name in ("one", "two")]
        for member in members:
            own = f"$SYS/STREAM/plant/{member.protocol.client_id}"
            assert await subscribe(member, PREFIX, f"$share/group/{PREFIX.topic}", own) == [1, 1]
        publisher = await client(broker, "publisher", PREFIX)
        for number in range(20):
            await publish(publisher, PREFIX, b"%d" % number)
        session_payloads = []
        for member in members:
            await publisher.publish(f"$SYS/STREAM/plant/{member.protocol.client_id}", b"marker")
            while (packet := await member.receive()).payload != b"marker":
                assert packet.topic == PREFIX.topic
                session_payloads.append(packet.payload)
        assert sorted(session_payloads, key=int) == [b"%d" % number for number in range(20)]


@pytest.mark.parametrize("kind", IN_PLANT)
async def test_a_will_is_published_in_its_stream(tmp_path: Path, kind: str) -> None:
    way = IN_PLANT[kind]
    named = {p.USER_PROPERTY: [("hf-stream", way.named)]} if way.named else {}
    async with running(tmp_path, *listeners(), stream=[PLANT]) as broker:
        reader, other = await client(broker, "reader", way), await client(broker, "other", DEFAULT)
        await subscribe(reader, way)
        await subscribe(other, DEFAULT)
        dying = await client(broker, "dying", way, will=Will(way.topic, b"gone", 1, properties=named))
        dying.cut()
        packet = await reader.receive()
        assert (packet.topic, packet.payload) == (way.topic, b"gone")
        await other.expect_no_message()


async def test_a_client_that_says_good_bye_leaves_no_will_in_a_stream(tmp_path: Path) -> None:
    async with running(tmp_path, stream=[PLANT]) as broker:
        reader = await client(broker, "reader", PREFIX)
        await subscribe(reader, PREFIX)
        polite = await client(broker, "polite", PREFIX, will=Will(PREFIX.topic, b"gone", 1))
        await polite.disconnect()
        await until(lambda: broker.overview.state().connections == 1, "it has gone")
        await publish(await client(broker, "publisher", PREFIX), PREFIX, b"marker")
        assert (await reader.receive()).payload == b"marker"


async def test_clients_of_two_listeners_may_have_the_same_client_identifier(tmp_path: Path) -> None:
    async with running(tmp_path, *listeners(), stream=[PLANT]) as broker:
        here, there = await client(broker, "sensor", Way("")), await client(broker, "sensor", Way("plant", listener=1))
        await subscribe(here, PREFIX)
        await subscribe(there, Way("plant"))
        await publish(await client(broker, "publisher", PREFIX), PREFIX, b"message")
        assert [(await one.receive()).topic for one in (here, there)] == [PREFIX.topic, "t"]


async def test_a_request_in_a_stream_is_answered_there(tmp_path: Path) -> None:
    """The one that answers has the stream implied for it, and the one that asks writes the prefix."""
    async with running(tmp_path, *listeners(), stream=[PLANT]) as broker:
        asking, answering = await client(broker, "asking", PREFIX), await client(broker, "a", Way("", listener=1))
        await subscribe(answering, Way("plant"), "question")
        await subscribe(asking, PREFIX, "$SYS/STREAM/plant/answer", "home")
        for response in ("$SYS/STREAM/plant/answer", "home"):
            await asking.publish("$SYS/STREAM/plant/question", b"?", properties={p.RESPONSE_TOPIC: response})
            question: Publish = await answering.receive()
            await answering.publish(question.properties[p.RESPONSE_TOPIC], b"!")
            assert (await asking.receive()).topic == response


async def test_a_wildcard_at_the_first_level_takes_nothing_of_a_stream(tmp_path: Path) -> None:
    async with running(tmp_path, *listeners(), stream=[PLANT]) as broker:
        reader, inside = await client(broker, "reader", DEFAULT), await client(broker, "inside", Way("", listener=1))
        await subscribe(reader, DEFAULT, "#", "+/+/+/+", "$SYS/STREAM")
        await subscribe(inside, Way("plant"), "#")
        publisher = await client(broker, "publisher", PREFIX)
        await publish(publisher, PREFIX, b"in the stream")
        await publish(publisher, DEFAULT, b"in the default stream")
        assert (await reader.receive()).payload == b"in the default stream"
        assert (await inside.receive()).payload == b"in the stream"


async def test_a_client_that_comes_back_before_its_old_connection_ended_has_its_streams(tmp_path: Path) -> None:
    async with running(tmp_path, stream=[PLANT]) as broker:
        old = await client(broker, "reader", PREFIX, **DURABLE)
        await subscribe(old, PREFIX)
        new: Client = await client(broker, "reader", PREFIX, **DURABLE)
        await publish(await client(broker, "publisher", PREFIX), PREFIX, b"message")
        assert (await new.receive()).payload == b"message"
