"""What a broker that speaks AMQP 1.0 may make a gateway keep or do; it is ours, as a real one keeps to its limits."""

import asyncio
import contextlib
import itertools
import socket
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import msgspec
import pytest

from tests.gateway.support import LONG_S, subscribed
from tests.uplink.foreign.support import FAST, routed
from tests.uplink.support import until
from tools.lab.testing.ports import free_port
from tools.lab.torture.attacks.amqp import Broker, cut, send_to_each
from uplink.foreign.config import AmqpConfig
from uplink.foreign.transport import Arrival

proton = pytest.importorskip("proton", reason="python-qpid-proton is not installed")

from uplink.foreign.amqp import MESSAGE_MAX, Amqp  # noqa: E402 - it needs the library


def config(port: int) -> AmqpConfig:
    incoming = [{"address": "/queue/in", "topic": "#"}]
    keys = {"servers": [f"amqp://127.0.0.1:{port}"], "address": "/queue/out", "filters": [], "incoming": incoming}
    return msgspec.convert({"kind": "amqp", **keys, **FAST, "name": "amqp"}, AmqpConfig)


def message(body: bytes) -> bytes:
    return bytes(proton.Message(body=body, subject="a", inferred=True).encode())


async def test_a_message_that_is_too_large_stays_there_and_the_next_one_comes(tmp_path: Path) -> None:
    port, large = free_port(), message(bytes(MESSAGE_MAX))

    def both(_broker: Broker) -> AsyncIterator[bytes]:
        return cut(iter([large, message(b"next")]))

    async with routed(tmp_path, config(port)) as (broker, route):
        subscriber = await subscribed(broker, "subscriber", "#")
        serving = asyncio.create_task(send_to_each(port, both))
        assert (await subscriber.receive()).payload == b"next"
        told = f"a message at '/queue/in' has more than {MESSAGE_MAX} bytes, and stays there"
        await until(lambda: route.queue.state.receive_problem == told)
        await stopped(serving)


class Full:
    """An importer that grants once, and then has no room."""

    def __init__(self) -> None:
        self._grants = iter([None])

    async def wait_for_room(self) -> None:
        if next(self._grants, "none") is not None:
            await asyncio.get_running_loop().create_future()

    def take(self, arrivals: Sequence[Arrival]) -> None:
        pass

    def highest_known(self, origin: str, epoch: int) -> int:
        return 0


async def test_a_broker_that_sends_more_than_it_may_is_left() -> None:
    port, small = free_port(), message(b"")
    serving = asyncio.create_task(send_to_each(port, lambda _: cut(itertools.repeat(small))))
    await until(lambda: is_open(port))
    connection = Amqp(config(port), "gateway-1", (None, None))
    await connection.connect()
    receiving = asyncio.create_task(connection.receive(Full()))
    why = await asyncio.wait_for(connection.ended, LONG_S)
    assert why == "the broker sends more messages than it may"
    await connection.close()
    await stopped(receiving, serving)


def is_open(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
        return True
    return False


async def stopped(*tasks: asyncio.Task[None]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
