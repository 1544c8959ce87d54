"""What every kind of line promises the broker: one suite, several subjects, on both event loops."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Protocol

import aiohttp
import pytest
import uvloop

from gateway.config.schema import ListenerConfig, TcpConfig, TlsConfig, UnixConfig, WebSocketConfig
from gateway.port import Port
from tests.gateway.listeners.host import LONG_S, EchoHost, Host, hosting, port_number, take
from tools.lab.testing.certificates import Authority

KINDS = ["tcp", "tcp6", "tls", "unix", "websocket", "wss"]
FAR_TOO_MUCH = 100_000_000  # bytes
LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
}


class Far(Protocol):
    """The client's end of a line."""

    async def write(self, data: bytes) -> None: ...
    async def read(self) -> bytes: ...
    async def close(self) -> None: ...


class StreamFar:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def write(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def read(self) -> bytes:
        return await asyncio.wait_for(self._reader.read(65536), LONG_S)

    async def close(self) -> None:
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()


class WebSocketFar:
    def __init__(self, session: aiohttp.ClientSession, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._session, self._socket = session, socket

    async def write(self, data: bytes) -> None:
        await self._socket.send_bytes(data)

    async def read(self) -> bytes:
        message = await asyncio.wait_for(self._socket.receive(), LONG_S)
        return bytes(message.data) if message.type is aiohttp.WSMsgType.BINARY else b""

    async def close(self) -> None:
        await self._socket.close()
        await self._session.close()


class Line:
    """A kind of line: its listener, and how a client connects to it."""

    def __init__(self, kind: str, folder: Path) -> None:
        self._kind = kind
        self._path = str(folder / "socket")
        tls = None
        self._client_tls: ssl.SSLContext | None = None
        if kind in ("tls", "wss"):
            authority = Authority(folder / "tls")
            certificate, key = authority.server()
            tls = TlsConfig(str(certificate), str(key))
            self._client_tls = ssl.create_default_context(cafile=str(authority.path))
        listeners: dict[str, ListenerConfig] = {
            "tcp": TcpConfig(port=0),
            "tcp6": TcpConfig("::1", 0),
            "tls": TcpConfig(port=0, tls=tls),
            "unix": UnixConfig(self._path),
            "websocket": WebSocketConfig(port=0),
            "wss": WebSocketConfig(port=0, tls=tls),
        }
        self.config = listeners[kind]

    async def connect(self, host: Host) -> Far:
        if self._kind == "unix":
            return StreamFar(*await asyncio.open_unix_connection(self._path))
        port = port_number(host)
        if self._kind in ("websocket", "wss"):
            session = aiohttp.ClientSession()
            url = f"{'ws' if self._kind == 'websocket' else 'wss'}://127.0.0.1:{port}/mqtt"
            soon = aiohttp.ClientWSTimeout(ws_close=0.5)  # some hosts of these tests do not read
            socket = await session.ws_connect(
                url, protocols=["mqtt"], ssl=self._client_tls or True, max_msg_size=0, timeout=soon
            )
            return WebSocketFar(session, socket)
        address = "::1" if self._kind == "tcp6" else "127.0.0.1"
        return StreamFar(*await asyncio.open_connection(address, port, ssl=self._client_tls))

    @contextlib.asynccontextmanager
    async def client(self, host: Host) -> AsyncIterator[Far]:
        far = await self.connect(host)
        try:
            yield far
        finally:
            await far.close()


@pytest.fixture(params=LOOPS)
def event_loop_kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=KINDS)
def line(request: pytest.FixtureRequest, tmp_path: Path) -> Line:
    return Line(request.param, tmp_path)


def run(loop: str, test: Callable[[], object]) -> None:
    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        runner.run(asyncio.wait_for(test(), 170))  # type: ignore[arg-type]


def test_bytes_come_back_as_they_went(line: Line, event_loop_kind: str) -> None:
    """Far more than any buffer on the way holds, while the client does not read: nothing is lost or out of order."""
    data = bytes(range(256)) * 8192  # 2 MiB

    async def walk() -> None:
        async with hosting(line.config, kind=EchoHost) as host, line.client(host) as far:
            await far.write(b"!")

            async def write() -> None:
                for start in range(0, len(data), 100_000):
                    await far.write(data[start : start + 100_000])

            writing = asyncio.create_task(write())
            received = bytearray()
            while len(received) < len(data) + 1:
                piece = await far.read()
                assert piece
                received += piece
            await writing
            assert received == b"!" + data

    run(event_loop_kind, walk)


async def settled(port: Port) -> None:
    """Waits until nothing more of the backlog goes out."""
    before = -1
    while port.backlog != before:
        before = port.backlog
        await asyncio.sleep(0.05)


def test_a_client_that_reads_nothing_is_seen_in_the_backlog(line: Line, event_loop_kind: str) -> None:
    async def walk() -> None:
        async with hosting(line.config) as host, line.client(host) as far:
            port = await host.next_port()
            port.note_admitted()
            size = 0
            while port.backlog < 1_000_000:  # the system's buffers grow as they are filled
                assert size < FAR_TOO_MUCH
                for _ in range(20):
                    port.send(bytes(100_000))
                    size += 100_000
                await settled(port)
            draining = asyncio.create_task(port.drain())
            await settled(port)
            assert not draining.done()
            received = 0
            while received < size:
                received += len(await far.read())
            await asyncio.wait_for(draining, LONG_S)
            assert received == size

    run(event_loop_kind, walk)


def test_the_last_words_arrive_before_the_end(line: Line, event_loop_kind: str) -> None:
    async def walk() -> None:
        async with hosting(line.config) as host, line.client(host) as far:
            port = await host.next_port()
            port.send(b"farewell")
            port.close()
            port.send(b"too late")
            assert await far.read() == b"farewell"
            assert await far.read() == b""
            assert await asyncio.wait_for(port.receive(), LONG_S) == b""
            with pytest.raises(OSError, match="ended"):
                await port.drain()

    run(event_loop_kind, walk)


def test_the_last_words_arrive_even_where_the_client_goes_on_sending(line: Line, event_loop_kind: str) -> None:
    """The host has not read all that came: a mere close of TCP would reset the connection."""

    async def walk() -> None:
        async with hosting(line.config) as host, line.client(host) as far:
            port = await host.next_port()
            await far.write(bytes(30_000))
            assert await port.receive()
            await far.write(bytes(30_000))
            port.send(b"farewell")
            port.close()
            with contextlib.suppress(OSError):
                await far.write(bytes(30_000))
            assert await far.read() == b"farewell"

    run(event_loop_kind, walk)


def test_a_client_that_leaves_ends_the_line(line: Line, event_loop_kind: str) -> None:
    async def walk() -> None:
        async with hosting(line.config) as host:
            async with line.client(host):
                port = await host.next_port()
                waiting = asyncio.create_task(take(port))
            assert await asyncio.wait_for(waiting, LONG_S) == b""
            port.close()

    run(event_loop_kind, walk)


def test_waiting_for_bytes_can_be_given_up_and_begun_again(line: Line, event_loop_kind: str) -> None:
    async def walk() -> None:
        async with hosting(line.config) as host, line.client(host) as far:
            port = await host.next_port()
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(port.receive(), 0.05)
            await far.write(b"here")
            assert await asyncio.wait_for(take(port), LONG_S) == b"here"

    run(event_loop_kind, walk)


def test_the_peer_is_known(line: Line, event_loop_kind: str) -> None:
    async def walk() -> None:
        async with hosting(line.config) as host, line.client(host):
            port = await host.next_port()
            visitor = port.visitor
            if isinstance(line.config, UnixConfig):
                assert port.peer == visitor.host and visitor.host.startswith("unix user ")
            elif isinstance(line.config, TcpConfig) and line.config.host == "::1":
                assert visitor.host == "::1" and port.peer.startswith("[::1]:")
            else:
                assert visitor.host == "127.0.0.1" and port.peer.startswith("127.0.0.1:")
            assert (visitor.tls or "").startswith("TLSv1.3") == bool(getattr(line.config, "tls", None))
            assert visitor.certificate_user is None and visitor.may_be_anonymous

    run(event_loop_kind, walk)
