"""The client of tests and tools."""

import asyncio

import pytest

from tools.lab.testing.client import Client
from tools.lab.testing.lines import Line
from wire.codec.packets import Connack

CONNACK = b"\x20\x03\x00\x00\x00"


class Silent(Line):
    """A line on which something comes when `came` is done."""

    def __init__(self) -> None:
        self.came: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    def send(self, data: bytes) -> None:
        pass

    async def read(self) -> bytes:
        return await self.came

    def close(self) -> None:
        pass


@pytest.mark.parametrize("turns", range(5))
async def test_a_task_that_is_cancelled_while_a_packet_comes_ends(turns: int) -> None:
    """Python 3.11 forgets that a task is cancelled if what it waits for with `wait_for` is done."""
    client = Client()
    client.line = line = Silent()
    client.protocol.connect(0)

    async def two_packets() -> None:
        assert isinstance(await client.event(), Connack)
        await asyncio.Event().wait()

    task = asyncio.create_task(two_packets())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    line.came.set_result(CONNACK)
    for _ in range(turns):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task], timeout=5)
    assert task.cancelled()
