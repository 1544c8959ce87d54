"""MQTT.js, the client of web pages and Node, against our gateway."""

import asyncio
import json
from pathlib import Path

import pytest

from tests.gateway.support import LONG_S
from tests.interop.lines import serving

HERE = Path(__file__).parent / "mqtt_js"


@pytest.mark.parametrize("version", ["4", "5"], ids=["3.1.1", "5.0"])
@pytest.mark.parametrize("scheme", ["mqtt", "mqtts", "ws", "wss"])
async def test_mqtt_js_publishes_and_receives(tmp_path: Path, packages: Path, scheme: str, version: str) -> None:
    async with serving(tmp_path) as lines:
        urls = {
            "mqtt": f"mqtt://127.0.0.1:{lines.tcp}",
            "mqtts": f"mqtts://127.0.0.1:{lines.tls}",
            "ws": f"ws://127.0.0.1:{lines.websocket}/mqtt",
            "wss": f"wss://127.0.0.1:{lines.wss}/mqtt",
        }
        process = await asyncio.create_subprocess_exec(
            *("node", str(HERE / "roundtrip.js"), urls[scheme], version, lines.authority),
            cwd=packages,
            stdout=asyncio.subprocess.PIPE,
        )
        output, _ = await asyncio.wait_for(process.communicate(), LONG_S)
    assert process.returncode == 0
    received = sorted((json.loads(line) for line in output.splitlines()), key=lambda one: str(one["topic"]))
    assert [(one["topic"], one["qos"], one["retain"]) for one in received] == [
        ("a/0", 0, False),
        ("a/1", 1, False),
        ("a/2", 2, False),
        ("a/retained", 1, True),
    ]
    assert [one["text"] for one in (received[0], received[1], received[3])] == ["at 0", "at 1", "kept"]
    assert received[2]["size"] == 300_000


async def test_mqtt_js_gets_a_message_once_for_each_of_two_subscriptions_that_overlap(
    tmp_path: Path, packages: Path
) -> None:
    """MQTT.js and Node-RED read one Subscription Identifier of a PUBLISH."""
    async with serving(tmp_path) as lines:
        process = await asyncio.create_subprocess_exec(
            *("node", str(HERE / "overlapping.js"), f"mqtt://127.0.0.1:{lines.tcp}"),
            cwd=packages,
            stdout=asyncio.subprocess.PIPE,
        )
        output, _ = await asyncio.wait_for(process.communicate(), LONG_S)
    assert process.returncode == 0
    *messages, last = map(json.loads, output.splitlines())
    assert last == {"text": "last", "qos": 2, "identifiers": []}
    assert sorted((one["text"], one["qos"], one["identifiers"]) for one in messages) == [
        (f"at {qos}", qos, [identifier]) for qos in (0, 1, 2) for identifier in (1, 2)
    ]
