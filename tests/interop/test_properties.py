"""Other projects' clients publish, receive and republish properties with our gateway as with mosquitto."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from paho.mqtt.client import MQTTMessage
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.subscribeoptions import SubscribeOptions

from tests.gateway.support import LONG_S, Client, joined, running, tcp_port
from tests.interop.test_paho import Paho, paho
from tools.lab.testing.mosquitto import mosquitto
from wire.identity import IDENTITY_PROPERTY, encode_identity
from wire.properties import CONTENT_TYPE, USER_PROPERTY

PROGRAM = Path(__file__).parent / "mqtt_js/republish.js"
BROKERS = pytest.mark.parametrize("make", ["holdfast", "mosquitto"])
PAIRS = [("a", "2"), ("c", "3"), ("a", "1"), ("a", "2"), ("", "")]
BY_NAME = sorted(PAIRS, key=lambda pair: pair[0])  # MQTT.js keeps them so


@asynccontextmanager
async def broker_of(make: str, folder: Path) -> AsyncIterator[int]:
    if make == "mosquitto":
        with mosquitto(folder) as port:
            yield port
    else:
        async with running(folder) as broker:
            yield tcp_port(broker)


def publish(client: Paho, topic: str, qos: int, retain: bool = False, **properties: Any) -> None:
    packed = Properties(PacketTypes.PUBLISH)
    for name, value in properties.items():
        setattr(packed, name, value)
    client.client.publish(topic, b"x", qos, retain, packed).wait_for_publish(LONG_S)


def subscribe(client: Paho, topic: str) -> None:
    """Subscribes at QoS 2; returns behind the SUBACK."""
    subscribed = threading.Event()
    client.client.on_subscribe = lambda *_: subscribed.set()
    client.client.subscribe(topic, options=SubscribeOptions(2))
    assert subscribed.wait(LONG_S)


def properties_of(message: MQTTMessage) -> dict[str, Any]:
    return dict(message.properties.json())  # type: ignore[union-attr]


@BROKERS
async def test_paho_gets_the_properties_that_it_published(tmp_path: Path, make: str) -> None:
    published: dict[str, Any] = {
        "UserProperty": PAIRS,
        "PayloadFormatIndicator": 1,
        "ContentType": "My name",
        "ResponseTopic": "answers",
        "CorrelationData": b"334",
    }

    def walk(port: int) -> None:
        with paho("client") as client:
            client.connect(port)
            subscribe(client, "a")
            for qos in (0, 1, 2):
                publish(client, "a", qos, **published)
                message = client.messages.get(timeout=LONG_S)
                assert properties_of(message) == {**published, "CorrelationData": "333334"}
                assert message.qos == qos

    async with broker_of(make, tmp_path) as port:
        await asyncio.to_thread(walk, port)


@BROKERS
async def test_paho_gets_the_user_properties_of_retained_messages(tmp_path: Path, make: str) -> None:
    def walk(port: int) -> None:
        with paho("client") as client:
            client.connect(port)
            for qos in (0, 1, 2):
                publish(client, f"a/{qos}", qos, retain=True, UserProperty=PAIRS)
            subscribe(client, "a/+")
            messages = [client.messages.get(timeout=LONG_S) for _ in range(3)]
            assert sorted(message.qos for message in messages) == [0, 1, 2]
            assert all(properties_of(message) == {"UserProperty": PAIRS} for message in messages)

    async with broker_of(make, tmp_path) as port:
        await asyncio.to_thread(walk, port)


@BROKERS
@pytest.mark.parametrize("qos", [1, 2])
async def test_a_flow_of_mqtt_js_publishes_again_what_it_received(
    tmp_path: Path, packages: Path, make: str, qos: int
) -> None:
    count = 20
    async with broker_of(make, tmp_path) as port:
        process = await asyncio.create_subprocess_exec(
            *("node", str(PROGRAM), f"mqtt://127.0.0.1:{port}", str(count)),
            cwd=packages,
            stdout=asyncio.subprocess.PIPE,
        )
        assert process.stdout is not None
        assert await asyncio.wait_for(process.stdout.readline(), LONG_S) == b"ready\n"
        reader = await joined(port, "reader", "out/#", options=qos, receive_maximum=1)
        device = await Client("device").connect(port)
        expected = []
        for number in range(count):
            pairs = [*BY_NAME, ("number", str(number))]
            own = (IDENTITY_PROPERTY, encode_identity("device", 7, number + 1))
            properties = {CONTENT_TYPE: "text/plain", USER_PROPERTY: [*pairs, own] if make == "holdfast" else pairs}
            send = device.publish if qos == 1 else device.publish_once
            await send(f"in/{number % 3}", b"%d" % number, properties=properties)
            expected.append((f"out/{number % 3}", b"%d" % number, {CONTENT_TYPE: "text/plain", USER_PROPERTY: pairs}))
        packets = [await reader.receive() for _ in range(count)]
        assert [(packet.topic, packet.payload, packet.properties) for packet in packets] == expected
        output, _ = await asyncio.wait_for(process.communicate(), LONG_S)
    assert process.returncode == 0
    assert output.split() == [b"0"] * count
