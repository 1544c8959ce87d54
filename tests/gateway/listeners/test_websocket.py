"""The WebSocket listener: its handshake, frames of all kinds, and web pages that are not ours."""

import asyncio
import base64
import contextlib
import gzip
import os
import random
import socket
import ssl
import struct
import tracemalloc
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace

import aiohttp
import pytest

from gateway.broker import Broker
from gateway.config.schema import LimitsConfig, TlsConfig, WebSocketConfig
from gateway.listeners.websocket import FRAMES_JOINED, IDLE_FRAMES_MAX
from gateway.log_fields import KeyValueFormatter
from gateway.loop.pace import SLICE_S
from tests.gateway.listeners.host import LONG_S, EchoHost, Host, hosting, port_number
from tests.gateway.support import reasons_of, running, said_of
from tools.lab.testing.certificates import Authority
from wire.bulk.connection import BulkServerConnection
from wire.bulk.websocket_frames import Frames
from wire.codec.packets import Connect, Pingreq, Publish, encode

OTHER_PATHS = WebSocketConfig(port=0, paths=("/ws", "/a/b"))
CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10


class RawWebSocket:
    """A client that puts its frames together itself, so that it can do it wrong."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def handshake(self, **headers: str) -> int:
        """Returns the status of the answer."""
        lines = {
            "Host": "gateway.local:8083",
            "Upgrade": "websocket",
            "Connection": "Upgrade",
            "Sec-WebSocket-Key": base64.b64encode(os.urandom(16)).decode(),
            "Sec-WebSocket-Version": "13",
            "Sec-WebSocket-Protocol": "mqtt",
        } | {name.replace("_", "-"): value for name, value in headers.items()}
        path = lines.pop("path", "/mqtt")
        text = "".join(f"{name}: {value}\r\n" for name, value in lines.items() if value)
        self.writer.write(f"GET {path} HTTP/1.1\r\n{text}\r\n".encode())
        answer = await asyncio.wait_for(self.reader.readuntil(b"\r\n\r\n"), LONG_S)
        self.answer = answer.decode()
        return int(answer.split()[1])

    def send(self, opcode: int, data: bytes, *, final: bool = True, masked: bool = True) -> None:
        self.writer.write(self.frame(opcode, data, final=final, masked=masked))

    def frame(self, opcode: int, data: bytes, *, final: bool = True, masked: bool = True) -> bytes:
        mask = os.urandom(4) if masked else b""
        bit = 0x80 if masked else 0
        length = len(data)
        if length < 126:
            size = bytes([bit | length])
        elif length < 65536:
            size = bytes([bit | 126]) + struct.pack(">H", length)
        else:
            size = bytes([bit | 127]) + struct.pack(">Q", length)
        sent = bytes(byte ^ mask[place % 4] for place, byte in enumerate(data)) if masked else data
        return bytes([opcode | (0x80 if final else 0)]) + size + mask + sent

    async def receive(self) -> tuple[int, bytes]:
        """The next frame's kind and data."""
        first, length = await asyncio.wait_for(self.reader.readexactly(2), LONG_S)
        if length == 126:
            (length,) = struct.unpack(">H", await self.reader.readexactly(2))
        elif length == 127:
            (length,) = struct.unpack(">Q", await self.reader.readexactly(8))
        return first & 0x0F, await self.reader.readexactly(length)


@contextlib.asynccontextmanager
async def raw(host: Host | Broker) -> AsyncIterator[RawWebSocket]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port_number(host))
    try:
        yield RawWebSocket(reader, writer)
    finally:
        writer.transport.abort()


async def test_the_subprotocol_is_mqtt() -> None:
    async with hosting(WebSocketConfig(port=0), kind=EchoHost) as host:
        async with raw(host) as client:
            assert await client.handshake(Sec_WebSocket_Protocol="graphql, mqtt") == 101
            assert "Sec-WebSocket-Protocol: mqtt\r\n" in client.answer
        async with raw(host) as client:
            assert await client.handshake(Sec_WebSocket_Protocol="graphql") == 400


async def test_a_client_that_offers_no_subprotocol_is_let_in() -> None:
    async with hosting(WebSocketConfig(port=0), kind=EchoHost) as host, raw(host) as client:
        assert await client.handshake(Sec_WebSocket_Protocol="") == 101
        assert "Sec-WebSocket-Protocol" not in client.answer
        client.send(BINARY, b"!hello")
        assert await client.receive() == (BINARY, b"!hello")


async def test_clients_connect_at_the_listed_paths_and_no_others() -> None:
    for config, listed in [(WebSocketConfig(port=0), ("/", "/mqtt", "/mqtt?token=1")), (OTHER_PATHS, ("/ws", "/a/b"))]:
        async with hosting(config, kind=EchoHost) as host:
            for path in listed:
                async with raw(host) as client:
                    assert await client.handshake(path=path) == 101, path
            for path in ("/mqtt/", "/ws/..", "//", "/other"):
                async with raw(host) as client:
                    assert await client.handshake(path=path) == 404, path


async def test_what_is_no_websocket_of_ours_is_told_so_and_closed() -> None:
    async with hosting(WebSocketConfig(port=0)) as host:
        for headers, status in [({"path": "/a"}, 404), ({"Upgrade": ""}, 426), ({"Sec_WebSocket_Key": "x"}, 426)]:
            async with raw(host) as client:
                assert await client.handshake(**headers) == status
                assert "gateway" not in client.answer
                await asyncio.wait_for(client.reader.read(), LONG_S)
        async with raw(host) as client:
            client.writer.write(b"\x10\x10\x00\x04MQTT\r\n\r\n")
            assert b" 400 " in await asyncio.wait_for(client.reader.read(), LONG_S)
        assert not host.ports


@pytest.mark.parametrize(
    "body",
    [b"Transfer-Encoding: chunked\r\n\r\n-1\r\n", b"Content-Encoding: gzip\r\nContent-Length: 9\r\n\r\nno gzip\r\n"],
    ids=["chunked", "gzip"],
)
async def test_a_request_is_answered_without_a_look_at_its_body(body: bytes) -> None:
    """Many chunks, or zeros that are small only while they are compressed, would take all other clients' time."""
    async with hosting(WebSocketConfig(port=0)) as host, raw(host) as client:
        client.writer.write(b"POST /mqtt HTTP/1.1\r\nHost: localhost\r\n" + body)
        assert (await asyncio.wait_for(client.reader.read(), LONG_S)).split()[1] == b"426"


async def test_a_compressed_body_is_not_unpacked() -> None:
    body = gzip.compress(bytes(60 << 20))
    async with hosting(WebSocketConfig(port=0)) as host, raw(host) as client:
        tracemalloc.start()
        headers = b"Content-Encoding: gzip\r\nContent-Length: %d\r\n" % len(body)
        client.writer.write(b"POST /mqtt HTTP/1.1\r\nHost: localhost\r\n" + headers + b"\r\n" + body)
        with contextlib.suppress(ConnectionError):
            await asyncio.wait_for(client.reader.read(), LONG_S)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
        tracemalloc.stop()


@pytest.mark.parametrize("cut", [1, 3, 1000])
async def test_a_request_of_many_headers_is_refused(cut: int) -> None:
    head = b"GET /mqtt HTTP/1.1\r\nHost: localhost\r\n" + b"a:\r\n" * 5_000 + b"\r\n"
    async with hosting(WebSocketConfig(port=0)) as host, raw(host) as client:
        client.writer.write(head[:-cut])
        await client.writer.drain()
        client.writer.write(head[-cut:])
        assert (await asyncio.wait_for(client.reader.readline(), LONG_S)).split()[1] == b"431"


async def test_frames_that_come_with_the_request_are_read() -> None:
    async with hosting(WebSocketConfig(port=0), kind=EchoHost) as host, raw(host) as client:
        frame = client.frame(BINARY, b"early")
        head = b"GET /mqtt HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        head += b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n"
        for piece in (head[:-3], head[-3:-1], head[-1:] + frame[:5], frame[5:]):
            client.writer.write(piece)
            await client.writer.drain()
            await asyncio.sleep(0)
        await asyncio.wait_for(client.reader.readuntil(b"\r\n\r\n"), LONG_S)
        assert await client.receive() == (BINARY, b"early")


async def test_a_websocket_to_a_wrong_path_is_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async with hosting(WebSocketConfig(port=0)) as host, raw(host) as client:
        assert await client.handshake(path="/ws?token=s3cret") == 404
    (about,) = said_of(caplog, "connection refused")
    assert (
        about["path"] == "/ws"
        and about["reason"] == "MQTT is at / and /mqtt"
        and about["peer"].startswith("127.0.0.1:")
    )


async def test_fragments_with_a_ping_between_them_are_one_stream() -> None:
    async with hosting(WebSocketConfig(port=0), kind=EchoHost) as host, raw(host) as client:
        assert await client.handshake() == 101
        client.send(BINARY, b"one ", final=False)
        client.send(PING, b"alive?")
        client.send(CONTINUATION, b"packet ", final=False)
        client.send(CONTINUATION, b"in three")
        client.send(BINARY, b"")
        client.send(PONG, b"unasked")
        client.send(BINARY, b", next")
        got: list[tuple[int, bytes]] = []
        while b"".join(data for kind, data in got if kind == BINARY) != b"one packet in three, next":
            got.append(await client.receive())
        assert [frame for frame in got if frame[0] != BINARY] == [(PONG, b"alive?")]


@pytest.mark.parametrize(
    ("opcode", "data", "code"),
    [
        (TEXT, b"text", 1003),  # [MQTT-6.0.0-1]
        (CONTINUATION, b"of nothing", 1002),
        (3, b"reserved", 1002),
        (TEXT, b"\xff\xfe", 1003),
        (PING, b"x" * 126, 1002),
    ],
)
async def test_a_wrong_frame_ends_that_connection_and_says_why(opcode: int, data: bytes, code: int) -> None:
    async with hosting(WebSocketConfig(port=0), kind=EchoHost) as host:
        async with raw(host) as client:
            assert await client.handshake() == 101
            client.send(opcode, data)
            kind, said = await client.receive()
            assert (kind, struct.unpack(">H", said[:2])[0]) == (CLOSE, code)
            client.send(CLOSE, said[:2])
            assert await asyncio.wait_for(client.reader.read(), LONG_S) == b""
        async with raw(host) as client:
            assert await client.handshake() == 101


async def test_a_frame_without_a_mask_ends_that_connection_and_says_why() -> None:
    """[RFC 6455 section 5.1]"""
    async with hosting(WebSocketConfig(port=0), kind=EchoHost) as host, raw(host) as client:
        assert await client.handshake() == 101
        client.send(BINARY, b"masked")
        assert await client.receive() == (BINARY, b"masked")
        client.send(BINARY, b"", masked=False)
        kind, said = await client.receive()
        assert (kind, struct.unpack(">H", said[:2])[0]) == (CLOSE, 1002)
        assert await asyncio.wait_for(client.reader.read(), LONG_S) == b""


@pytest.mark.parametrize(
    ("size", "piece"),
    [(5, 1), (5, 3), (5, 100_000), (126, 1), (126, 3), (126, 100_000), (70_000, 7), (70_000, 100_000)],
)
async def test_nothing_of_a_frame_without_a_mask_is_taken(
    size: int, piece: int, caplog: pytest.LogCaptureFixture
) -> None:
    async with hosting(WebSocketConfig(port=0), kind=EchoHost) as host, raw(host) as client:
        assert await client.handshake() == 101
        frames = b"".join(client.frame(BINARY, b"a" * length) for length in (1, 125, 126, 300))
        frames += client.frame(PING, b"here") + client.frame(BINARY, b"b" * size, masked=False)
        for start in range(0, len(frames), piece):
            client.writer.write(frames[start : start + piece])
            await asyncio.sleep(0)
        echoed = b""
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):  # it may be reset
            while (received := await client.receive())[0] != CLOSE:
                echoed += received[1] if received[0] == BINARY else b""
        assert set(echoed) <= set(b"a")
    assert reasons_of(caplog) == ["a frame without a mask"]


async def test_frames_that_are_masked_pass_however_they_are_cut(seed: int) -> None:
    chance = random.Random(seed)
    async with hosting(WebSocketConfig(port=0), kind=EchoHost) as host, raw(host) as client:
        assert await client.handshake() == 101
        sent = [chance.randbytes(chance.choice([0, 1, 125, 126, 127, 300, 65_535, 65_536])) for _ in range(30)]
        frames = b"".join(client.frame(BINARY, data) for data in sent)
        for start in range(0, len(frames), 7000):
            client.writer.write(frames[start : start + 7000])
        wanted, echoed = b"".join(sent), b""
        while len(echoed) < len(wanted):
            kind, data = await client.receive()
            assert kind == BINARY
            echoed += data
        assert echoed == wanted


async def test_a_fragment_goes_on_before_its_message_is_whole() -> None:
    async with hosting(WebSocketConfig(port=0), kind=EchoHost) as host, raw(host) as client:
        assert await client.handshake() == 101
        client.send(BINARY, b"begin", final=False)
        client.send(CLOSE, b"\x03\xe8")
        assert await client.receive() == (BINARY, b"begin")


async def test_what_has_come_of_a_frame_goes_on_however_long_it_is_to_be() -> None:
    """Nothing of it is kept, though its length says 8 EiB."""
    async with hosting(WebSocketConfig(port=0), kind=EchoHost) as host, raw(host) as client:
        assert await client.handshake() == 101
        client.writer.write(b"\x82\xff" + struct.pack(">Q", (1 << 63) - 1) + bytes(4) + b"begin")
        assert await client.receive() == (BINARY, b"begin")


async def test_a_frame_whose_length_has_its_highest_bit_is_refused() -> None:
    """[RFC 6455 section 5.2]"""
    async with hosting(WebSocketConfig(port=0), kind=EchoHost) as host, raw(host) as client:
        assert await client.handshake() == 101
        client.writer.write(b"\x82\xff" + struct.pack(">Q", 1 << 63) + b"mask")
        kind, said = await client.receive()
        assert (kind, struct.unpack(">H", said[:2])[0]) == (CLOSE, 1002)


@pytest.mark.parametrize(
    ("opcode", "final"), [(PING, True), (PONG, True), (BINARY, True), (CONTINUATION, False)], ids=str
)
async def test_a_flood_of_frames_without_data_ends_that_connection(opcode: int, final: bool) -> None:
    """The client is a stranger yet: it has sent no CONNECT. Its Close behind the flood would be answered with 1000."""
    async with hosting(WebSocketConfig(port=0), kind=EchoHost) as host, raw(host) as client:
        assert await client.handshake() == 101
        begin = client.frame(BINARY, b"", final=False) if opcode == CONTINUATION else b""
        flood = client.frame(opcode, b"", final=final) * (2 * IDLE_FRAMES_MAX)
        client.writer.write(begin + flood + client.frame(CLOSE, b"\x03\xe8"))
        codes = []
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):  # it may be reset
            while True:
                kind, data = await client.receive()
                codes += [struct.unpack(">H", data[:2])[0]] if kind == CLOSE else []
        assert codes == [1008]


async def test_pings_and_empty_frames_among_data_are_no_flood() -> None:
    """A library may send each message as a fragment and an empty last one; only a row without data is a flood."""
    async with hosting(WebSocketConfig(port=0), kind=EchoHost) as host, raw(host) as client:
        assert await client.handshake() == 101
        once = client.frame(BINARY, b"a", final=False) + client.frame(PING, b"") + client.frame(CONTINUATION, b"")
        client.writer.write(once * (2 * IDLE_FRAMES_MAX))
        echoed = b""
        while len(echoed) < 2 * IDLE_FRAMES_MAX:
            kind, data = await client.receive()
            assert kind in (BINARY, PONG)
            echoed += data
        assert set(echoed) == set(b"a")


async def test_frames_are_read_so_many_at_a_time() -> None:
    """What one reading of the socket brought is not worked through at once: others have their turns between pieces."""
    async with hosting(WebSocketConfig(port=0)) as host, raw(host) as client:
        assert await client.handshake() == 101
        sent = 10 * FRAMES_JOINED
        client.writer.write(b"".join(client.frame(BINARY, b"\xc0\x00") for _ in range(sent)))
        port = await host.next_port()
        pieces: list[bytes] = []
        while sum(map(len, pieces)) < 2 * sent:
            pieces += port.unpack(await asyncio.wait_for(port.receive(), LONG_S))
        assert b"".join(pieces) == b"\xc0\x00" * sent
        assert max(map(len, pieces)) == 2 * FRAMES_JOINED


async def test_packets_in_small_frames_share_a_slice_as_those_of_tcp_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a client that puts each PINGREQ into a frame of its own begins a slice with each, and none is ever over."""
    now_s = handled = most = 0.0

    def tick() -> float:
        nonlocal now_s
        now_s += SLICE_S / 10
        return now_s

    def count(protocol: BulkServerConnection, data: bytes, now_ms: int) -> None:
        nonlocal handled
        handled += 1
        receive_data(protocol, data, now_ms)

    async def watch() -> None:
        nonlocal handled, most
        while True:
            most, handled = max(most, handled), 0
            await asyncio.sleep(0)

    receive_data = BulkServerConnection.receive_data
    monkeypatch.setattr(BulkServerConnection, "receive_data", count)
    monkeypatch.setattr("gateway.loop.pace.time", SimpleNamespace(perf_counter=tick))
    async with running(tmp_path, WebSocketConfig(port=0)) as broker, raw(broker) as client:
        assert await client.handshake() == 101
        client.send(BINARY, encode(Connect("c")))
        assert (await client.receive())[0] == BINARY
        watching = asyncio.create_task(watch())
        pings = b"".join(client.frame(BINARY, encode(Pingreq())) for _ in range(1_000))
        client.writer.write(pings + client.frame(BINARY, encode(Publish("a", b"", 1, packet_identifier=1))))
        answers = b""
        while not answers.endswith(b"\x40\x03\x00\x01\x10"):
            answers += (await client.receive())[1]
        watching.cancel()
        assert 0 < most <= 20


def test_frames_that_are_not_asked_for_are_there_the_next_time() -> None:
    frames = Frames()
    frame = b"\x82\x81\x00\x00\x00\x00"
    assert next(frames.read(frame + b"a" + frame + b"b" + frame)) == (BINARY, b"a")
    assert list(frames.read(b"")) == [(BINARY, b"b")]
    assert list(frames.read(b"c" + frame[:3])) == [(BINARY, b"c")]
    assert list(frames.read(frame[3:] + b"d")) == [(BINARY, b"d")]


async def test_what_a_stranger_sends_in_one_message_counts_before_it_is_whole() -> None:
    limits = LimitsConfig(unauthenticated_bytes=65_536)
    async with hosting(WebSocketConfig(port=0), limits=limits) as host, raw(host) as client:
        assert await client.handshake() == 101
        client.send(BINARY, bytes(100_000), final=False)
        with contextlib.suppress(ConnectionError):
            assert await asyncio.wait_for(client.reader.read(), LONG_S) in (b"", b"\x88\x02\x03\xe8")


async def test_a_browser_brings_its_page_and_foreign_pages_are_refused() -> None:
    config = WebSocketConfig(port=0, origins=("https://dashboard.example.org",))
    async with hosting(config) as host:
        for origin, status in [
            ("http://192.0.2.1", 101),
            ("https://192.0.2.1:8443", 101),
            ("https://dashboard.example.org", 101),
            ("https://dashboard.example.org.evil.example", 403),
            ("http://dashboard.example.org", 403),
            ("null", 403),
            ("http://[bad", 403),
        ]:
            async with raw(host) as client:
                assert await client.handshake(Host="192.0.2.1:8083", Origin=origin) == status, origin
    async with hosting(WebSocketConfig(port=0, origins=("*",))) as host, raw(host) as client:
        assert await client.handshake(Origin="https://anywhere.example") == 101


async def test_a_page_under_a_foreign_name_that_resolves_to_us_is_not_our_own(tmp_path: Path) -> None:
    """A browser takes any site's name for the gateway's, once that site's DNS says so; TLS would have noticed."""
    own = socket.gethostname().lower()
    async with hosting(WebSocketConfig(port=0)) as host:
        for name, status in [("evil.example", 403), ("localhost", 101), (own, 101), (f"{own}.local", 101)]:
            async with raw(host) as client:
                assert await client.handshake(Host=f"{name}:8083", Origin=f"http://{name}") == status, name
    authority = Authority(tmp_path)
    certificate, key = map(str, authority.server())
    tls = TlsConfig(certificate, key)
    async with hosting(WebSocketConfig(port=0, tls=tls)) as host:
        context = ssl.create_default_context(cafile=authority.path)
        stream = await asyncio.open_connection("127.0.0.1", port_number(host), ssl=context)
        assert await RawWebSocket(*stream).handshake(Host="gateway.site:8083", Origin="https://gateway.site") == 101
        stream[1].transport.abort()


async def test_what_a_stranger_sends_instead_of_http_is_not_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """A client that takes the port for MQTT's sends its password there."""
    async with hosting(WebSocketConfig(port=0)) as host:
        for data in (encode(Connect("c", username="alice", password=b"s3cret")) + b"\r\n\r\n", BAD_HEADER, BAD_PATH):
            async with raw(host) as client:
                client.writer.write(data)
                assert (await asyncio.wait_for(client.reader.read(12), LONG_S)).endswith(b" 400")
    assert {record.getMessage() for record in caplog.records} == {"malformed request"}
    assert "s3cret" not in "".join(map(KeyValueFormatter().format, caplog.records))


BAD_HEADER = b"GET /mqtt HTTP/1.1\r\nHost: a\r\nAuthorization: Basic s3cret\x01\r\n\r\n"
BAD_PATH = b"GET /mqtt?password=s3cret\x01 HTTP/1.1\r\nHost: a\r\n\r\n"


async def test_a_host_that_closes_says_goodbye() -> None:
    async with hosting(WebSocketConfig(port=0)) as host, aiohttp.ClientSession() as session:
        websocket = await session.ws_connect(f"http://127.0.0.1:{port_number(host)}/mqtt", protocols=["mqtt"])
        port = await host.next_port()
        port.send(b"bye")
        port.close()
        await asyncio.gather(host.listeners.close(), read_to_the_end(websocket, b"bye"))
        assert websocket.close_code == aiohttp.WSCloseCode.OK


async def read_to_the_end(websocket: aiohttp.ClientWebSocketResponse, expected: bytes) -> None:
    assert (await websocket.receive()).data == expected
    assert (await websocket.receive()).type is aiohttp.WSMsgType.CLOSE
