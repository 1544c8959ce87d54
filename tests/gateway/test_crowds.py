"""Crowds of clients, each of which does little: what they do or leave at one moment delays no other client."""

import asyncio
import socket
import time
import tracemalloc
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from gateway.connection.connection import Connection
from gateway.delivery import LiveHold
from gateway.loop.pace import LineRoom
from gateway.message import Message
from gateway.sessions.publishing import Publishing
from gateway.store import Grant
from tests.gateway.steps import session_of, with_publisher
from tests.gateway.support import all_connected, connected, running, subscribed, tcp_port, until
from wire.codec.packets import MQTT_5, Connect, Subscribe, Will, encode
from wire.properties import SESSION_EXPIRY_INTERVAL, WILL_DELAY_INTERVAL

CROWD = 30
LARGE = 900_000  # bytes of a retained message
NAMES = [f"large/{number}" for number in range(8)]  # more than the system keeps for a client that reads nothing


class Turns:
    """``most`` is the largest growth of a count during one turn of the event loop."""

    def __init__(self) -> None:
        self.most = 0


@asynccontextmanager
async def watched(count: Callable[[], int]) -> AsyncIterator[Turns]:
    """Looks at a count in each turn of the event loop."""
    turns = Turns()

    async def watch() -> None:
        before = count()
        while True:
            await asyncio.sleep(0)
            turns.most, before = max(turns.most, count() - before), count()

    watching = asyncio.create_task(watch())
    try:
        yield turns
    finally:
        watching.cancel()


async def test_sessions_that_expire_together_leave_others_their_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.loop.pace.SLICE_S", 0.0)
    async with running(tmp_path) as broker:
        for client in await all_connected(broker, *(f"client-{n}" for n in range(CROWD)), session_expiry_s=1):
            await client.disconnect()
        time.sleep(1.5)  # the event loop stands still, so all of them are due
        async with watched(lambda: broker.counters.sessions_expired) as turns:
            await until(lambda: broker.counters.sessions_expired == CROWD, "all sessions have expired")
        assert turns.most == 1


async def test_wills_whose_delays_end_together_leave_others_their_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.loop.pace.SLICE_S", 0.0)
    published = 0
    publish = Publishing.publish

    def count(*args: object) -> object:
        nonlocal published
        published += 1
        return publish(*args)  # type: ignore[arg-type]

    last = Will("will", b"gone", 1, properties={WILL_DELAY_INTERVAL: 1})
    async with running(tmp_path) as broker:
        for client in await all_connected(broker, *(f"client-{n}" for n in range(CROWD)), will=last):
            client.cut()
        await until(lambda: all(one.connection is None for one in broker.sessions.all()), "all are gone")
        monkeypatch.setattr(Publishing, "publish", count)
        time.sleep(1.5)
        async with watched(lambda: published) as turns:
            await until(lambda: published == CROWD, "all wills are published")
        assert turns.most == 1


async def test_connections_that_end_together_leave_others_their_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.loop.pace.SLICE_S", 0.0)
    async with running(tmp_path) as broker:

        def gone() -> int:
            return sum(one.connection is None for one in broker.sessions.all())

        for client in await all_connected(broker, *(f"client-{n}" for n in range(CROWD))):
            client.cut()
        async with watched(gone) as turns:
            await until(lambda: gone() == CROWD, "all connections have ended")
        assert turns.most == 1


async def deaf(port: int, name: str) -> socket.socket:
    """Returns the line of a client that subscribes to the large messages and reads nothing, not even its CONNACK."""
    loop, line = asyncio.get_running_loop(), socket.socket()
    line.setblocking(False)
    line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    await loop.sock_connect(line, ("127.0.0.1", port))
    connect = Connect(name, False, 0, None, None, None, {SESSION_EXPIRY_INTERVAL: 3600})
    await loop.sock_sendall(line, encode(connect) + encode(Subscribe(1, [("large/#", 1)], {}), MQTT_5))
    return line


async def test_clients_that_read_nothing_hold_one_large_message_each(tmp_path: Path) -> None:
    async with with_publisher(tmp_path) as (broker, publisher), AsyncExitStack() as lines:
        for name in NAMES:
            await publisher.publish(name, bytes(LARGE), retain=True)
        tracemalloc.start()
        lines.callback(tracemalloc.stop)
        names = [f"deaf-{number}" for number in range(6)]
        for name in names:
            lines.enter_context(await deaf(tcp_port(broker), name))

        def is_stuck(name: str) -> bool:
            session = broker.sessions.get(name)
            return session is not None and isinstance(one := session.connection, Connection) and one.unread > LARGE // 8

        await until(lambda: all(map(is_stuck, names)), "each has more than it reads")
        size, _ = tracemalloc.get_traced_memory()
        assert size < 1.5 * LARGE * len(names)


async def test_a_client_that_reads_gets_its_messages_beside_others_of_its_owner_that_read_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others are disconnected, and lose nothing by that."""
    monkeypatch.setattr("gateway.loop.pace.ROOM_BYTES", LARGE // 2)
    monkeypatch.setattr("gateway.loop.pace.STALLED_S", 0.5)
    async with with_publisher(tmp_path) as (broker, publisher):
        for name in NAMES:
            await publisher.publish(name, bytes(LARGE), retain=True)
        with await deaf(tcp_port(broker), "deaf"):
            await until(lambda: (one := broker.sessions.get("deaf")) is not None and one.owed, "it is owed messages")
            reader = await subscribed(broker, "reader", "large/#")
            assert sorted([(await reader.receive()).topic for _ in NAMES]) == NAMES
            await until(lambda: session_of(broker, "deaf").connection is None, "it is disconnected")
        again = await connected(broker, "deaf")
        topics = [(await again.receive()).topic for _ in NAMES]
        assert sorted(topics) == NAMES


def test_live_messages_that_wait_behind_retained_ones_have_one_room_for_all_clients_of_an_owner() -> None:
    room, message, grant = LineRoom(1_000_000), Message("a", bytes(300_000)), Grant(0, False, ())
    holds = [LiveHold(room, lambda *_: None) for _ in range(4)]
    for hold in holds:
        hold.begin(0)
    assert [hold.keep(message, grant, 1_000_000) for hold in holds] == [True, True, True, False]
    holds[0].close()
    holds[1].end()
    late = LiveHold(room, lambda *_: None)
    late.begin(0)
    assert [late.keep(message, grant, 1_000_000) for _ in range(3)] == [True, True, False]
