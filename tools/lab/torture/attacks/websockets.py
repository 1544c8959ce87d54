"""Attacks by clients of a WebSocket listener, and by proxies in front of it."""

import asyncio
import contextlib
import itertools
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tools.lab.torture.attacks.line import Line, filled
from tools.lab.torture.attacks.peer import Peer
from wire.bulk.websocket_frames import FrameKind, encode_frame
from wire.codec.packets import MQTT_5, Connect, Pingreq, encode

MASK = b"\1\2\3\4"
UPGRADE = (
    b"GET /mqtt HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Protocol: mqtt\r\n"
)
HTTP_CONNECTIONS = 50


@asynccontextmanager
async def _opened(port: int) -> AsyncIterator[Line]:
    line = Line(*await asyncio.open_connection("127.0.0.1", port))
    try:
        yield line
    finally:
        line.close()


@asynccontextmanager
async def _upgraded(port: int, client_id: str) -> AsyncIterator[Line]:
    """Opens a WebSocket with a session."""
    async with _opened(port) as line:
        await line.write(UPGRADE + b"\r\n")
        await line.answered(100)
        connect = encode(Connect(client_id, True, 0, None, None, None, {}))
        await line.write(encode_frame(FrameKind.BINARY, connect, MASK))
        await line.answered(4)
        yield line


async def _frames(port: int, frames: bytes) -> None:
    async with _upgraded(port, "frames") as line:
        while True:
            await line.write(filled(frames))


def _fragment(kind: FrameKind, payload: bytes) -> bytes:
    """Returns a frame that is not the last one of its message."""
    frame = encode_frame(kind, payload, MASK)
    return bytes((frame[0] & 0x7F,)) + frame[1:]


async def websocket_frames(port: int, other: int) -> None:
    """PINGREQs in frames of one byte."""
    packet = encode(Pingreq(), MQTT_5)
    await _frames(other, b"".join(encode_frame(FrameKind.BINARY, packet[n : n + 1], MASK) for n in range(2)))


async def websocket_fragments(port: int, other: int) -> None:
    """A message that never ends, in continuation frames of one byte, with as many empty ones between as may be."""
    packet = encode(Pingreq(), MQTT_5)
    empty = _fragment(FrameKind.CONTINUATION, b"") * 99
    bodies = (_fragment(FrameKind.CONTINUATION, packet[n : n + 1]) + empty for n in range(2))
    frames = b"".join(bodies)
    async with _upgraded(other, "fragments") as line:
        await line.write(_fragment(FrameKind.BINARY, b""))
        while True:
            await line.write(filled(frames))


async def websocket_pings(port: int, other: int) -> None:
    """Pings of 125 bytes, with a byte of MQTT now and then."""
    packet = encode(Pingreq(), MQTT_5)
    pings = encode_frame(FrameKind.PING, bytes(125), MASK) * 99
    await _frames(other, b"".join(pings + encode_frame(FrameKind.BINARY, packet[n : n + 1], MASK) for n in range(2)))


async def _requests(port: int, request: bytes) -> None:
    """Sends a request over many connections, again and again."""

    async def ask() -> None:
        while True:
            with contextlib.suppress(OSError):
                async with _opened(port) as line:
                    await line.write(request)
                    while not line.is_over:
                        await asyncio.sleep(0.01)

    async with asyncio.TaskGroup() as group:
        for _ in range(HTTP_CONNECTIONS):
            group.create_task(ask())


async def http_bomb(port: int, other: int) -> None:
    """Requests whose body is small only while it is compressed."""
    squeezed = zlib.compressobj(9, wbits=31)
    body = squeezed.compress(bytes(60 << 20)) + squeezed.flush()
    head = b"POST /mqtt HTTP/1.1\r\nHost: localhost\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n"
    await _requests(other, head % len(body) + body)


async def http_chunks(port: int, other: int) -> None:
    """Requests with a body in chunks of one byte."""
    head = b"POST /mqtt HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    await _requests(other, head + b"1\r\nx\r\n" * 40_000)


async def http_pipeline(port: int, other: int) -> None:
    """Thousands of requests in one piece."""
    await _requests(other, b"GET /mqtt HTTP/1.1\r\nHost: localhost\r\n\r\n" * 6_000)


async def http_headers(port: int, other: int) -> None:
    """Requests with thousands of headers."""
    await _requests(other, b"GET /mqtt HTTP/1.1\r\nHost: localhost\r\n" + b"a:\r\n" * 60_000 + b"\r\n")


async def forwarded_for(port: int, other: int) -> None:
    """A proxy's requests, with as long lists of addresses as fit."""
    addresses = b"X-Forwarded-For: " + b"127.0.0.1," * 800 + b"\r\n"
    await _requests(other, UPGRADE + addresses * 7 + b"\r\n")


async def proxy_headers(port: int, other: int) -> None:
    """A proxy's connections: headers of two kilobytes that come byte by byte, and clients of ever other addresses."""
    signature = b"\r\n\r\n\0\r\nQUIT\n"

    async def creep() -> None:
        while True:
            with contextlib.suppress(OSError):
                async with _opened(other) as line:
                    for byte in signature + b"\x21\x11" + (2048).to_bytes(2, "big") + bytes(2048):
                        await line.write(bytes((byte,)))

    async def come() -> None:
        for number in itertools.count():
            with contextlib.suppress(OSError):
                async with _opened(other) as line:
                    client = (10 << 24 | number).to_bytes(4, "big")
                    await line.write(signature + b"\x21\x11\0\x0c" + client + bytes(8))
                    await line.write(encode(Connect(f"from-{number}", True, 0, None, None, None, {})))
                    await line.answered(4)

    async with asyncio.TaskGroup() as group:
        for _ in range(HTTP_CONNECTIONS):
            group.create_task(creep())
            group.create_task(come())


_LISTENS = '[[listener]]\nkind = "websocket"\nport = {other}\n'
_PROXIED = '[[listener]]\nkind = "tcp"\nport = {other}\nproxy_from = ["127.0.0.1"]\nallow_anonymous = true\n'
ATTACKS = (
    *(
        Peer(attack, _LISTENS)
        for attack in (
            websocket_frames,
            websocket_fragments,
            websocket_pings,
            http_bomb,
            http_chunks,
            http_pipeline,
            http_headers,
        )
    ),
    Peer(forwarded_for, _LISTENS + 'forwarded_from = ["127.0.0.1"]\nallow_anonymous = true\n'),
    Peer(proxy_headers, _PROXIED),
)
