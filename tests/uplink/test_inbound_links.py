"""Commands come down from real brokers, over cuts, kills and restarts, and nothing goes round."""

from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from gateway.config.schema import StoreConfig
from gateway.store import MESSAGES
from tests.gateway.store.support import stored
from tests.gateway.support import connected, joined, subscribed, tcp_port, user_property
from tests.gateway.support import running as running_broker
from tests.support.subscriber import subscriber
from tests.tools.cli.gateway.running import Gateway
from tests.uplink.inbound_support import connection_of, receiving, receiving_config, route_of
from tests.uplink.support import backlog_is, get, serving, until
from tests.uplink.test_rings import trusting
from tools.lab.testing.client import Client
from tools.lab.testing.mosquitto import Mosquitto, mosquitto
from tools.lab.testing.network_link import NetworkLink
from uplink.control import ask
from uplink.route import Route
from wire.identity import IDENTITY_PROPERTY, KEEP, RECEIVE
from wire.properties import USER_PROPERTY


async def test_both_ways_over_a_link_that_is_cut_again_and_again_each_message_arrives_once_at_qos_2(
    tmp_path: Path,
) -> None:
    count = 200
    with mosquitto(tmp_path) as port, subscriber(port, qos=2) as arrived:
        link = NetworkLink("127.0.0.1", port)
        await link.open()
        async with receiving(tmp_path / "store", link.port) as (broker, route):
            central = await Client("central", clean_start=True).connect(port)
            reader = await subscribed(broker, "reader", "down/#")
            device = await connected(broker, "device")
            for number in range(count):
                await central.publish_once(f"down/{number}", b"")
                await device.publish_once(f"up/{number}", b"")
                if number % 50 == 25:
                    await link.cut()
                    await link.open()
            received = [(await reader.receive()).topic for _ in range(count)]
            assert received == [f"down/{number}" for number in range(count)]
            await backlog_is(route, 0)
            assert broker.counters.messages_stored == 2 * count
            assert route.queue.state.received_messages == count
            topics = [(await get(arrived)).topic for _ in range(2 * count)]
            for way in ("up", "down"):
                found = [topic for topic in topics if topic.startswith(way)]
                assert found == [f"{way}/{number}" for number in range(count)]
        await link.cut()


@pytest.mark.parametrize("qos", [1, 2])
async def test_what_the_broker_queued_comes_down_in_order_after_its_restart(tmp_path: Path, qos: int) -> None:
    count = 100
    mosquitto_ = Mosquitto(tmp_path, "max_inflight_messages 1000")  # beyond it, mosquitto sends released ones again
    mosquitto_.start()
    try:
        async with receiving(tmp_path / "store", mosquitto_.port, direction="in") as (broker, _):
            reader = await subscribed(broker, "reader", "#")
            central = await Client("central").connect(mosquitto_.port)
            for number in range(count):
                if qos == 2:
                    await central.publish_once("commands", b"%d" % number)
                else:
                    await central.publish("commands", b"%d" % number)
                if number == count // 2:
                    mosquitto_.stop()
                    mosquitto_.start()
                    central = await Client("central").connect(mosquitto_.port)
            received = [-1]
            while received[-1] != count - 1:
                received.append(int((await reader.receive()).payload))
            assert list(dict.fromkeys(received)) == list(range(-1, count))
            assert len(received) == count + 1 or qos == 1
    finally:
        mosquitto_.stop()


async def test_a_broker_that_forgets_its_sessions_is_subscribed_to_again(tmp_path: Path) -> None:
    with mosquitto(tmp_path) as port:
        async with receiving(tmp_path / "store", port, direction="in") as (broker, route):
            reader = await subscribed(broker, "reader", "#")
            state = route.queue.state
            central = await Client("central").connect(port)
            await central.publish("a", b"1")
            assert (await reader.receive()).payload == b"1"
            other = await Client("gateway-1-central", clean_start=True, session_expiry_s=0).connect(port)
            await other.disconnect()
            await until(lambda: state.connected and state.reconnects == 1)
            await central.publish("a", b"2")
            assert (await reader.receive()).payload == b"2"


async def test_each_message_of_qos_2_comes_down_once_to_a_gateway_that_is_killed_again_and_again(
    tmp_path: Path,
) -> None:
    count, kills = 800, 5
    (tmp_path / "broker").mkdir()
    central = Mosquitto(tmp_path / "broker", "max_inflight_messages 50")
    central.start()
    route = f'[[route]]\nname = "down"\nbroker = "mqtt://127.0.0.1:{central.port}"\n'
    gateway = Gateway(tmp_path, listener=route + 'direction = "in"\nsubscribe = ["#"]\nbackoff_shortest_ms = 10\n')
    try:
        with gateway.running():
            reader = await joined(gateway.port, "reader", "#")
            await reader.disconnect()
            await until(lambda: ask(tmp_path / "store", "status")[0]["connected"])
        publisher = await Client("publisher").connect(central.port)
        for number in range(count):
            await publisher.publish_once("commands", b"%d" % number)
        for kill in range(kills):
            with gateway.running():
                goal = (kill + 1) * count // kills
                await stored_are(tmp_path / "store", goal)
        with gateway.running():
            reader = Client("reader")
            await reader.connect(gateway.port)
            received = [int((await reader.receive()).payload) for _ in range(count)]
            await publisher.publish_once("commands", b"%d" % count)
            assert [*received, int((await reader.receive()).payload)] == list(range(count + 1))
    finally:
        central.stop()


async def stored_are(folder: Path, count: int) -> None:
    """Returns when ``count`` messages have been stored."""
    newest = "SELECT COALESCE(MAX(last), 0) FROM message_group"
    await until(lambda: stored(folder, newest, MESSAGES)[0][0] >= count)


async def test_when_the_store_is_full_of_what_goes_up_large_messages_that_come_down_do_not_stop_it(
    tmp_path: Path,
) -> None:
    """More comes down than may wait in memory. The acknowledgements that make room come behind it."""
    count = 40
    store = StoreConfig(str(tmp_path / "store"), max_messages=4, when_full="flow_control")
    with mosquitto(tmp_path) as port, subscriber(port, "up/#", qos=2):
        async with receiving(tmp_path / "store", port, subscribe=("down/#",)):
            pass
        central = await Client("central").connect(port)
        for number in range(count):
            await central.publish_once("down/a", b"%d " % number + bytes(100_000))
        async with running_broker(tmp_path / "store", store=store) as broker:
            route = route_of(broker, port, subscribe=("down/#",))
            reader = await subscribed(broker, "reader", "down/#")
            device = await connected(broker, "device")
            for number in range(4):
                await device.publish_once(f"up/{number}", b"")
            async with serving(route):
                received = [int((await reader.receive()).payload.split()[0]) for _ in range(count)]
                assert received == list(range(count))
                await backlog_is(route, 0)
                await until(lambda: route.queue.state.received_messages == count)
            assert broker.counters.messages_stored == count + 4
            assert route.queue.state.reconnects, "it has forgotten some, and got them again"


@pytest.mark.parametrize("brokers", [1, 2])
async def test_two_gateways_that_send_and_receive_everything_at_the_same_brokers_do_not_loop(
    tmp_path: Path, brokers: int
) -> None:
    async with AsyncExitStack() as stack:
        for number in range(brokers):
            (tmp_path / f"broker-{number}").mkdir()
        ports = [stack.enter_context(mosquitto(tmp_path / f"broker-{number}")) for number in range(brokers)]
        gateways = [await stack.enter_async_context(running_broker(tmp_path / str(number))) for number in range(2)]
        routes = []
        for number, gateway in enumerate(gateways):
            for place, port in enumerate(ports):
                routes.append(route_of(gateway, port, f"gateway-{number}", name=f"to-{place}"))
                await stack.enter_async_context(serving(routes[-1]))
        for route in routes:
            await connection_of(route)
        readers = [await subscribed(gateway, "reader", "#") for gateway in gateways]
        device = await connected(gateways[0], "device")
        await device.publish("a", b"reading")
        await device.publish("a", b"marker")
        for reader in readers:
            assert (await reader.receive()).payload == b"reading"
        # Over two brokers each message comes twice, with one identity, and each copy comes back over the other one.
        first, second = (gateway.counters for gateway in gateways)
        await until(lambda: second.messages_stored == 2 * brokers)
        await until(lambda: first.messages_returned == 2 * brokers * (brokers - 1))
        for route in routes:
            await backlog_is(route, 0)
        assert (first.messages_stored, second.messages_stored) == (2, 2 * brokers)
        assert second.messages_returned == 0


@pytest.mark.parametrize("qos", [1, 2])
async def test_commands_and_readings_pass_a_chain_of_gateways_once_with_their_identities(
    tmp_path: Path, qos: int
) -> None:
    async with AsyncExitStack() as stack:
        gateways = [await stack.enter_async_context(trusting(tmp_path / str(number))) for number in range(3)]
        routes = []
        for number in (1, 2):  # each to the one before it
            port = tcp_port(gateways[number - 1])
            config = receiving_config(port, filters=("up/#",), subscribe=("down/#",))
            routes.append(Route(config, f"gateway-{number}", gateways[number].log, services=gateways[number].services))
            await stack.enter_async_context(serving(routes[-1]))
        for route in routes:
            await connection_of(route)
        readers = [await subscribed(gateway, "reader", "#", wishes=(RECEIVE,)) for gateway in gateways]
        commander = await connected(gateways[0], "commander", wishes=(KEEP,))
        device = await connected(gateways[2], "device", wishes=(KEEP,))
        for number in (1, 2):
            for client, topic in ((commander, "down/a"), (device, "up/a")):
                identity = f"0000001f/{number}/{topic}"
                client.send(topic, b"", qos=qos, properties={USER_PROPERTY: [(IDENTITY_PROPERTY, identity)]})
        for reader in readers:
            packets = [await reader.receive() for _ in range(4)]
            found = sorted(str(user_property(packet, IDENTITY_PROPERTY)) for packet in packets)
            assert found == sorted(f"0000001f/{number}/{topic}" for number in (1, 2) for topic in ("down/a", "up/a"))
        for route in routes:
            await backlog_is(route, 0)
            assert route.queue.state.received_messages == 2
        assert [gateway.counters.messages_stored for gateway in gateways] == [4, 4, 4]


async def test_a_retained_command_is_retained_here_too(tmp_path: Path) -> None:
    with mosquitto(tmp_path) as port:
        central = await Client("central").connect(port)
        await central.publish("commands/mode", b"eco", retain=True)
        async with receiving(tmp_path / "store", port, direction="in") as (broker, route):
            await until(lambda: route.queue.state.received_messages == 1)
            reader = await subscribed(broker, "reader", "#")
            packet = await reader.receive()
            assert (packet.payload, packet.retain) == (b"eco", True)
