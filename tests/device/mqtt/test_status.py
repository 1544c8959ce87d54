"""What a central broker knows of a device behind a gateway: its status goes over the route, as readings do."""

import asyncio
import json
from pathlib import Path
from queue import Queue
from typing import Any

from paho.mqtt.client import MQTTMessage

from tests.device.firmware import DEADLINE_S, Firmware, tcp
from tests.gateway.support import running, tcp_port
from tests.support.subscriber import subscriber
from tests.uplink.support import route_config
from tests.uplink.support import running as routed
from tools.lab.micropython import MicroPython
from tools.lab.testing.mosquitto import mosquitto
from tools.lab.testing.network_link import NetworkLink

TOPIC = "status/garage"


async def test_a_central_broker_keeps_online_while_the_device_is_connected_and_lost_after_its_power_was_cut(
    micropython: MicroPython, tmp_path: Path
) -> None:
    with mosquitto(tmp_path) as central, subscriber(central, TOPIC) as received:
        link = NetworkLink("127.0.0.1", central)
        config = route_config(await link.open())
        async with running(tmp_path / "store") as broker, routed(broker.log, config):
            device = Firmware(micropython, tmp_path, tcp(tcp_port(broker)), status=TOPIC)
            for status in ("online", "lost", "online"):
                await (device.kill() if status == "lost" else device.start())
                await comes(received, status)
                assert await kept(central) == status
            await link.cut()
            await device.kill()
            await link.open()
            await comes(received, "lost")
            assert await kept(central) == "lost"
        await link.cut()


async def comes(received: "Queue[MQTTMessage]", status: str) -> None:
    """Returns when the device's status is said; the one before may be repeated."""
    while await status_in(received) != status:
        pass


async def kept(port: int) -> Any:
    """What a subscriber that comes now gets at once."""
    with subscriber(port, TOPIC) as received:
        return await status_in(received)


async def status_in(received: "Queue[MQTTMessage]") -> Any:
    message = await asyncio.to_thread(received.get, timeout=DEADLINE_S)
    return json.loads(message.payload)["status"]
