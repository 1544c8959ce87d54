"""paho-mqtt against our gateway."""

import asyncio
import queue
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from paho.mqtt.client import CallbackAPIVersion, Client, MQTTMessage, MQTTv5
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode
from paho.mqtt.subscribeoptions import SubscribeOptions

from tests.gateway.steps import started
from tests.gateway.support import LONG_S, running, tcp_port


class Paho:
    """A paho client on its own thread; each event goes into a queue."""

    def __init__(self, client_id: str, *, manual_ack: bool = False) -> None:
        self.client = Client(CallbackAPIVersion.VERSION2, client_id, protocol=MQTTv5, manual_ack=manual_ack)
        self.messages: queue.Queue[MQTTMessage] = queue.Queue()
        self.session_present: queue.Queue[bool] = queue.Queue()
        self.disconnects: queue.Queue[ReasonCode] = queue.Queue()
        self.client.on_message = lambda client, _, message: self.messages.put(message)
        self.client.on_connect = lambda client, _, flags, reason, properties: self.session_present.put(
            flags.session_present
        )
        self.client.on_disconnect = lambda client, _, flags, reason, properties: self.disconnects.put(reason)

    def connect(self, port: int, *, expiry_s: int = 0xFFFFFFFF) -> bool:
        properties = Properties(PacketTypes.CONNECT)
        properties.SessionExpiryInterval = expiry_s
        self.client.connect("127.0.0.1", port, clean_start=False, properties=properties)
        self.client.loop_start()
        return self.session_present.get(timeout=LONG_S)

    def subscribe(self, topic_filter: str, **options: Any) -> None:
        subscribed = threading.Event()
        self.client.on_subscribe = lambda *_: subscribed.set()
        self.client.subscribe(topic_filter, options=SubscribeOptions(qos=1, **options))
        assert subscribed.wait(LONG_S)

    def publish(self, topic: str, payload: str) -> None:
        self.client.publish(topic, payload, qos=1).wait_for_publish(LONG_S)

    def receive(self) -> str:
        return self.messages.get(timeout=LONG_S).payload.decode()

    def close(self) -> None:
        self.client.disconnect()
        self.client.loop_stop()


@contextmanager
def paho(client_id: str, **options: Any) -> Iterator[Paho]:
    client = Paho(client_id, **options)
    try:
        yield client
    finally:
        client.close()


async def test_paho_publishes_and_receives_in_order(tmp_path: Path) -> None:
    def walk(port: int) -> None:
        with paho("subscriber") as subscriber, paho("publisher") as publisher:
            subscriber.connect(port)
            subscriber.subscribe("a/#")
            publisher.connect(port)
            for number in range(200):
                publisher.publish("a/b", str(number))
            assert [subscriber.receive() for _ in range(200)] == [str(number) for number in range(200)]

    async with running(tmp_path) as broker:
        await asyncio.to_thread(walk, tcp_port(broker))


async def test_paho_resumes_its_session_where_it_stopped_acknowledging(tmp_path: Path) -> None:
    def walk(port: int) -> None:
        with paho("subscriber", manual_ack=True) as subscriber, paho("publisher") as publisher:
            assert not subscriber.connect(port)
            subscriber.subscribe("a")
            publisher.connect(port)
            for number in range(5):
                publisher.publish("a", str(number))
            for number in range(5):
                message = subscriber.messages.get(timeout=LONG_S)
                if number < 2:
                    subscriber.client.ack(message.mid, message.qos)
        with paho("subscriber") as subscriber:
            assert subscriber.connect(port)
            assert [subscriber.receive() for _ in range(3)] == ["2", "3", "4"]

    async with running(tmp_path) as broker:
        await asyncio.to_thread(walk, tcp_port(broker))


async def test_paho_is_told_that_another_took_its_session(tmp_path: Path) -> None:
    def walk(port: int) -> None:
        with paho("same") as first, paho("same") as second:
            first.connect(port)
            first.client.reconnect_delay_set(min_delay=60)  # or it would come back and take over in turn
            assert second.connect(port)
            assert first.disconnects.get(timeout=LONG_S).value == 0x8E

    async with running(tmp_path) as broker:
        await asyncio.to_thread(walk, tcp_port(broker))


async def test_paho_gets_back_what_it_published_unless_no_local(tmp_path: Path) -> None:
    def walk(port: int) -> None:
        with paho("client") as client:
            client.connect(port)
            client.subscribe("a")
            client.subscribe("b", noLocal=True)
            client.publish("b", "own, not wanted")
            client.publish("a", "own, wanted")
            assert client.receive() == "own, wanted"

    async with running(tmp_path) as broker:
        await asyncio.to_thread(walk, tcp_port(broker))


async def test_what_paho_saw_acknowledged_survives_a_kill(tmp_path: Path) -> None:
    def publish(port: int, acknowledged: list[str], enough: threading.Event) -> None:
        """Publishes with paho's own window until the connection to the gateway is lost."""
        with paho("publisher") as publisher:
            sent: dict[int, str] = {}

            def note(client: Client, userdata: Any, mid: int, reason: ReasonCode, properties: Properties) -> None:
                acknowledged.append(sent[mid])
                if len(acknowledged) == 300:
                    enough.set()

            publisher.client.on_publish = note
            publisher.connect(port)
            for number in range(5000):
                if not publisher.disconnects.empty():
                    break
                sent[number + 1] = str(number)
                publisher.client.publish("a", str(number), qos=1)
            publisher.disconnects.get(timeout=LONG_S)

    def receive(port: int, count: int) -> set[str]:
        with paho("subscriber") as subscriber:
            assert subscriber.connect(port)
            return {subscriber.receive() for _ in range(count)}

    def subscribe(port: int) -> None:
        with paho("subscriber") as subscriber:
            subscriber.connect(port)
            subscriber.subscribe("a")

    gateway = await started(tmp_path)
    await asyncio.to_thread(subscribe, gateway.port)
    acknowledged: list[str] = []
    enough = threading.Event()
    publishing = asyncio.create_task(asyncio.to_thread(publish, gateway.port, acknowledged, enough))
    assert await asyncio.to_thread(enough.wait, LONG_S)
    await gateway.kill()
    await publishing
    await gateway.start()
    received = await asyncio.to_thread(receive, gateway.port, len(acknowledged))
    assert set(acknowledged) <= received
    await gateway.stop()
