"""Messages of QoS 0 over a route: stored, sent only while it is connected, or dropped."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from gateway.broker import Broker
from gateway.config.schema import StoreConfig
from tests.gateway.store.support import stored
from tests.gateway.support import connected, subscribed
from tests.gateway.support import running as running_broker
from tests.support.scripted_broker import ScriptedBroker, scripted_broker
from tests.uplink.support import route_config, serving, until
from uplink.route import Route
from wire.codec.packets import RETAIN_AS_PUBLISHED, Publish
from wire.identity import IDENTITY_PROPERTY, find_user_property

RANGES = "SELECT reason, consumer, sum(last - first + 1) FROM dropped GROUP BY reason, consumer ORDER BY consumer"


@asynccontextmanager
async def routed(
    folder: Path,
    central: ScriptedBroker,
    *,
    is_connected: bool = True,
    store: StoreConfig | None = None,
    **keys: object,
) -> AsyncIterator[tuple[Broker, Route]]:
    """A gateway with a route to a broker, which runs if it is to be connected."""
    async with running_broker(folder, **({} if store is None else {"store": store})) as broker:
        route = Route(route_config(central.port, **keys), "gateway-1", broker.log)
        if is_connected:
            async with serving(route):
                await until(lambda: route.queue.state.connected)
                yield broker, route
        else:
            yield broker, route


def arrived(central: ScriptedBroker) -> list[Publish]:
    return [publish for publishes in central.publishes for publish in publishes]


async def test_it_is_stored_for_a_route_and_goes_on_at_qos_1_with_an_identity(tmp_path: Path) -> None:
    async with scripted_broker() as central:
        async with routed(tmp_path, central, is_connected=False) as (broker, _):
            device = await connected(broker, "device")
            device.send("a", b"reading", qos=0)
            device.send("a", b"retained", qos=0, retain=True)
            await device.publish("a", b"marker")
            assert broker.counters.qos_0_stored == 2
        async with routed(tmp_path, central):
            await until(lambda: len(arrived(central)) == 3)
    assert [(bytes(p.payload), p.qos, p.retain) for p in arrived(central)] == [
        (b"reading", 1, False),
        (b"retained", 1, True),
        (b"marker", 1, False),
    ]
    identities = [str(find_user_property(p.properties, IDENTITY_PROPERTY)) for p in arrived(central)]
    assert [identity.split("/")[1:] for identity in identities] == [[str(n), "test-gateway"] for n in (1, 2, 3)]


async def test_local_subscribers_get_it_once_at_qos_0_and_sessions_that_are_away_do_not_get_it(tmp_path: Path) -> None:
    async with scripted_broker() as central, routed(tmp_path, central) as (broker, _):
        away = await subscribed(broker, "away", "a", session_expiry_s=100)
        away.cut()
        reader = await subscribed(broker, "reader", "a", options=1 | RETAIN_AS_PUBLISHED)
        device = await connected(broker, "device")
        for payload in (b"1", b"2"):
            device.send("a", payload, qos=0)
        await device.publish("a", b"marker")
        received = [await reader.receive() for _ in range(3)]
        assert [(bytes(p.payload), p.qos) for p in received] == [(b"1", 0), (b"2", 0), (b"marker", 1)]
        await reader.expect_no_message()
        away = await connected(broker, "away", session_expiry_s=100, clean_start=False)
        assert (await away.receive()).payload == b"marker"
        await away.expect_no_message()


async def test_a_session_that_ends_or_loses_its_oldest_messages_leaves_no_ranges_of_qos_0(tmp_path: Path) -> None:
    store = StoreConfig(str(tmp_path), max_messages=2, when_full="discard_old")
    async with (
        scripted_broker(puback=lambda _: None) as central,
        routed(tmp_path, central, is_connected=False, store=store) as (broker, _),
    ):
        for name in ("ends", "stays"):
            (await subscribed(broker, name, "#", session_expiry_s=100)).cut()
        device = await connected(broker, "device")
        for _ in range(10):
            device.send("a", b"", qos=0)
        await device.publish("a", b"marker")
        await until(lambda: broker.log.space.needed_count <= 2)
        again = await connected(broker, "ends", session_expiry_s=0, clean_start=True)
        await again.ping()
    assert stored(tmp_path, RANGES) == [("evicted", "route/central", 9), ("ended", "session/ends", 1)]


async def test_a_full_store_drops_it_for_the_route_alone_and_its_publisher_goes_on(tmp_path: Path) -> None:
    store = StoreConfig(str(tmp_path), max_messages=2, when_full="reject_incoming")
    async with (
        scripted_broker() as central,
        routed(tmp_path, central, is_connected=False, store=store) as (broker, _),
    ):
        reader = await subscribed(broker, "reader", "a", options=0)
        device = await connected(broker, "device")
        for payload in (b"1", b"2"):
            await device.publish("a", payload)
        device.send("a", b"3", qos=0)
        assert [(await reader.receive()).payload for _ in range(3)] == [b"1", b"2", b"3"]
        await device.ping()
        assert (broker.counters.qos_0_stored, broker.counters.messages_dropped["rejected"]) == (0, 1)


async def test_online_it_goes_at_qos_0_while_the_route_is_connected(tmp_path: Path) -> None:
    async with scripted_broker() as central:
        async with routed(tmp_path, central, qos0="online") as (broker, route):
            device = await connected(broker, "device")
            device.send("a", b"1", qos=0)
            await device.publish("a", b"marker")
            await until(lambda: len(arrived(central)) == 2)
            assert sorted((bytes(p.payload), p.qos) for p in arrived(central)) == [(b"1", 0), (b"marker", 1)]
            assert (route.queue.state.qos_0_sent, route.queue.state.qos_0_dropped) == (1, 0)
            assert broker.counters.messages_stored == 1
        async with routed(tmp_path, central, qos0="online", is_connected=False) as (broker, route):
            device = await connected(broker, "device")
            device.send("a", b"2", qos=0)
            await device.ping()
            assert (route.queue.state.qos_0_sent, route.queue.state.qos_0_dropped) == (0, 1)


@pytest.mark.parametrize("topic", ["a", "other"])
async def test_dropped_it_is_counted_if_the_filters_match(tmp_path: Path, topic: str) -> None:
    async with (
        scripted_broker() as central,
        routed(tmp_path, central, qos0="drop", filters=["a"]) as (broker, route),
    ):
        device = await connected(broker, "device")
        device.send(topic, b"1", qos=0)
        await device.publish("a", b"marker")
        await until(lambda: bool(arrived(central)))
        assert [bytes(p.payload) for p in arrived(central)] == [b"marker"]
        assert route.queue.state.qos_0_dropped == (topic == "a")
