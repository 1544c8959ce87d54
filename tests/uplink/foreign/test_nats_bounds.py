"""What a NATS server may make a gateway keep or do; the server is ours, as a real one keeps to its limits."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

pytest.importorskip("nats", reason="nats-py is not installed")

from uplink.foreign.nats.client import HEADERS_MAX, LINE_MAX, MESSAGE_MAX, BoundedClient, fault_of

LONG_S = 30.0
INFO = {"server_id": "evil", "version": "2.10.0", "max_payload": 1 << 40, "headers": True, "proto": 1}


def info(**more: object) -> bytes:
    return b"INFO " + json.dumps(INFO | more).encode() + b"\r\n"


@asynccontextmanager
async def served(sent: bytes) -> AsyncIterator[tuple[BoundedClient, asyncio.Queue[object]]]:
    """A client that is subscribed, the server that sends it these bytes then, and what came or ended it."""
    came: asyncio.Queue[object] = asyncio.Queue()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(info())
        with contextlib.suppress(ConnectionError):
            while line := await reader.readline():
                if line.startswith(b"PING"):
                    writer.write(b"PONG\r\n")
                elif line.startswith(b"SUB"):
                    writer.write(sent)
                    await writer.drain()
        writer.close()

    async def note_end() -> None:
        await came.put(None)

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        client = BoundedClient()
        url = f"nats://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        await client.connect([url], allow_reconnect=False, closed_cb=note_end)
        await client.subscribe("a", cb=came.put)
        yield client, came
        await client.close()


async def next_of(came: asyncio.Queue[object]) -> object:
    return await asyncio.wait_for(came.get(), LONG_S)


async def test_a_message_that_is_too_large_is_skipped_and_told_and_the_next_one_comes() -> None:
    size = MESSAGE_MAX + 1
    async with served(b"MSG a 1 %d\r\n" % size + bytes(size) + b"\r\nMSG a 1 4\r\nnext\r\n") as (client, came):
        message = await next_of(came)
        assert getattr(message, "data", None) == b"next"
        assert client.skipped == f"a message on 'a' has {size} bytes, {MESSAGE_MAX} at most are read"


async def test_a_line_without_an_end_ends_the_connection_and_says_why() -> None:
    async with served(b"MSG " + b"a" * 2 * LINE_MAX) as (client, came):
        assert await next_of(came) is None
        assert client.fault == f"the server sends a line of more than {LINE_MAX} bytes"


async def test_long_headers_are_not_read_but_kept() -> None:
    headers = b"NATS/1.0\r\n" + b"a:b\r\n" * (HEADERS_MAX // 5) + b"\r\n"
    message = b"HMSG a 1 %d %d\r\n" % (len(headers), len(headers) + 1) + headers + b"x\r\n"
    async with served(message) as (_, came):
        found = getattr(await next_of(came), "headers", {})
        assert fault_of(found) == f"its headers have {len(headers)} bytes, {HEADERS_MAX} at most are read"
        assert [value.encode("latin-1") for value in found.values()] == [headers]


async def test_servers_that_a_server_names_are_not_gathered() -> None:
    async with served(info(connect_urls=["other:4222"]) + b"MSG a 1 4\r\nnext\r\n") as (client, came):
        await next_of(came)
        assert client.discovered_servers == []


async def test_messages_over_several_pieces_come_whole() -> None:
    messages = b"".join(b"MSG a 1 %d\r\n" % n + b"x" * n + b"\r\n" for n in range(0, 9_000, 997))
    async with served(messages) as (_, came):
        sizes = [len(getattr(await next_of(came), "data", b"")) for _ in range(0, 9_000, 997)]
        assert sizes == list(range(0, 9_000, 997))
