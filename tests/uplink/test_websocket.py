"""A route over WebSocket, and over TLS with ALPN."""

import asyncio
import base64
import hashlib
import logging
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import uvloop
from aiohttp import web

from gateway.config.schema import TcpConfig, TlsConfig, WebSocketConfig
from gateway.listeners.websocket import WebSocketListener
from gateway.message import Message
from tests.gateway.support import running as running_broker
from tests.gateway.support import subscribed, user_property
from tests.support.scripted_broker import ScriptedBroker
from tests.support.subscriber import subscriber
from tests.uplink.support import append, get, opened, raw_broker, route_config, running, serving, until
from tools.lab.testing.certificates import Authority
from tools.lab.testing.mosquitto import mosquitto
from uplink.config.route import RouteConfig
from uplink.config.tls import RouteTlsConfig
from uplink.connect.reading import IDLE_PER_S
from uplink.route import Route
from wire.codec.packets import Connack, Puback
from wire.identity import IDENTITY_PROPERTY, RECEIVE
from wire.properties import MAXIMUM_QOS

FRAMES_OF_A_PIECE = 3  # the frames of one message of the relay


def to(port: int, path: str = "") -> RouteConfig:
    """A route to a WebSocket server."""
    return route_config(port, broker=f"ws://127.0.0.1:{port}{path}")


def websocket_port(broker) -> int:
    return next(one.port for one in broker.listeners.all if isinstance(one, WebSocketListener))


@pytest.mark.parametrize("is_encrypted", [False, True], ids=["ws", "wss"])
async def test_a_route_sends_to_another_gateway_over_websocket(tmp_path: Path, is_encrypted: bool) -> None:
    authority = Authority(tmp_path)
    certificate, key = map(str, authority.server())
    listener = WebSocketConfig(port=0, tls=TlsConfig(certificate, key) if is_encrypted else None)
    rules = tmp_path / "rules"
    rules.write_text("allow * publish,subscribe #\nallow - identify *\n")
    async with running_broker(tmp_path / "central", TcpConfig(port=0), listener, acl=str(rules)) as central:
        reader = await subscribed(central, "reader", "#", wishes=(RECEIVE,))
        url = f"{'wss' if is_encrypted else 'ws'}://127.0.0.1:{websocket_port(central)}"
        tls = RouteTlsConfig(str(authority.path)) if is_encrypted else None
        async with opened(tmp_path) as log, running(log, route_config(0, broker=url, tls=tls)):
            await append(log, range(1, 4))
            received = [await reader.receive() for _ in range(3)]
    assert [user_property(packet, IDENTITY_PROPERTY) for packet in received] == [f"00000007/{n}/a" for n in (1, 2, 3)]


@asynccontextmanager
async def relay(port: int) -> AsyncIterator[int]:
    """A WebSocket server of aiohttp before a broker on TCP. It pings, and cuts what it sends into fragments."""

    async def answer(request: web.Request) -> web.WebSocketResponse:
        websocket = web.WebSocketResponse(protocols=("mqtt",), max_msg_size=0)
        await websocket.prepare(request)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)

        async def down() -> None:
            while data := await reader.read(65_536):
                await websocket.ping(b"are you there")
                for start in range(0, len(data), FRAMES_OF_A_PIECE):
                    await websocket.send_bytes(data[start : start + FRAMES_OF_A_PIECE])

        task = asyncio.create_task(down())
        async for message in websocket:
            writer.write(message.data)
        task.cancel()
        writer.close()
        return websocket

    application = web.Application()
    application.router.add_get("/path", answer)
    runner = web.AppRunner(application, shutdown_timeout=0)
    await runner.setup()
    site = web.TCPSite(
        runner,
        "127.0.0.1",
        0,
    )
    await site.start()
    try:
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_messages_of_all_sizes_arrive_through_a_websocket_server_of_another_make(run, tmp_path: Path) -> None:
    payloads = [b"x" * size for size in (0, 1, 60, 125, 126, 65_535, 65_536, 300_000)] * 3

    async def scenario() -> None:
        with mosquitto(tmp_path) as port, subscriber(port, qos=2) as received:
            async with relay(port) as outer, opened(tmp_path) as log, running(log, to(outer, "/path?token=1")):
                for payload in payloads:
                    await log.submit([Message("a", payload, 2)])
                assert [(await get(received)).payload for _ in payloads] == payloads

    run(scenario())


async def open_websocket(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Accepts a client's WebSocket as a server does, with nothing behind the answer."""
    request = await reader.readuntil(b"\r\n\r\n")
    key = request.partition(b"Sec-WebSocket-Key: ")[2].partition(b"\r\n")[0]
    accept = base64.b64encode(hashlib.sha1(key + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest())
    writer.write(
        b"HTTP/1.1 101 Switching Protocols\r\nupgrade: WebSocket\r\nconnection: upgrade\r\n"
        b"sec-websocket-accept: " + accept + b"\r\nsec-websocket-protocol: mqtt\r\n\r\n"
    )


@pytest.mark.parametrize(
    ("answer", "complaint"),
    [
        (b"HTTP/1.1 404 Not Found\r\n\r\n", "the WebSocket cannot be opened: the server answers '404 Not Found'"),
        (b"SSH-2.0-OpenSSH_9.2\r\n\r\n", "the WebSocket cannot be opened: the answer is not HTTP"),
        (b"x" * 20_000, "the WebSocket cannot be opened: the answer is not HTTP"),
        (b"HTTP/1.1 101 Sure\r\nUpgrade: websocket\r\n\r\n", "the answer is for another request"),
    ],
    ids=["no such path", "no HTTP", "no end", "another answer"],
)
async def test_a_server_that_opens_no_websocket_is_told_with_its_reason_and_not_asked_for_3_1_1(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, answer: bytes, complaint: str
) -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(answer)

    asked: list[bytes] = []
    caplog.set_level(logging.WARNING)
    async with raw_broker(talk) as port, opened(tmp_path) as log, running(log, to(port)):
        await until(lambda: len(asked) > 3)
    assert complaint in caplog.text
    assert [record.getMessage() for record in caplog.records if "3.1.1" in record.getMessage()] == []


@pytest.mark.parametrize(
    ("frame", "complaint"),
    [
        (b"\x82\x84aaaabbbb", "the broker sends a frame with a mask"),
        (b"\x81\x01a", "the broker sends a frame of text"),
        (b"\x88\x06\x03\xf1busy", "the broker closed the WebSocket, code 1009: 'busy'"),
    ],
)
async def test_a_websocket_that_ends_is_told_with_its_reason(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, frame: bytes, complaint: str
) -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await open_websocket(reader, writer)
        writer.write(frame)

    caplog.set_level(logging.WARNING)
    async with raw_broker(talk) as port, opened(tmp_path) as log, running(log, to(port)):
        await until(lambda: complaint in caplog.text)


async def test_a_flood_of_pings_is_read_slowly(tmp_path: Path) -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await open_websocket(reader, writer)
        await reader.read(65_536)
        writer.write(b"\x82\x07" + Connack(False, 0, {MAXIMUM_QOS: 1}).encode())
        await reader.read(65_536)
        writer.write(b"\x89\0" * (3 * IDLE_PER_S) + b"\x82\x04" + Puback(1).encode())
        while await reader.read(65_536):
            pass

    async with raw_broker(talk) as port, opened(tmp_path) as log:
        route = Route(to(port), "gateway-1", log)
        await append(log, range(1, 2))
        started_s = time.monotonic()
        async with serving(route):
            await until(lambda: route.queue.state.acknowledged_ms > 0)
    assert time.monotonic() - started_s >= 2.0


async def test_a_route_asks_for_the_protocol_that_the_server_serves_beside_others(tmp_path: Path) -> None:
    """As AWS IoT does on port 443."""
    authority, broker = Authority(tmp_path), ScriptedBroker()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authority.server())
    context.set_alpn_protocols(["http/1.1", "x-amzn-mqtt-ca"])
    selected: list[str | None] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        selected.append(writer.get_extra_info("ssl_object").selected_alpn_protocol())
        await broker.serve(reader, writer)

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    tls = RouteTlsConfig(str(authority.path), alpn="x-amzn-mqtt-ca")
    config = route_config(0, broker=f"mqtts://127.0.0.1:{server.sockets[0].getsockname()[1]}", tls=tls)
    async with opened(tmp_path) as log, running(log, config):
        await append(log, range(1, 2))
        await until(lambda: bool(broker.publishes) and bool(broker.publishes[-1]))
    server.close()
    await broker.all_closed()
    assert selected == ["x-amzn-mqtt-ca"]
