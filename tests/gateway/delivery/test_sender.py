"""The delivery engine: in order, within the window, at the client's pace and size, fairly shared."""

import asyncio
import resource
from pathlib import Path

import pytest

from gateway.config.schema import LimitsConfig
from gateway.delivery import sender as sender_module
from tests.gateway.steps import publish_numbers, with_publisher
from tests.gateway.store.support import epoch_of
from tests.gateway.support import Client, all_connected, connected, running, subscribed, until, user_property
from wire import properties as p
from wire.codec.packets import MQTT_3_1_1, Publish
from wire.identity import RECEIVE


async def test_a_message_arrives_with_all_that_travels_with_it(tmp_path: Path) -> None:
    async with with_publisher(tmp_path) as (broker, publisher):
        subscriber = await subscribed(broker, "subscriber", "a")
        properties = {
            p.PAYLOAD_FORMAT_INDICATOR: 1,
            p.MESSAGE_EXPIRY_INTERVAL: 1000,
            p.CONTENT_TYPE: "text/plain",
            p.RESPONSE_TOPIC: "answers",
            p.CORRELATION_DATA: b"\x00\x01",
            p.USER_PROPERTY: [("b", "1"), ("a", "2"), ("b", "3")],
        }
        for qos in (0, 1):
            publisher.send("a", b"payload", qos=qos, properties=dict(properties))
            packet = await subscriber.receive()
            assert (packet.payload, packet.qos, packet.retain) == (b"payload", qos, False)
            assert packet.properties == properties


async def test_the_first_gateway_gives_identity_and_provenance_and_the_second_keeps_them(tmp_path: Path) -> None:
    rules = tmp_path / "rules"
    rules.write_text("allow * publish,subscribe #\nallow - identify test-gateway\n")
    async with running(tmp_path / "one") as one, running(tmp_path / "two", acl=str(rules)) as two:
        first = await subscribed(one, "subscriber", "a", wishes=(RECEIVE,))
        publisher = await connected(one, "publisher")
        await publisher.publish("a", b"")
        packet = await first.receive()
        assert user_property(packet, "hf-id") == f"{epoch_of(tmp_path / 'one'):08x}/1/test-gateway"
        second = await subscribed(two, "subscriber", "a", wishes=(RECEIVE,))
        forwarder = await connected(two, "forwarder")
        await forwarder.publish("a", b"", properties=packet.properties)
        assert (await second.receive()).properties == packet.properties


async def test_the_lower_qos_counts(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        at_0, at_1 = await all_connected(broker, "at-0", "at-1")
        assert await at_0.subscribe("a", options=0) == [0]
        at_1.write(bytes.fromhex("820700010000016101"))  # SUBSCRIBE to a at QoS 1
        publisher = await connected(broker, "publisher")
        await until(lambda: broker.sessions.get("at-1").cursor.filters, "subscribed")  # type: ignore[union-attr]
        for qos in (0, 1):
            publisher.send("a", b"", qos=qos)
        assert [(await at_0.receive()).qos for _ in range(2)] == [0, 0]
        assert at_1.protocol.connected


async def test_receive_maximum_of_the_client_bounds_what_is_on_the_way(tmp_path: Path) -> None:
    async with with_publisher(tmp_path) as (broker, publisher):
        subscriber = await subscribed(broker, "subscriber", "a", receive_maximum=3)
        await publish_numbers(publisher, 20)
        held = [await subscriber.expect(Publish) for _ in range(3)]
        await subscriber.subscribe("b")  # its SUBACK is the next that comes
        for number in range(3, 20):
            subscriber.acknowledge(held.pop(0))
            held.append(await subscriber.expect(Publish))
            assert held[-1].payload == b"%d" % number


async def test_a_slow_subscriber_holds_back_no_other_and_memory_stays_flat(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        slow, fast = await all_connected(broker, "slow", "fast")
        for subscriber in (slow, fast):
            await subscriber.subscribe("a")
        publisher = await connected(broker, "publisher")
        payload = b"x" * 100_000
        before_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for _ in range(600):  # 60 MB, of which the slow one reads nothing
            publisher.send("a", payload)
            await fast.receive()
            await publisher.event()
        grown_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kb
        assert grown_kb < 30_000
        for _ in range(600):
            assert (await slow.receive()).payload == payload


async def test_a_message_too_large_for_one_client_is_passed_over_for_it_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(tmp_path) as broker:
        small = await connected(broker, "small", maximum_packet_size=1000)
        large = await connected(broker, "large")
        for subscriber in (small, large):
            await subscriber.subscribe("a")
        publisher = await connected(broker, "publisher")
        for payload in (b"1", b"2" * 2000, b"3"):
            await publisher.publish("a", payload)
        assert [len((await large.receive()).payload) for _ in range(3)] == [1, 2000, 1]
        assert [(await small.receive()).payload for _ in range(2)] == [b"1", b"3"]
        (text,) = [record.getMessage() for record in caplog.records if "passed over" in record.getMessage()]
        assert "'small'" in text
        assert "the peer takes 1000" in text


async def test_no_local_keeps_a_clients_own_messages_from_it(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        client = await subscribed(broker, "client", "a", options=1 | 4)
        other = await connected(broker, "other")
        for qos in (0, 1):
            client.send("a", b"own", qos=qos)
        await client.event()  # its PUBACK
        for qos in (0, 1):
            other.send("a", b"other", qos=qos)
            assert (await client.receive()).payload == b"other"


async def test_qos_0_messages_to_a_slow_client_are_dropped_and_it_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sender_module, "QOS_0_BACKLOG_MAX", 10_000)
    async with with_publisher(tmp_path) as (broker, publisher):
        slow = await subscribed(broker, "slow", "a")
        for _ in range(100):
            publisher.send("a", b"x" * 200_000, qos=0)
            await publisher.publish("b", b"")
        slow.cut()
        await until(lambda: "was slow" in caplog.text, "the number of those dropped")
        assert caplog.text.count("QoS 0 messages to it are dropped") == 1


async def test_qos_0_messages_are_never_stored(tmp_path: Path) -> None:
    async with with_publisher(tmp_path) as (broker, publisher):
        subscriber = await subscribed(broker, "subscriber", "a")
        publisher.send("a", b"at once", qos=0)
        assert (await subscriber.receive()).payload == b"at once"
        assert broker.log.head == 0


async def test_a_group_shares_its_messages_each_once(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        members = [await connected(broker, f"member-{number}") for number in range(3)]
        for member in members:
            assert await member.subscribe("$share/group/a/#") == [1]
        publisher = await connected(broker, "publisher")
        received: list[list[bytes]] = [[], [], []]
        tasks = [asyncio.create_task(collect(member, into)) for member, into in zip(members, received, strict=True)]
        await publish_numbers(publisher, 60, "a/b")
        await until(lambda: sum(len(one) for one in received) == 60, "all of them")
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert sorted(int(payload) for one in received for payload in one) == list(range(60))
        assert all(len(one) >= 10 for one in received)


async def collect(client: Client, into: list[bytes]) -> None:
    while True:
        into.append((await client.receive()).payload)


async def test_what_a_member_did_not_acknowledge_goes_to_another(tmp_path: Path) -> None:
    async with with_publisher(tmp_path) as (broker, publisher):
        first = await subscribed(broker, "first", "$share/group/a")
        await publish_numbers(publisher, 5)
        packets = [await first.expect(Publish) for _ in range(5)]
        first.acknowledge(packets[1])
        await first.publish("b")
        second = await subscribed(broker, "second", "$share/group/a")
        await second.ping()  # and no message before
        first.cut()
        again = [await second.receive() for _ in range(4)]
        assert [packet.payload for packet in again] == [b"0", b"2", b"3", b"4"]
        assert not any(packet.dup for packet in again)


async def test_a_group_keeps_messages_while_its_members_are_away_and_over_a_restart(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        member = await subscribed(broker, "member", "$share/group/a")
        await member.disconnect()
        publisher = await connected(broker, "publisher")
        await publisher.publish("a", b"1")
    async with with_publisher(tmp_path) as (broker, publisher):
        await publisher.publish("a", b"2")
        member = await connected(broker, "member")
        assert [(await member.receive()).payload for _ in range(2)] == [b"1", b"2"]
        assert await member.unsubscribe("$share/group/a") == [0]
        assert broker.log.consumers.names() == ["session/member", "session/publisher"]


async def test_own_and_shared_deliveries_never_use_one_identifier_twice(tmp_path: Path) -> None:
    async with with_publisher(tmp_path) as (broker, publisher):
        client = await subscribed(broker, "client", "a", "$share/group/a")
        for _ in range(30):
            await publisher.publish("a", b"")
        packets = [await client.expect(Publish) for _ in range(60)]
        assert len({packet.packet_identifier for packet in packets}) == 60
        for packet in packets:
            client.acknowledge(packet)
        await publisher.publish("a", b"last")
        assert [(await client.receive()).payload for _ in range(2)] == [b"last", b"last"]


async def test_leaving_a_group_keeps_what_is_on_its_way(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        members = [await connected(broker, name) for name in ("leaver", "stayer")]
        for member in members:
            await member.subscribe("$share/group/a")
        leaver, stayer = members
        publisher = await connected(broker, "publisher")
        await publisher.publish("a", b"1")
        packet = await leaver.expect(Publish)
        await leaver.unsubscribe("$share/group/a")
        leaver.acknowledge(packet)
        await publisher.publish("a", b"2")
        assert (await stayer.receive()).payload == b"2"
        await leaver.expect_no_message()


async def test_what_is_on_its_way_goes_to_another_even_if_the_member_left_and_joined_again(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        members = [await connected(broker, name) for name in ("leaver", "stayer")]
        for member in members:
            await member.subscribe("$share/group/a")
        leaver, stayer = members
        publisher = await connected(broker, "publisher")
        await publisher.publish("a", b"1")
        assert (await leaver.expect(Publish)).payload == b"1"
        await leaver.unsubscribe("$share/group/a")
        await leaver.subscribe("$share/group/a")
        leaver.cut()
        assert (await stayer.receive()).payload == b"1"


@pytest.mark.parametrize(
    ("options", "most"), [({}, 3), ({"protocol_level": MQTT_3_1_1}, 3), ({"receive_maximum": 7}, 7)]
)
async def test_a_client_without_receive_maximum_has_so_many_messages_on_the_way_as_the_limit_says(
    tmp_path: Path, options: dict[str, int], most: int
) -> None:
    async with with_publisher(tmp_path, limits=LimitsConfig(inflight=3)) as (broker, publisher):
        client = await subscribed(broker, "client", "a", **options)
        await publish_numbers(publisher, 10)
        held = [await client.expect(Publish) for _ in range(most)]
        await client.subscribe("b")  # its SUBACK is the next that comes
        for packet in held:
            client.acknowledge(packet)
        rest = [(await client.receive()).payload for _ in range(10 - most)]
        assert rest == [b"%d" % number for number in range(most, 10)]
