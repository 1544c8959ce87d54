"""What a connection takes is free again as soon as it has ended, without a search for garbage."""

import asyncio
import gc
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from gateway.client import Client as ServedClient
from gateway.connection import Connection
from gateway.listeners.stream_port import StreamPort
from gateway.sender import Sender
from gateway.session import Session
from tests.gateway.support import Client, running, tcp_port, until

ROOMS = (Connection, StreamPort, ServedClient, Sender)


@pytest.fixture(autouse=True)
def no_collection() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


async def leave(client: Client) -> None:
    await client.disconnect()


async def cut(client: Client) -> None:
    client.cut()


async def break_the_rules(client: Client) -> None:
    client.write(b"\x00\x00")
    while await client.event() is not None:
        pass


async def take_over(client: Client) -> None:
    other = await Client("client", session_expiry_s=0).connect(client._writer.get_extra_info("peername")[1])
    while await client.event() is not None:
        pass
    await other.disconnect()


def left() -> list[object]:
    return [one for one in gc.get_objects() if isinstance(one, ROOMS)]


@pytest.mark.parametrize("end", [leave, cut, break_the_rules, take_over])
@pytest.mark.parametrize("expiry_s", [0, 3600])
async def test_nothing_is_left_of_an_ended_connection(
    end: Callable[[Client], Awaitable[None]], expiry_s: int, tmp_path: Path
) -> None:
    async with running(tmp_path) as broker:
        client = await Client("client", session_expiry_s=expiry_s, keep_alive_s=3600).connect(tcp_port(broker))
        await client.publish("a/1", b"x", retain=True)
        await client.publish_once("a/2", b"x", retain=True)
        await client.subscribe("a/#", "$share/group/b", options=2)
        assert {(await client.receive()).qos, (await client.receive()).qos} == {1, 2}
        await end(client)
        client.cut()
        await until(lambda: not left(), "an ended connection is freed")
        if not expiry_s:
            assert not [one for one in gc.get_objects() if isinstance(one, Session)]


async def test_nothing_is_left_of_one_that_never_said_who_it_is(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        _, writer = await asyncio.open_connection("127.0.0.1", tcp_port(broker))
        await until(left, "it is served")
        writer.close()
        await until(lambda: not left(), "an ended connection is freed")
