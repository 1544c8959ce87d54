"""The limits below topic filters, for routes: what one drops, what it is refused, and what makes its broker wait."""

from pathlib import Path

import pytest

from gateway.config.kinds import WhenFull
from gateway.config.network import TopicConfig
from gateway.limits import Verdict
from gateway.message import Message
from gateway.store import MessageLog
from tests.gateway.store.support import stored
from tests.gateway.support import connected, subscribed, tcp_port
from tests.gateway.support import running as running_broker
from tests.support.scripted_broker import ScriptedBroker, scripted_broker
from tests.uplink.inbound_support import command, receiving
from tests.uplink.support import opened, route_config, serving, until
from uplink.route import Route
from wire.codec.packets import Puback, Publish
from wire.reasons import QUOTA_EXCEEDED

RANGES = "SELECT reason, consumer, sum(messages) FROM dropped GROUP BY reason, consumer"


def below(topic_filter: str, max_messages: int, when_full: WhenFull = "discard_old") -> TopicConfig:
    return TopicConfig(topic_filter, max_messages=max_messages, when_full=when_full)


def arrived(broker: ScriptedBroker) -> list[tuple[str, int]]:
    return [(publish.topic, int(publish.payload)) for publishes in broker.publishes for publish in publishes]


async def store(log: MessageLog, *topics: str, count: int) -> None:
    await log.submit([Message(topic, b"%d" % number) for number in range(count) for topic in topics])


@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("is_restarted", [False, True])
async def test_a_route_that_was_away_brings_the_newest_below_a_filter_and_everything_else(
    tmp_path: Path, qos: int, is_restarted: bool
) -> None:
    async with scripted_broker() as central:
        config, topic = route_config(central.port, max_messages=10), [below("orders/#", 3)]
        async with running_broker(tmp_path, topic=topic) as broker:
            route = Route(config, "gateway-1", broker.log)
            device = await connected(broker, "device")
            for number in range(7):
                for name in ("alarms", "orders/eu"):
                    await (device.publish if qos == 1 else device.publish_once)(name, b"%d" % number)
            if not is_restarted:
                await route.queue.watch.count()
                async with serving(route):
                    await until(lambda: len(arrived(central)) == 10)
        if is_restarted:
            async with running_broker(tmp_path, topic=topic) as broker:
                route = Route(config, "gateway-1", broker.log)
                await route.queue.watch.count()
                async with serving(route):
                    await until(lambda: len(arrived(central)) == 10)
    assert [number for name, number in arrived(central) if name == "alarms"] == list(range(7))
    assert [number for name, number in arrived(central) if name == "orders/eu"] == [4, 5, 6]
    assert stored(tmp_path, RANGES) == [("evicted", "route/central", 4)]


async def test_both_lanes_of_a_route_share_a_limit(tmp_path: Path) -> None:
    topic = [below("a", 5)]
    async with scripted_broker() as central:
        config = route_config(central.port, order="live_first")
        async with running_broker(tmp_path, topic=topic) as broker:
            Route(config, "gateway-1", broker.log)
            await store(broker.log, "a", count=6)
        async with running_broker(tmp_path, topic=topic) as broker:
            route = Route(config, "gateway-1", broker.log)
            await route.queue.watch.count()
            assert route.queue.lanes.keeper is not None
            await route.queue.lanes.keeper.look(is_connected=True)
            await store(broker.log, "a", count=2)
            await route.queue.watch.count()
            assert (route.queue.state.backfill_messages, route.queue.state.backlog_messages) == (3, 5)
            async with serving(route):
                await until(lambda: len(arrived(central)) == 5)
    assert sorted(number for _, number in arrived(central)) == [0, 1, 3, 4, 5]
    assert stored(tmp_path, RANGES) == [("evicted", "route/central", 3)]


async def test_a_route_at_a_limit_has_publishers_told(tmp_path: Path) -> None:
    topic = [below("a", 2, "reject_incoming")]
    async with scripted_broker() as central, running_broker(tmp_path, topic=topic) as broker:
        route = Route(route_config(central.port), "gateway-1", broker.log)
        device = await connected(broker, "device")
        await device.publish("a", b"1")
        await device.publish("a", b"2")
        device.send("a", b"3", qos=0)
        await device.publish("b", b"4")
        device.send("a", b"5", qos=1)
        assert (await device.expect(Puback)).reason_code == QUOTA_EXCEEDED
        async with serving(route):
            await until(lambda: route.queue.state.backlog_messages == 0)
        await device.publish("a", b"6")
    assert arrived(central) == [("a", 1), ("a", 2), ("b", 4)]
    assert stored(tmp_path, RANGES) == [("rejected", "gateway", 1), ("rejected", "route/central", 1)]


@pytest.mark.parametrize("when_full", ["flow_control", "reject_incoming"])
async def test_a_full_route_keeps_nothing_from_coming_down_over_it(tmp_path: Path, when_full: WhenFull) -> None:
    """Otherwise two gateways whose links are full would wait for each other."""
    async with scripted_broker() as central, running_broker(tmp_path, topic=[below("a", 1, when_full)]) as broker:
        route = Route(route_config(central.port), "gateway-1", broker.log)
        await store(broker.log, "a", count=1)
        await until(lambda: broker.services.limits.verdict("a", "owner", "device") is not Verdict.TAKE)
        assert broker.services.limits.verdict("a", "owner", route.queue.publisher.client_id) is Verdict.TAKE


async def test_another_gateway_that_is_at_a_limit_gets_each_message_later(tmp_path: Path) -> None:
    rules = tmp_path / "rules"
    rules.write_text("allow * publish,subscribe #\nallow - identify *\n")
    async with running_broker(
        tmp_path / "central", acl=str(rules), topic=[below("a", 2, "reject_incoming")]
    ) as central:
        reader = await subscribed(central, "reader", "a")
        async with opened(tmp_path) as log:
            route = Route(route_config(tcp_port(central)), "gateway-1", log)
            async with serving(route):
                await store(log, "a", count=2)
                held = [await reader.expect(Publish), await reader.expect(Publish)]
                await log.submit([Message("a", b"%d" % number) for number in range(2, 6)])
                await until(lambda: "quota exceeded" in route.queue.state.stands)
                for packet in held:
                    reader.acknowledge(packet)
                later = [int((await reader.receive()).payload) for _ in range(4)]
                await until(lambda: route.queue.state.backlog_messages == 0)
            assert sorted(later) == [2, 3, 4, 5]
            assert route.queue.state.refused_messages == 0


@pytest.mark.parametrize("when_full", ["flow_control", "reject_incoming"])
async def test_a_full_filter_makes_the_broker_of_a_route_wait_and_loses_nothing(
    tmp_path: Path, when_full: WhenFull
) -> None:
    settings = {"topic": [below("commands/#", 2, when_full)]}
    async with (
        scripted_broker() as central,
        receiving(tmp_path, central.port, settings, direction="in") as (broker, route),
    ):
        reader = await subscribed(broker, "reader", "#")
        central.command(command(1), command(2))
        held = [await reader.expect(Publish), await reader.expect(Publish)]
        central.command(command(3), command(4, 2), command(0, 0, payload=b"marker"))
        assert (await reader.receive()).payload == b"marker"
        await until(lambda: "is full" in route.queue.status().problem)
        assert central.pubacks == [1, 2]
        for packet in held:
            reader.acknowledge(packet)
        assert [(await reader.receive()).payload for _ in range(2)] == [b"3", b"4"]
        await until(lambda: (central.pubacks, central.pubcomps) == ([1, 2, 3], [4]))
