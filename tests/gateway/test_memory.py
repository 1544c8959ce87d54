"""What a connection takes is free again as soon as it has ended, without a search for garbage."""

import asyncio
import gc
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from gateway.connection.client import Client as ServedClient
from gateway.connection.connection import Connection
from gateway.delivery.sender import Sender
from gateway.listeners.stream import StreamPort
from gateway.sessions.session import Session
from tests.gateway.support import Client, connected, running, tcp_port, until

OF_A_CONNECTION = (Connection, StreamPort, ServedClient, Sender)
Left = Callable[..., list[object]]


@pytest.fixture
def left() -> Iterator[Left]:
    """Returns a function: which objects of some classes has the test made that are not free yet?

    Objects that other tests left in this process do not count.
    """
    gc.collect()
    gc.disable()
    others = alive(*OF_A_CONNECTION, Session)  # held, so that no object of the test takes the place of one of them
    known = set(map(id, others))
    yield lambda *kinds: [one for one in alive(*kinds) if id(one) not in known]
    gc.enable()


def alive(*kinds: type) -> list[object]:
    return [one for one in gc.get_objects() if issubclass(type(one), kinds)]


async def leave(client: Client) -> None:
    await client.disconnect()


async def cut(client: Client) -> None:
    client.cut()


async def break_the_rules(client: Client) -> None:
    client.write(b"\x00\x00")
    while await client.event() is not None:
        pass


async def take_over(client: Client) -> None:
    other = await Client("client", session_expiry_s=0).connect(client.port)
    while await client.event() is not None:
        pass
    await other.disconnect()


@pytest.mark.parametrize("end", [leave, cut, break_the_rules, take_over])
@pytest.mark.parametrize("expiry_s", [0, 3600])
async def test_nothing_is_left_of_an_ended_connection(
    end: Callable[[Client], Awaitable[None]], expiry_s: int, left: Left, tmp_path: Path
) -> None:
    async with running(tmp_path) as broker:
        client = await connected(broker, "client", session_expiry_s=expiry_s, keep_alive_s=3600)
        await client.publish("a/1", b"x", retain=True)
        await client.publish_once("a/2", b"x", retain=True)
        await client.subscribe("a/#", "$share/group/b", options=2)
        assert {(await client.receive()).qos, (await client.receive()).qos} == {1, 2}
        await end(client)
        client.cut()
        await until(lambda: not left(*OF_A_CONNECTION), "an ended connection is freed")
        if not expiry_s:
            assert not left(Session)


async def test_nothing_is_left_of_a_connection_without_a_connect(left: Left, tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        _, writer = await asyncio.open_connection("127.0.0.1", tcp_port(broker))
        await until(lambda: left(*OF_A_CONNECTION), "it is served")
        writer.close()
        await until(lambda: not left(*OF_A_CONNECTION), "an ended connection is freed")
