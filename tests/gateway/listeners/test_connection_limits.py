"""Connection limits: connections that are not admitted yet are closed to make room; admitted ones stay."""

import asyncio
import contextlib
import gc
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway.config.schema import LimitsConfig, ListenerConfig, TcpConfig, TlsConfig, UnixConfig, WebSocketConfig
from gateway.listeners.connection_limits import ConnectionLimits
from tests.gateway.listeners.host import LONG_S, EchoHost, Host, hosting, port_number
from tools.lab.testing.certificates import Authority

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]
ANYWHERE = TcpConfig("127.0.0.1", 0)


class Crowd:
    """Connections to one host, closed at the end."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._writers: list[asyncio.StreamWriter] = []

    async def connect(self, source: str = "127.0.0.1") -> Connection:
        """Connects from an address of this machine: all of 127.0.0.0/8 are its own."""
        connection = await asyncio.open_connection("127.0.0.1", port_number(self._host), local_addr=(source, 0))
        self._writers.append(connection[1])
        return connection

    async def log_in(self, source: str = "127.0.0.1") -> Connection:
        reader, writer = await self.connect(source)
        writer.write(b"!")
        assert await asyncio.wait_for(reader.read(1), LONG_S) == b"!"
        return reader, writer

    def close(self) -> None:
        for writer in self._writers:
            writer.transport.abort()


@contextlib.asynccontextmanager
async def crowd(**limits: int) -> AsyncIterator[Crowd]:
    async with hosting(ANYWHERE, limits=LimitsConfig(**limits), kind=EchoHost) as host:
        people = Crowd(host)
        try:
            yield people
        finally:
            people.close()


async def is_closed(connection: Connection) -> bool:
    try:
        return await asyncio.wait_for(connection[0].read(1), LONG_S) == b""
    except ConnectionError:
        return True


async def is_served(connection: Connection) -> bool:
    connection[1].write(b"?")
    try:
        return await asyncio.wait_for(connection[0].read(1), LONG_S) == b"?"
    except ConnectionError:
        return False


async def test_an_address_with_too_many_connections_gets_no_more(caplog: pytest.LogCaptureFixture) -> None:
    async with crowd(connections_per_address=3) as people:
        there = [await people.log_in() for _ in range(3)]
        assert await is_closed(await people.connect())
        assert await is_served(await people.log_in("127.0.0.2"))
        assert all([await is_served(one) for one in there])
        assert "connection refused" in caplog.text
        there[0][1].close()
        await asyncio.sleep(0)
        while not await is_served(await people.connect()):
            pass  # the gateway has not read yet that the other has gone


async def test_a_flood_of_strangers_of_one_address_does_not_keep_its_users_out() -> None:
    async with crowd(connections_per_address=10, unauthenticated=8) as people:
        regular = await people.log_in()
        strangers = [await people.connect() for _ in range(30)]
        newcomer = await people.log_in()
        assert await is_served(regular) and await is_served(newcomer)
        assert await is_closed(strangers[0])


async def test_the_address_with_most_strangers_loses_its_oldest() -> None:
    async with crowd(unauthenticated=6) as people:
        patient = await people.connect("127.0.0.2")
        flood = [await people.connect("127.0.0.3") for _ in range(20)]
        assert await is_closed(flood[0])
        assert await is_served(patient) and await is_served(flood[-1])


async def test_all_connections_together_are_limited() -> None:
    async with crowd(connections=4) as people:
        there = [await people.log_in(f"127.0.0.{number}") for number in range(2, 6)]
        assert await is_closed(await people.connect("127.0.0.9"))
        assert all([await is_served(one) for one in there])


@pytest.mark.parametrize("kind", ["tcp", "tls", "websocket"])
async def test_a_connection_that_is_not_admitted_in_time_is_dropped_in_any_phase(kind: str, tmp_path: Path) -> None:
    """Slow loris: TLS's first record, HTTP's headers or a CONNECT that never comes to its end."""
    certificate, key = map(str, Authority(tmp_path).server())
    cases: dict[str, tuple[ListenerConfig, bytes]] = {
        "tcp": (ANYWHERE, b"\x10"),
        "tls": (TcpConfig(port=0, tls=TlsConfig(certificate, key)), b"\x16\x03\x01\x02"),
        "websocket": (WebSocketConfig(port=0), b"GET /mqtt HTTP/1.1\r\nHost: x\r\nX: "),
    }
    config, word = cases[kind]
    async with hosting(config, limits=LimitsConfig(connect_timeout_s=1)) as host:
        reader, writer = await asyncio.open_connection("127.0.0.1", port_number(host))
        writer.write(word)
        assert await is_closed((reader, writer))
        writer.close()


async def test_an_admitted_connection_has_no_time_limit() -> None:
    async with crowd(connect_timeout_s=1) as people:
        there, slow = await people.log_in(), await people.connect()
        assert await is_closed(slow)
        assert await is_served(there)


async def test_what_strangers_send_is_bounded_and_the_greediest_goes() -> None:
    async with crowd(unauthenticated_bytes=100_000) as people:
        modest, greedy = await people.connect("127.0.0.2"), await people.connect("127.0.0.3")
        modest[1].write(b"?" * 20_000)
        assert await asyncio.wait_for(modest[0].readexactly(20_000), LONG_S)
        greedy[1].write(b"?" * 200_000)
        with contextlib.suppress(ConnectionError):
            while await asyncio.wait_for(greedy[0].read(65536), LONG_S):
                pass
        assert await is_served(modest)


async def test_ten_thousand_half_open_connections_leave_room_for_a_client() -> None:
    async with hosting(ANYWHERE, kind=EchoHost) as host:
        address = "127.0.0.1", port_number(host)
        people = Crowd(host)
        regular = await people.log_in("127.0.0.2")
        half_open: list[socket.socket] = []
        try:
            for number in range(10_000):
                one = socket.socket()
                one.setblocking(False)
                one.connect_ex(address)
                half_open.append(one)
                if number % 500 == 499:
                    assert await is_served(regular)
                    for old in half_open[:-2000]:  # the gateway has dropped them already
                        old.close()
                    del half_open[:-2000]
            newcomer = await people.log_in()
            assert await is_served(newcomer) and await is_served(regular)
        finally:
            people.close()
            for one in half_open:
                one.close()


@pytest.mark.parametrize("turns", range(4))
async def test_a_connection_that_comes_while_the_acceptor_closes_is_closed(turns: int) -> None:
    """Whatever the gateway had done with it until then."""
    async with hosting(ANYWHERE, kind=EchoHost) as host:
        waiting = [socket.create_connection(("127.0.0.1", port_number(host))) for _ in range(10)]
        for _ in range(turns):
            await asyncio.sleep(0)
    gc.collect()
    for one in waiting:
        with one, contextlib.suppress(ConnectionResetError):
            one.settimeout(LONG_S)
            assert one.recv(1) == b""


async def test_local_users_are_counted_too(tmp_path: Path) -> None:
    path = str(tmp_path / "socket")
    async with hosting(UnixConfig(path), limits=LimitsConfig(connections_per_address=2), kind=EchoHost):
        people = [await asyncio.open_unix_connection(path) for _ in range(2)]
        for reader, writer in people:
            writer.write(b"!")
            assert await reader.read(1) == b"!"
        third = await asyncio.open_unix_connection(path)
        assert await is_closed(third)
        for _, writer in [*people, third]:
            writer.close()


async def test_the_books_are_empty_when_all_have_left() -> None:
    limits = ConnectionLimits(LimitsConfig())
    with contextlib.ExitStack() as sockets:
        guests = []
        for number in range(10):
            guest = limits.admit(sockets.enter_context(socket.socket()), f"192.0.2.{number % 3}", "peer")
            assert guest is not None
            guest.note_received(number)
            guests.append(guest)
        for guest in guests[::2]:
            guest.note_admitted()
            guest.note_received(1_000_000_000)
        for guest in guests:
            guest.leave()
            guest.leave()
    kept = {name: value for name, value in vars(limits).items() if name not in ("_limits", "_most", "_empty")}
    await limits.wait_until_empty(0)
    assert not any(kept.values()), kept
