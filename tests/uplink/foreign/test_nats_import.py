"""What a route imports from NATS, against a real server."""

import asyncio
import shutil
from pathlib import Path
from typing import Any

import pytest

from gateway.config.schema import LimitsConfig, StoreConfig
from gateway.store import quarantine
from tests.gateway.store.support import messages_in
from tests.gateway.support import connected as at_gateway
from tests.gateway.support import subscribed, user_property
from tests.uplink.foreign.support import connected, counted, drained, nats_config, nats_server, routed
from tests.uplink.support import append, until
from uplink.foreign.route import ForeignRoute
from wire.codec.packets import Publish, Suback
from wire.identity import IDENTITY_PROPERTY, RECEIVE
from wire.properties import CONTENT_TYPE, USER_PROPERTY


def importing(*incoming: dict[str, Any], **keys: Any) -> dict[str, Any]:
    return {"filters": [], "incoming": list(incoming), **keys}


FROM_S = {"topic": "commands/#", "stream": "S"}


async def received(route: ForeignRoute, count: int) -> None:
    await until(lambda: route.queue.state.received_messages >= count)


async def settled(client: Any, stream: str = "S") -> None:
    """Returns when the consumer of the route has acknowledged everything in the stream."""
    jetstream = client.jetstream()
    async with asyncio.timeout(30):
        while True:
            found = await jetstream.consumers_info(stream)
            if found and not any(one.num_pending or one.num_ack_pending for one in found):
                return
            await asyncio.sleep(0.02)


async def unacknowledged(client: Any) -> int:
    """How many messages of the stream its consumers have not acknowledged."""
    found = await client.jetstream().consumers_info("S")
    return sum(one.num_ack_pending + one.num_pending for one in found)


async def test_messages_of_a_stream_are_stored_with_the_streams_identity_and_then_acknowledged(tmp_path: Path) -> None:
    with nats_server(tmp_path) as server:
        config = nats_config(server, **importing(FROM_S))
        async with connected(server) as client:
            jetstream = client.jetstream()
            await jetstream.add_stream(name="S", subjects=["commands.>", "commands"])
            for number in range(1, 4):
                await jetstream.publish("commands.a/b", b"%d" % number)
            async with routed(tmp_path / "gateway", config) as (broker, route):
                reader = await at_gateway(broker, "reader", wishes=(RECEIVE,))
                reader.protocol.subscribe([("#", 1)])
                reader.flush()
                while not isinstance(event := await reader.event(), Suback):
                    assert isinstance(event, Publish)  # the first messages may come before the SUBACK
                    reader.acknowledge(event)
                await jetstream.publish("commands", b"4")
                packets = [await reader.receive()]
                while packets[-1].payload != b"4":
                    packets.append(await reader.receive())
                await received(route, 4)
                await settled(client)
                stored = [message for _, message in messages_in(tmp_path / "gateway")]
        assert sorted(message.payload for message in stored) == [b"1", b"2", b"3", b"4"]
        assert {message.topic for message in stored} == {"commands/a.b", "commands"}
        epochs = {message.epoch for message in stored}
        assert len(epochs) == 1 and {(message.origin, message.seq) for message in stored} == {
            ("nats.S", number) for number in range(1, 5)
        }
        assert str(user_property(packets[-1], IDENTITY_PROPERTY)).endswith("/4/nats.S")


async def test_a_message_that_comes_again_is_stored_once(tmp_path: Path) -> None:
    with nats_server(tmp_path) as server:
        async with connected(server) as client:
            jetstream = client.jetstream()
            await jetstream.add_stream(name="S", subjects=["commands.>"])
            await jetstream.publish("commands.a", b"1")
            for name in ("one", "two"):  # another route has another consumer, which hands out everything anew
                config = nats_config(server, name=name, **importing(FROM_S))
                async with routed(tmp_path / "gateway", config) as (broker, _):
                    await settled(client)
                    await until(lambda: bool(broker.counters.messages_duplicate or broker.counters.messages_stored))
                    if name == "two":
                        assert broker.counters.messages_duplicate == 1
        assert len(messages_in(tmp_path / "gateway")) == 1


def ruled(folder: Path, topics: str = "commands/#") -> dict[str, Any]:
    """Settings with access rules that let `central` publish to these topics, and bring no identities."""
    (folder / "rules").write_text(f"allow central publish {topics}\n")
    return {"acl": str(folder / "rules")}


async def test_the_identities_of_a_stream_need_no_access_rule_and_no_message_brings_one_of_these(
    tmp_path: Path,
) -> None:
    with nats_server(tmp_path) as server:
        async with connected(server) as client:
            jetstream = client.jetstream()
            await jetstream.add_stream(name="S", subjects=["commands.>"])
            await jetstream.publish("commands.a", b"1")
            for name in ("one", "two"):
                config = nats_config(server, name=name, local_user="central", **importing(FROM_S))
                async with routed(tmp_path / "gateway", config, **ruled(tmp_path)) as (broker, _):
                    await settled(client)
                    await until(lambda: bool(broker.counters.messages_duplicate or broker.counters.messages_stored))
                    if name == "two":
                        assert broker.counters.messages_duplicate == 1
                        ((_, stored),) = messages_in(tmp_path / "gateway")
                        for identity in (f"{stored.epoch:08x}/9/nats.S", "00000001/9/pump"):
                            await jetstream.publish("commands.a", b"2", headers={"Nats-Msg-Id": identity})
                        await until(lambda: broker.counters.messages_stored == 2)
        stored_ones = [message for _, message in messages_in(tmp_path / "gateway")]
        assert [(one.origin, one.seq) for one in stored_ones[:2]] == [("nats.S", 1), ("nats.S", 2)]
        assert stored_ones[2].origin not in ("nats.S", "pump")


async def test_a_message_of_another_gateway_keeps_its_identity_and_one_of_our_own_does_not_come_back(
    tmp_path: Path,
) -> None:
    with nats_server(tmp_path) as server:
        async with connected(server) as client:
            await client.jetstream().add_stream(name="S", subjects=["telemetry.>"])
            both = {"incoming": [{"topic": "telemetry/#", "stream": "S"}]}
            async with routed(tmp_path / "a", nats_config(server, **both)) as (first, route):
                await append(first.log, range(1, 4))
                await drained(route)
                config = nats_config(server, name="other", **importing(*both["incoming"]))
                async with routed(tmp_path / "b", config) as (_, other):
                    await received(other, 3)
                await until(lambda: first.counters.messages_returned == 3)
                assert first.counters.messages_stored == 3
            assert await counted(client, "S") == 3
        identities = {(one.origin, one.epoch, one.seq) for _, one in messages_in(tmp_path / "b")}
        assert identities == {("a", 7, number) for number in range(1, 4)}


@pytest.mark.parametrize("allowed", ["#", "commands/#"])
async def test_a_message_of_our_own_that_comes_back_is_neither_stored_nor_set_aside_where_access_rules_hold(
    tmp_path: Path, allowed: str
) -> None:
    with nats_server(tmp_path) as server:
        async with connected(server) as client:
            await client.jetstream().add_stream(name="S", subjects=["telemetry.>"])
            both = nats_config(server, incoming=[{"topic": "telemetry/#", "stream": "S"}], local_user="central")
            async with routed(tmp_path / "a", both, **ruled(tmp_path, allowed)) as (broker, _):
                await append(broker.log, range(1, 4))
                await until(lambda: broker.counters.messages_returned == 3)
                await settled(client)
                assert (broker.counters.messages_stored, broker.counters.identities_replaced) == (3, 0)
            assert await counted(client, "S") == 3
        assert quarantine.notes_in(tmp_path / "a") == []


async def test_what_is_no_topic_goes_to_the_quarantine_with_its_reason_and_the_rest_goes_on(tmp_path: Path) -> None:
    with nats_server(tmp_path) as server:
        async with connected(server) as client:
            jetstream = client.jetstream()
            await jetstream.add_stream(name="S", subjects=["commands.>"])
            config = nats_config(server, **importing(FROM_S, import_headers="all"))
            await jetstream.publish("commands.a+b", b"poison", headers={"why": "a plus"})
            await jetstream.publish("commands.large", bytes(900_000), headers={"k": "v"})
            await jetstream.publish("commands.text", b"\xff", headers={"mqtt-payload-format": "1"})
            await jetstream.publish("commands.good", b"good")
            limits = LimitsConfig(maximum_packet_size=500_000)
            async with routed(tmp_path / "gateway", config, limits=limits) as (_, route):
                await received(route, 1)
                await settled(client)
        assert [message.payload for _, message in messages_in(tmp_path / "gateway")] == [b"good"]
        notes = {note.what: note for note in quarantine.notes_in(tmp_path / "gateway")}
        assert list(notes) == [f"stream S, sequence {number}" for number in (1, 2, 3)]
        assert "wildcard" in notes["stream S, sequence 1"].reason and b"a plus" in notes["stream S, sequence 1"].body
        assert "500000 at most" in notes["stream S, sequence 2"].reason
        assert "payload format invalid" in notes["stream S, sequence 3"].reason


async def test_a_stream_that_is_lost_is_told_and_one_with_its_name_has_identities_of_its_own(tmp_path: Path) -> None:
    with nats_server(tmp_path) as server:
        async with connected(server) as client:
            jetstream = client.jetstream()
            config = nats_config(server, **importing(FROM_S))
            async with routed(tmp_path / "gateway", config) as (_, route):
                await until(lambda: "there is no stream 'S'" in route.queue.status().problem)
                for payload in (b"1", b"2"):
                    await jetstream.add_stream(name="S", subjects=["commands.>"])
                    await until(lambda: not route.queue.status().problem)
                    await jetstream.publish("commands.a", payload)
                    await received(route, int(payload))
                    await settled(client)
                    await jetstream.delete_stream("S")
                    await until(lambda: "there is no stream 'S'" in route.queue.status().problem)
        stored = [message for _, message in messages_in(tmp_path / "gateway")]
        assert [(one.payload, one.seq) for one in stored] == [(b"1", 1), (b"2", 1)]
        assert stored[0].epoch != stored[1].epoch


async def test_a_stream_that_was_restored_is_told_and_no_new_message_in_it_counts_as_known(tmp_path: Path) -> None:
    with nats_server(tmp_path) as server:
        config = nats_config(server, **importing(FROM_S))
        async with connected(server) as client:
            await client.jetstream().add_stream(name="S", subjects=["commands.>"])
            await client.jetstream().publish("commands.a", b"1")
        server.stop()
        shutil.copytree(tmp_path / "nats/jetstream", tmp_path / "saved")
        server.start()
        async with connected(server) as client, routed(tmp_path / "gateway", config) as (_, route):
            await client.jetstream().publish("commands.a", b"2")
            await received(route, 2)
            await settled(client)
        server.stop()
        shutil.rmtree(tmp_path / "nats/jetstream")
        shutil.copytree(tmp_path / "saved", tmp_path / "nats/jetstream")
        server.start()
        async with connected(server) as client, routed(tmp_path / "gateway", config) as (_, route):
            await until(lambda: "'S' ends at 1, and what has its number 2" in route.queue.status().problem)
            await client.jetstream().publish("commands.a", b"new")
            assert await counted(client, "S") == 2
            await client.jetstream().delete_stream("S")
            await client.jetstream().add_stream(name="S", subjects=["commands.>"])
            await client.jetstream().publish("commands.a", b"3")
            await received(route, 1)
        assert [message.payload for _, message in messages_in(tmp_path / "gateway")] == [b"3"]


async def test_nothing_is_acknowledged_while_the_store_is_full(tmp_path: Path) -> None:
    with nats_server(tmp_path) as server:
        async with connected(server) as client:
            jetstream = client.jetstream()
            await jetstream.add_stream(name="S", subjects=["commands.>"])
            config = nats_config(server, **importing(FROM_S))
            store = StoreConfig(str(tmp_path / "gateway"), max_messages=2, when_full="flow_control")
            async with routed(tmp_path / "gateway", config, store=store) as (broker, route):
                reader = await subscribed(broker, "reader", "#")
                device = await at_gateway(broker, "device")
                for payload in (b"1", b"2"):
                    await device.publish("a", payload)
                full = [await reader.expect(Publish), await reader.expect(Publish)]
                for number in (3, 4, 5):
                    await jetstream.publish("commands.a", b"%d" % number)
                await until(lambda: "is full" in route.queue.status().problem)
                assert await unacknowledged(client) == 3
                for packet in full:
                    reader.acknowledge(packet)
                assert [(await reader.receive()).payload for _ in range(3)] == [b"3", b"4", b"5"]
                await settled(client)
                await until(lambda: not route.queue.status().problem)


@pytest.mark.parametrize("mode", ["cover", "all"])
async def test_core_subscriptions_bring_a_message_once_in_mode_cover_and_for_each_filter_in_mode_all(
    tmp_path: Path, mode: str
) -> None:
    with nats_server(tmp_path) as server:
        incoming: list[dict[str, Any]] = [{"topic": "t/+"}, {"topic": "+/x", "qos": 2}]
        config = nats_config(server, **importing(*incoming, subscribe_mode=mode, import_headers="all"))
        async with connected(server) as client, routed(tmp_path / "gateway", config) as (broker, route):
            reader = await subscribed(broker, "reader", "#")
            await until(lambda: route.queue.state.connected)
            topics = ["t/x", "other/y", "t/marker"]
            async with asyncio.timeout(30):  # until the server has the subscriptions
                while not route.queue.state.received_messages:
                    await client.publish("t.first", b"first")
                    await asyncio.sleep(0.05)
            for topic in topics:
                await client.publish(topic.replace("/", "."), topic.encode(), headers={"Content-Type": "a/b", "k": "v"})
            packets = [await reader.receive()]
            while packets[-1].payload != b"t/marker":
                packets.append(await reader.receive())
        found = [packet for packet in packets if packet.payload != b"first"]
        assert [packet.topic for packet in found] == ["t/x"] * (1 if mode == "cover" else 2) + ["t/marker"]
        assert found[0].payload == b"t/x"
        assert found[0].properties[CONTENT_TYPE] == "a/b" and ("k", "v") in found[0].properties[USER_PROPERTY]


async def test_members_of_a_queue_group_share_the_messages(tmp_path: Path) -> None:
    with nats_server(tmp_path) as server:
        config = nats_config(server, **importing({**FROM_S, "queue_group": "workers"}))
        async with connected(server) as client:
            jetstream = client.jetstream()
            await jetstream.add_stream(name="S", subjects=["commands.>"])
            async with routed(tmp_path / "a", config) as (_, first), routed(tmp_path / "b", config) as (_, second):
                await until(lambda: first.queue.state.connected and second.queue.state.connected)
                for number in range(300):
                    await jetstream.publish("commands.a", b"%d" % number)
                await settled(client)
                await until(lambda: first.queue.state.received_messages + second.queue.state.received_messages == 300)
        stored = [int(one.payload) for folder in ("a", "b") for _, one in messages_in(tmp_path / folder)]
        assert sorted(stored) == list(range(300))
