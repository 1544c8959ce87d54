"""Attacks by a server of another system to which a route leads."""

import asyncio
import itertools
import json
from collections.abc import Callable, Iterator

from tools.lab.torture.attacks.line import PIECE, filled
from tools.lab.torture.attacks.peer import Peer
from tools.lab.torture.attacks.server import dropping, serve

INFO = {"server_id": "evil", "version": "2.10.0", "max_payload": 1 << 40, "headers": True, "proto": 1, "port": 4222}


def _info(**more: object) -> bytes:
    return b"INFO " + json.dumps(INFO | more).encode() + b"\r\n"


async def _nats(port: int, pieces: Callable[[], Iterator[bytes]]) -> None:
    """Lets the route in, and then sends pieces without end."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(_info())
        while not (await reader.readline()).startswith(b"PING"):
            pass
        writer.write(b"PONG\r\n")

        async with dropping(reader):
            for piece in pieces():
                writer.write(piece)
                await writer.drain()

    await serve(port, answer)


async def nats_pings(port: int, other: int) -> None:
    """PINGs of a NATS server, each of which asks for a PONG."""
    await _nats(other, lambda: itertools.repeat(filled(b"PING\r\n")))


async def nats_errors(port: int, other: int) -> None:
    """Errors of a NATS server that let the connection stand."""
    error = b"-ERR 'Permissions Violation for Publish to \"" + b"a" * 300 + b"\"'\r\n"
    await _nats(other, lambda: itertools.repeat(filled(error)))


async def nats_messages(port: int, other: int) -> None:
    """Messages of a core subscription of the smallest size."""
    await _nats(other, lambda: itertools.repeat(filled(b"MSG a 2 0\r\n\r\n" + b"MSG a 1 0\r\n\r\n")))


async def nats_large(port: int, other: int) -> None:
    """A message of a terabyte."""
    head = (b"MSG a 1 %d\r\n" % (1 << 40),)
    await _nats(other, lambda: itertools.chain(head, itertools.repeat(bytes(PIECE))))


async def nats_line(port: int, other: int) -> None:
    """A line that never ends."""
    await _nats(other, lambda: itertools.chain((b"MSG ",), itertools.repeat(b"a" * PIECE)))


async def nats_headers(port: int, other: int) -> None:
    """Messages with a megabyte of headers."""
    headers = b"NATS/1.0\r\n" + b"a:b\r\n" * 200_000 + b"\r\n"
    message = b"HMSG a 1 %d %d\r\n" % (len(headers), len(headers)) + headers + b"\r\n"
    await _nats(other, lambda: itertools.repeat(message))


async def nats_servers(port: int, other: int) -> None:
    """Lists of other servers of the cluster, ever new ones."""

    def lists() -> Iterator[bytes]:
        for number in itertools.count():
            yield _info(connect_urls=[f"h{number}-{one}:1" for one in range(1_000)])

    await _nats(other, lists)


_NATS = """
[[route]]
kind = "nats"
name = "nats"
servers = ["nats://127.0.0.1:{other}"]
filters = []
backoff_shortest_ms = 10
backoff_longest_ms = 100
[[route.incoming]]
topic = "a/#"
"""
ATTACKS = tuple(
    Peer(attack, _NATS)
    for attack in (nats_pings, nats_errors, nats_messages, nats_large, nats_line, nats_headers, nats_servers)
)
