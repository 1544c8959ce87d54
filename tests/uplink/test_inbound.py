"""Messages that come down over a route, from a broker whose answers the test chooses."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from gateway.config.kinds import WhenFull
from gateway.config.schema import QueueConfig, StoreConfig
from tests.gateway.connection.test_custody import commits_held_up
from tests.gateway.store.support import messages_in, stored
from tests.gateway.support import connected, subscribed, user_property
from tests.gateway.support import running as running_broker
from tests.support.scripted_broker import ScriptedBroker, scripted_broker, silent
from tests.uplink.inbound_support import command, connection_of, receiving, receiving_config, route_of
from tests.uplink.numbers_support import STATING, all_statements, left_out
from tests.uplink.support import of_3_1_1, route_config, serving, until
from tools.lab.testing.mosquitto import mosquitto
from uplink.config.route import RouteNeighbourConfig
from uplink.route import Route
from uplink.routes import Routes
from wire.codec.packets import NO_LOCAL, RETAIN_AS_PUBLISHED, RETAIN_IF_NEW, Publish, Subscribe, Unsubscribe
from wire.identity import IDENTITY_PROPERTY, KEEP, RECEIVE, WISH_PROPERTY
from wire.properties import MAXIMUM_PACKET_SIZE, PAYLOAD_FORMAT_INDICATOR, RECEIVE_MAXIMUM, USER_PROPERTY
from wire.reasons import NOT_AUTHORIZED, PAYLOAD_FORMAT_INVALID, SUCCESS


async def published(central: ScriptedBroker, count: int) -> None:
    """Returns when ``count`` messages have come over the newest connection."""
    await until(lambda: len(central.publishes[-1]) == count)


async def test_what_a_broker_sends_is_stored_with_its_identity_and_delivered(tmp_path: Path) -> None:
    commands = [command(5), command(6, 2), command(7, 0)]
    commands[0].properties = {USER_PROPERTY: [(IDENTITY_PROPERTY, "0000001f/7/server")]}
    async with running_broker(tmp_path) as broker, scripted_broker(commands=commands) as central:
        reader = await subscribed(broker, "reader", "#", options=2, wishes=(RECEIVE,))
        route = route_of(broker, central.port, direction="in", subscribe=("commands/#",))
        async with serving(route):
            received = {bytes(packet.payload): packet for packet in [await reader.receive() for _ in range(3)]}
            await until(lambda: (central.pubacks, central.pubrecs, central.pubcomps) == ([5], [6], [6]))
            await until(lambda: route.queue.status().received_messages == 3)
        assert user_property(received[b"5"], IDENTITY_PROPERTY) == "0000001f/7/server"
        assert str(user_property(received[b"6"], IDENTITY_PROPERTY)).endswith("/1/test-gateway")
        assert [received[payload].qos for payload in (b"5", b"6", b"7")] == [1, 2, 0]
        assert broker.counters.messages_stored == 2


async def test_a_route_asks_for_identities_no_local_and_as_much_as_the_gateway_takes(tmp_path: Path) -> None:
    async with scripted_broker() as central, receiving(tmp_path, central.port, subscribe=("a/#", "b")):
        connect = central.connects[-1]
        assert connect.properties[USER_PROPERTY] == [(WISH_PROPERTY, KEEP), (WISH_PROPERTY, RECEIVE)]
        assert (connect.properties[MAXIMUM_PACKET_SIZE], connect.properties[RECEIVE_MAXIMUM]) == (1024 * 1024, 1000)
        options = 2 | NO_LOCAL | RETAIN_AS_PUBLISHED | RETAIN_IF_NEW
        assert [packet.filters for packet in central.subscribes] == [[("a/#", options)], [("b", options)]]


async def test_a_session_that_begins_anew_is_one_that_mosquitto_keeps_over_a_restart(tmp_path: Path) -> None:
    """mosquitto 2.0.11 forgets a session whose last CONNECT had Clean Start, with the messages that it has queued."""
    async with scripted_broker(session_present=True) as central, receiving(tmp_path, central.port) as (_, route):
        assert [connect.clean_start for connect in central.connects] == [False, True, False]
        assert (len(central.subscribes), route.queue.state.reconnects) == (1, 0)


async def test_no_acknowledgement_leaves_before_the_message_is_durable(tmp_path: Path) -> None:
    async with scripted_broker() as central, receiving(tmp_path, central.port, qos0="online") as (broker, _):
        device = await connected(broker, "device")
        with commits_held_up(tmp_path):
            central.command(command(5), command(6, 2))
            for number in range(2):  # an acknowledgement would come before the second one
                device.send("up", b"marker", qos=0)
                await published(central, number + 1)
            assert (messages_in(tmp_path), central.codes) == ([], [])
        await until(lambda: (central.pubacks, central.pubcomps) == ([5], [6]))
        assert [message.payload for _, message in messages_in(tmp_path)] == [b"5", b"6"]


@pytest.mark.parametrize("at", ["restart", "reload", "cut"])
async def test_a_message_of_qos_2_that_comes_again_is_stored_once(tmp_path: Path, at: str) -> None:
    """It comes right behind the CONNACK, as mosquitto sends it."""
    async with scripted_broker(commands=[command(6, 2)], releases=False) as central:
        async with running_broker(tmp_path) as broker:
            config = receiving_config(central.port)
            routes = Routes([config], "gateway-1", broker.log, broker.services.endings, broker.services)
            task = asyncio.create_task(routes.run())
            await until(lambda: central.pubrecs == [6])
            central.commands, central.queued = [], [command(6, 2, dup=True), command(7, 2)]
            central.session_present = True
            if at == "reload":
                routes.reload([receiving_config(central.port, keep_alive_s=77)])
            elif at == "cut":
                central.drop_clients()
            if at != "restart":
                await until(lambda: central.pubrecs == [6, 6, 7])
            task.cancel()
            await asyncio.wait({task})
        if at == "restart":
            async with receiving(tmp_path, central.port):
                await until(lambda: central.pubrecs == [6, 6, 7])
    assert stored(tmp_path, "SELECT * FROM incoming ORDER BY 2") == [("route/central\0", 6), ("route/central\0", 7)]


async def test_a_session_that_the_broker_has_lost_takes_its_packet_identifiers_with_it(tmp_path: Path) -> None:
    """Otherwise a new message with an old identifier would be taken for one that comes again."""
    async with scripted_broker(releases=False) as central, receiving(tmp_path, central.port) as (broker, _):
        central.command(command(6, 2))
        await until(lambda: central.pubrecs == [6])
        central.drop_clients()
        await until(lambda: len(central.subscribes) == 2)
        assert stored(tmp_path, "SELECT * FROM incoming") == []
        central.command(command(6, 2, payload=b"new"))
        await until(lambda: central.pubrecs == [6, 6])
        assert broker.counters.messages_stored == 2


@pytest.mark.parametrize("when_full", ["flow_control", "reject_incoming"])
async def test_a_full_store_makes_the_broker_wait_and_loses_nothing(tmp_path: Path, when_full: WhenFull) -> None:
    store = StoreConfig(str(tmp_path), max_messages=2, when_full=when_full)
    async with (
        scripted_broker() as central,
        receiving(tmp_path, central.port, {"store": store}, direction="in") as (
            broker,
            route,
        ),
    ):
        reader = await subscribed(broker, "reader", "#")
        device = await connected(broker, "device")
        for payload in (b"1", b"2"):
            await device.publish("a", payload)
        full = [await reader.expect(Publish), await reader.expect(Publish)]
        central.command(command(3), command(4), command(5), command(0, 0, payload=b"marker"))
        assert (await reader.receive()).payload == b"marker"
        assert central.codes == []
        await until(lambda: "is full" in route.queue.status().problem)
        for packet in full:
            reader.acknowledge(packet)
        assert [(await reader.receive()).payload for _ in range(3)] == [b"3", b"4", b"5"]
        await until(lambda: (central.pubacks, central.codes) == ([3, 4, 5], [SUCCESS] * 3))
        await until(lambda: route.queue.status().problem == "")


@pytest.mark.parametrize("when_full", ["flow_control", "reject_incoming"])
async def test_a_subscriber_with_a_full_queue_holds_nothing_up_for_others_until_half_of_the_store_is_used(
    tmp_path: Path, when_full: WhenFull
) -> None:
    limits = {"queue": QueueConfig(2, when_full=when_full), "store": StoreConfig(str(tmp_path), max_messages=12)}
    async with (
        scripted_broker() as central,
        receiving(tmp_path, central.port, limits, direction="in") as (broker, route),
    ):
        slow, quick = await subscribed(broker, "slow", "#"), await subscribed(broker, "quick", "#")
        central.command(*(command(number, payload=b"%d" % number) for number in range(1, 7)))
        held = []
        for number in range(1, 7):
            held.append(await slow.expect(Publish))
            assert (await quick.receive()).payload == b"%d" % number
        await until(lambda: central.pubacks == [1, 2, 3, 4, 5, 6])
        central.command(command(7, payload=b"7"), command(0, 0, payload=b"marker"))
        assert (await quick.receive()).payload == b"marker"
        await until(lambda: "is full" in route.queue.status().problem)
        for packet in held:
            slow.acknowledge(packet)
        assert [(await slow.receive()).payload for _ in range(2)] == [b"marker", b"7"]
        assert (await quick.receive()).payload == b"7"
        await until(lambda: central.pubacks == [1, 2, 3, 4, 5, 6, 7])
        assert broker.counters.messages_stored == 7


async def test_what_is_too_much_to_wait_is_forgotten_and_comes_over_the_next_connection(tmp_path: Path) -> None:
    """The route reads on meanwhile: what comes behind may be acknowledgements, which make room."""
    store = StoreConfig(str(tmp_path), max_messages=2, when_full="flow_control")
    large = [command(number, payload=b"%d" % number + b" " * 20_000) for number in range(3, 103)]
    async with (
        scripted_broker() as central,
        receiving(tmp_path, central.port, {"store": store}, direction="in") as (broker, _),
    ):
        reader, device = await subscribed(broker, "reader", "#"), await connected(broker, "device")
        for payload in (b"1", b"2"):
            await device.publish("a", payload)
        full = [await reader.expect(Publish), await reader.expect(Publish)]
        subscribes = len(central.subscribes)
        central.command(*large, command(0, 0, payload=b"marker"))
        assert (await reader.receive()).payload == b"marker"
        for packet in full:
            reader.acknowledge(packet)
        got: list[int] = []

        async def read() -> None:
            while len(got) < len(large):
                got.append(int((await reader.receive()).payload))

        reading = asyncio.create_task(read())
        await until(lambda: len(central.subscribes) > subscribes)
        assert 0 < len(central.pubacks) < len(large)
        central.command(*(one for one in large if one.packet_identifier not in central.pubacks))
        await reading
        assert got == [one.packet_identifier for one in large]


async def test_a_message_that_no_local_client_wants_is_acknowledged_with_success(tmp_path: Path) -> None:
    """Only a server may say that there are no subscribers [MQTT 5, table 3-4]."""
    async with scripted_broker() as central, receiving(tmp_path, central.port, direction="in"):
        central.command(command(5), command(6, 2))
        await until(lambda: central.codes == [SUCCESS, SUCCESS])


async def test_what_may_not_be_published_here_is_refused_and_the_rest_comes(tmp_path: Path) -> None:
    bad = {PAYLOAD_FORMAT_INDICATOR: 1}
    wrong = [Publish("commands/a", b"\xff", qos, False, False, 6 * qos or None, bad) for qos in (0, 1)]
    async with scripted_broker() as central, receiving(tmp_path, central.port) as (broker, route):
        connects = len(central.connects)
        central.command(Publish("$SYS/broker/version", b"mine", 1, False, False, 5, {}), *wrong, command(7))
        await until(lambda: central.pubacks == [5, 6, 7])
        assert central.codes == [NOT_AUTHORIZED, PAYLOAD_FORMAT_INVALID, SUCCESS]
        assert (len(central.connects), route.queue.state.received_messages) == (connects, 1)
        assert broker.counters.messages_dropped["rejected"] == 3


async def test_subscriptions_that_the_broker_does_not_serve_as_asked_are_told_and_the_others_serve(
    tmp_path: Path,
) -> None:
    def grant(topic_filter: str) -> int:
        return {"secret/#": NOT_AUTHORIZED, "slow/#": 1}.get(topic_filter, 2)

    filters = ("secret/#", "slow/#", "commands/#")
    async with (
        scripted_broker(grant=grant) as central,
        receiving(tmp_path, central.port, subscribe=filters) as (broker, route),
    ):
        broker.overview.routes = [route.queue.state]
        (problem,) = broker.overview.problems()
        assert (
            problem
            == "route central: the broker does not let the route subscribe to 'secret/#' (not authorized (0x87))"
        )
        assert broker.overview.notes() == ["route central: the broker grants a lower QoS to 'slow/#' (QoS 1)"]
        status = route.queue.status()
        assert "'secret/#'" in status.problem and "'slow/#'" in status.problem
        assert (status.connected, status.stands) == (True, False)
        central.command(command(5))
        await until(lambda: central.pubacks == [5])


@pytest.mark.parametrize("at", ["reload", "start"])
async def test_what_is_no_longer_in_the_configuration_is_unsubscribed(tmp_path: Path, at: str) -> None:
    async with scripted_broker() as central:
        before = receiving_config(central.port, subscribe=("a/#", "b/#"))
        after = receiving_config(central.port, subscribe=("b/#", "c/#"))
        nothing = route_config(central.port)
        async with running_broker(tmp_path) as broker:
            routes = Routes([before], "gateway-1", broker.log, broker.services.endings, broker.services)
            task = asyncio.create_task(routes.run())
            await until(lambda: routes.status()[0].connected)
            central.session_present = True
            if at == "reload":
                routes.reload([after])
                await until(lambda: len(central.connects) == 2 and routes.status()[0].connected)
                routes.reload([nothing])
                await until(lambda: len(central.connects) == 3 and routes.status()[0].connected)
            task.cancel()
            await asyncio.wait({task})
        for config in (after, nothing) if at == "start" else ():
            async with running_broker(tmp_path) as broker:
                route = Route(config, "gateway-1", broker.log, services=broker.services)
                async with serving(route):
                    await connection_of(route)
    subscribed = [one.filters[0][0] for one in central.subscribes if isinstance(one, Subscribe)]
    unsubscribed = [one.filters for one in central.subscribes if isinstance(one, Unsubscribe)]
    assert (subscribed, unsubscribed) == (["a/#", "b/#", "b/#", "c/#"], [["a/#"], ["b/#"], ["c/#"]])


async def test_a_route_that_no_longer_receives_takes_what_the_broker_had_queued(tmp_path: Path) -> None:
    async with scripted_broker() as central:
        async with receiving(tmp_path, central.port):
            central.session_present, central.queued = True, [command(5)]
        async with running_broker(tmp_path) as broker:
            route = Route(route_config(central.port), "gateway-1", broker.log, services=broker.services)
            async with serving(route):
                await until(lambda: central.pubacks == [5])


async def test_a_broker_that_only_speaks_3_1_1_is_named_as_the_reason_and_nothing_goes_round(tmp_path: Path) -> None:
    with mosquitto(tmp_path) as port:
        async with of_3_1_1(port) as old, running_broker(tmp_path / "store") as broker:
            route = route_of(broker, old)
            async with serving(route):
                await until(lambda: "over which the route's own messages would come back" in route.queue.state.stands)
                assert not route.queue.state.connected
            async with serving(Route(receiving_config(port), "gateway-1", broker.log, route.queue, broker.services)):
                await until(lambda: route.queue.state.connected)
                assert route.queue.state.stands == ""


async def test_a_message_of_nearly_the_largest_size_comes_down_and_a_larger_packet_ends_the_connection(
    tmp_path: Path,
) -> None:
    async with scripted_broker() as central, receiving(tmp_path, central.port) as (_, route):
        central.command(command(5, payload=bytes(1_000_000)))
        await until(lambda: central.pubacks == [5])
        central.write(command(6, payload=bytes(1_100_000)).encode())
        await until(lambda: "1048576 is the most" in route.queue.state.last_error)


async def test_a_broker_that_sends_more_than_the_receive_maximum_is_served(tmp_path: Path) -> None:
    """mosquitto 2.0.11 does so. A connection that ended by it would get the same messages for ever."""
    count = 3000
    async with scripted_broker() as central, receiving(tmp_path, central.port) as (broker, route):
        with commits_held_up(tmp_path):
            central.write(b"".join(command(number, 1 + number % 2).encode() for number in range(1, count + 1)))
            central.command(command(0, 0, payload=b"marker"))
            await until(lambda: broker.counters.messages_received[0] == 1)
        await until(lambda: route.queue.state.received_messages == count + 1)
        await until(lambda: broker.counters.messages_stored == count)
        assert route.queue.state.reconnects == 0


async def test_what_came_down_is_no_part_of_the_backlog_and_a_forgotten_route_leaves_no_packet_identifier(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "store"
    async with scripted_broker(puback=silent, releases=False) as central, running_broker(folder) as broker:
        routes = Routes(
            [receiving_config(central.port)], "gateway-1", broker.log, broker.services.endings, broker.services
        )
        task = asyncio.create_task(routes.run())
        await until(lambda: routes.status()[0].connected)
        away = await subscribed(broker, "away", "#")
        await away.disconnect()
        central.command(command(5), command(6, 2))
        device = await connected(broker, "device")
        await device.publish("up", b"7")
        await until(lambda: bool(central.publishes[-1]) and routes.status()[0].received_messages == 2)
        assert await routes.export("central", tmp_path / "backlog") == 1
        routes.reload([])
        await until(lambda: routes.status()[0].problem == "it is no longer configured")
        await routes.forget("central")
        task.cancel()
        await asyncio.wait({task})
    assert stored(folder, "SELECT * FROM incoming") == []


async def test_what_came_over_a_link_before_is_acknowledged_when_it_comes_again_and_not_stored(
    tmp_path: Path,
) -> None:
    """As after a failover: in another session, with another packet identifier."""
    properties = {USER_PROPERTY: [(IDENTITY_PROPERTY, "0000001f/7/server")]}
    first, again = command(5), command(6, 2, payload=b"5")
    first.properties, again.properties = properties, properties
    neighbour = RouteNeighbourConfig()
    async with (
        scripted_broker() as central,
        receiving(tmp_path, central.port, direction="out", neighbour=neighbour) as (broker, _),
    ):
        central.command(first)
        await until(lambda: central.pubacks == [5])
        central.command(again, command(7))
        await until(lambda: (central.pubacks, central.pubcomps) == ([5, 7], [6]))
        assert set(central.codes) == {SUCCESS}
        assert (broker.counters.messages_duplicate, broker.counters.messages_stored) == (1, 2)


async def test_a_route_does_not_name_as_left_out_what_came_from_there_with_its_identity(tmp_path: Path) -> None:
    commands = [command(5), command(6)]
    commands[0].properties = {USER_PROPERTY: [(IDENTITY_PROPERTY, "0000001f/7/server")]}
    async with running_broker(tmp_path) as broker, scripted_broker(commands=commands) as central:
        route = route_of(broker, central.port, filters=("up",), statement_interval_s=STATING)
        reader = await subscribed(broker, "reader", "commands/#")
        async with serving(route):
            assert {(await reader.receive()).payload, (await reader.receive()).payload} == {b"5", b"6"}
            device = await connected(broker, "device")
            await device.publish("up", b"marker")
            await until(lambda: any(one.payload == b"marker" for one in central.publishes[-1]))
            central.drop_clients()
            await until(lambda: "test-gateway" in left_out(all_statements(central)))
    assert left_out(all_statements(central)).keys() == {"test-gateway"}, "the identity given here is named, no other"


async def test_a_route_that_only_receives_makes_no_statements(tmp_path: Path) -> None:
    keys: dict[str, Any] = {"direction": "in", "statement_interval_s": STATING}
    async with scripted_broker() as central, receiving(tmp_path, central.port, **keys) as (broker, route):
        reader = await subscribed(broker, "reader", "#")
        for number in (5, 6, 7):
            central.command(command(number))
            assert (await reader.receive()).payload == b"%d" % number
            central.drop_clients()
            await until(lambda: len(central.connects) == number - 3 and route.queue.state.connected)  # noqa: B023
