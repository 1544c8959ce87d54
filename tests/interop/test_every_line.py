"""mosquitto's clients, paho and aiomqtt over every kind of line that they support."""

import asyncio
import queue
import ssl
from pathlib import Path
from typing import Any

import aiomqtt
import pytest
from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion

from tests.gateway.support import LONG_S
from tests.interop.lines import Lines, serving

LINES = ["tcp", "tls", "websocket", "wss", "unix"]
VERSIONS = {"3.1.1": MQTTProtocolVersion.MQTTv311, "5.0": MQTTProtocolVersion.MQTTv5}
TRANSPORTS = {"tcp": "tcp", "tls": "tcp", "websocket": "websockets", "wss": "websockets", "unix": "unix"}
LARGE = "x" * 300_000  # more than a frame, a TLS record or a read


def address(lines: Lines, line: str) -> tuple[str, int]:
    ports = {"tcp": lines.tcp, "tls": lines.tls, "websocket": lines.websocket, "wss": lines.wss, "unix": 1}
    return lines.socket if line == "unix" else "127.0.0.1", ports[line]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("line", LINES)
async def test_paho_publishes_and_receives(tmp_path: Path, line: str, version: str) -> None:
    def walk(lines: Lines) -> None:
        transport: Any = TRANSPORTS[line]
        client = Client(CallbackAPIVersion.VERSION2, "paho", transport=transport, protocol=VERSIONS[version])
        if line in ("tls", "wss"):
            client.tls_set(lines.authority)
        received: queue.Queue[tuple[str, int, bool, str]] = queue.Queue()
        subscribed: queue.Queue[None] = queue.Queue()
        client.on_message = lambda client, _, one: received.put((one.topic, one.qos, one.retain, one.payload.decode()))
        client.on_subscribe = lambda *_: subscribed.put(None)
        client.on_connect = lambda client, *_: client.subscribe("a/#", qos=2)
        client.connect(*address(lines, line))
        client.loop_start()
        subscribed.get(timeout=LONG_S)
        for qos, payload in enumerate(("at 0", "at 1", LARGE)):
            client.publish(f"a/{qos}", payload, qos=qos)
            assert received.get(timeout=LONG_S) == (f"a/{qos}", qos, False, payload)
        client.disconnect()
        client.loop_stop()

    async with serving(tmp_path) as lines:
        await asyncio.to_thread(walk, lines)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("line", LINES)
async def test_aiomqtt_publishes_and_receives(tmp_path: Path, line: str, version: str) -> None:
    async with serving(tmp_path) as lines:
        host, port = address(lines, line)
        transport: Any = TRANSPORTS[line]
        secure = ssl.create_default_context(cafile=lines.authority) if line in ("tls", "wss") else None
        protocol = {"3.1.1": aiomqtt.ProtocolVersion.V311, "5.0": aiomqtt.ProtocolVersion.V5}[version]
        async with aiomqtt.Client(
            host, port, identifier="aiomqtt", transport=transport, tls_context=secure, protocol=protocol
        ) as client:
            await client.publish("a/retained", "kept", qos=1, retain=True)
            await client.subscribe("a/#", qos=2)
            for qos, payload in enumerate(("at 0", "at 1", LARGE)):
                await client.publish(f"a/{qos}", payload, qos=qos)
            received = []
            async with asyncio.timeout(LONG_S):
                async for message in client.messages:
                    received.append((str(message.topic), message.qos, message.retain, message.payload))
                    if len(received) == 4:
                        break
        assert sorted(received) == [
            ("a/0", 0, False, b"at 0"),
            ("a/1", 1, False, b"at 1"),
            ("a/2", 2, False, LARGE.encode()),
            ("a/retained", 1, True, b"kept"),
        ]


@pytest.mark.parametrize("version", ["311", "5"])
@pytest.mark.parametrize("line", ["tcp", "tls", "unix"])
async def test_mosquitto_sub_prints_what_mosquitto_pub_sends(tmp_path: Path, line: str, version: str) -> None:
    """mosquitto's own clients speak no WebSocket."""
    async with serving(tmp_path) as lines:
        where = {
            "tcp": ["-p", str(lines.tcp)],
            "tls": ["-p", str(lines.tls), "--cafile", lines.authority],
            "unix": ["--unix", lines.socket],
        }[line]
        for qos in ("0", "1", "2"):
            retained = ["-V", version, *where, "-t", f"a/{qos}", "-q", qos, "-r", "-m", f"at {qos}"]
            publisher = await asyncio.create_subprocess_exec("mosquitto_pub", *retained)
            assert await asyncio.wait_for(publisher.wait(), LONG_S) == 0
        subscriber = await asyncio.create_subprocess_exec(
            *("mosquitto_sub", "-V", version, *where, "-t", "a/#", "-q", "2", "-C", "3", "-F", "%t %q %r %p"),
            stdout=asyncio.subprocess.PIPE,
        )
        output, _ = await asyncio.wait_for(subscriber.communicate(), LONG_S)
        assert sorted(output.decode().splitlines()) == ["a/0 0 1 at 0", "a/1 1 1 at 1", "a/2 2 1 at 2"]
