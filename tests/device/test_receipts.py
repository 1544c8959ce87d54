"""A device on a real MicroPython, and a real gateway that loses its store."""

import asyncio
import shutil
from pathlib import Path

from tests.device.firmware import DEADLINE_S, TOPIC, Firmware, seq, tcp
from tools.lab.micropython import MicroPython
from tools.lab.testing.client import Client
from tools.lab.testing.gateway import Gateway
from wire.identity import RECEIVE

READINGS = 240


async def test_a_gateway_that_lost_its_store_gets_all_that_the_flash_held(
    micropython: MicroPython, tmp_path: Path
) -> None:
    (tmp_path / "gateway").mkdir()
    gateway = Gateway(tmp_path / "gateway")
    device = Firmware(micropython, tmp_path, tcp(gateway.port), readings_limit=READINGS, until="receipt")
    await gateway.up()
    try:
        client = await Client("before", wishes=(RECEIVE,)).connect(gateway.port)
        await client.subscribe(TOPIC)
        await device.start()
        await device.says(f"all {READINGS} readings made")
        made = {line.seq for line in device.journal()}
        await arrived(client, made)
        await device.kill()
        gateway.kill()
        shutil.rmtree(gateway.messages.parent)
        await gateway.up()
        client = await Client("after", wishes=(RECEIVE,)).connect(gateway.port)
        await client.subscribe(TOPIC)
        await device.start()
        await device.says("the gateway has a new store: messages from 1 on go again")
        await arrived(client, made)
    finally:
        await device.kill()
        gateway.kill()


async def arrived(client: Client, numbers: set[int]) -> None:
    """Returns when the client has received the messages of these numbers."""
    found: set[int] = set()
    async with asyncio.timeout(DEADLINE_S):
        while not numbers <= found:
            message = await client.receive()
            found.add(seq(message))
