"""QoS 2 over a route: each message once, over lost links and kills of the gateway."""

import asyncio
import sys
from pathlib import Path
from queue import Queue

from paho.mqtt.client import MQTTMessage

from gateway.message import Message
from tests.house.repository import ROOT
from tests.support.mosquitto import mosquitto, subscriber
from tests.support.scripted_broker import scripted_broker
from tests.uplink.support import get, opened, route_config, running, until
from tools.sim.network_link import NetworkLink
from uplink.route import Route


def test_a_message_of_qos_2_goes_on_at_qos_2_and_one_of_qos_1_at_qos_1(tmp_path: Path) -> None:
    async def scenario(port: int, received: "Queue[MQTTMessage]") -> None:
        async with opened(tmp_path) as log, running(log, route_config(port)):
            for qos in (2, 1, 2):
                await log.append(Message("a", b"%d" % qos, qos))
            messages = [await get(received) for _ in range(3)]
        assert sorted((message.payload, message.qos) for message in messages) == [(b"1", 1), (b"2", 2), (b"2", 2)]

    with mosquitto(tmp_path) as port, subscriber(port, qos=2) as received:
        asyncio.run(scenario(port, received))


def test_at_qos_2_every_message_arrives_once_over_a_link_that_is_cut_again_and_again(tmp_path: Path, seed: int) -> None:
    count = 1200

    async def scenario(port: int, received: "Queue[MQTTMessage]") -> None:
        link = NetworkLink("127.0.0.1", port)
        await link.open()
        async with opened(tmp_path) as log, running(log, route_config(link.port, inflight_window=50)):
            messages = [Message("a", b"%d" % number, 2) for number in range(count)]
            await asyncio.gather(*(log.append(message) for message in messages))
            payloads: list[int] = []
            while len(payloads) < count:
                payloads.append(int((await get(received)).payload))
                if len(payloads) % 150 == 0:
                    await link.cut()
                    await link.open()
            await asyncio.sleep(0.3)
        await link.cut()
        assert sorted(payloads) == list(range(count))
        assert received.empty()

    with mosquitto(tmp_path) as port, subscriber(port, qos=2) as received:
        asyncio.run(scenario(port, received))


def test_at_qos_2_every_message_arrives_once_from_a_gateway_that_is_killed_again_and_again(
    tmp_path: Path, seed: int
) -> None:
    count = 1500

    async def scenario(port: int, received: "Queue[MQTTMessage]") -> None:
        async with opened(tmp_path) as log:
            Route(route_config(port), "gateway-1", log)
            messages = [Message("a", b"%d" % number, 2) for number in range(count)]
            await asyncio.gather(*(log.append(message) for message in messages))
        payloads: list[int] = []
        while len(payloads) < count:
            command = [sys.executable, "-m", "tests.uplink.route_process", str(tmp_path / "store"), str(port)]
            process = await asyncio.create_subprocess_exec(*command, cwd=ROOT)
            goal = min(count, len(payloads) + 300)
            while len(payloads) < goal:
                payloads.append(int((await get(received)).payload))
            process.kill()
            await process.wait()
            while not received.empty():
                payloads.append(int(received.get().payload))
        assert sorted(payloads) == list(range(count))

    with mosquitto(tmp_path) as port, subscriber(port, qos=2) as received:
        asyncio.run(scenario(port, received))


def test_what_the_broker_has_noted_is_not_sent_again_even_where_it_has_forgotten_the_session(tmp_path: Path) -> None:
    """Received: the PUBREC is noted; a broker without the session gets neither PUBLISH nor PUBREL of it."""

    async def scenario() -> None:
        async with opened(tmp_path) as log:
            route = Route(route_config(1), "gateway-1", log)
            await log.append(Message("a", b"1", 2))
            await route._flows.begin(await route._cursor.fetch(1))
            (packet_identifier,) = route._flows._outgoing.flows
            await log.submit(route._flows._outgoing.note_received([packet_identifier]))
        async with (
            scripted_broker(puback=lambda _: 0) as broker,
            opened(tmp_path) as log,
            running(log, route_config(broker.port)),
        ):
            await log.append(Message("a", b"2", 1))
            await until(lambda: bool(broker.publishes) and bool(broker.publishes[-1]))
        assert [bytes(publish.payload) for publish in broker.publishes[-1]] == [b"2"]

    asyncio.run(scenario())
