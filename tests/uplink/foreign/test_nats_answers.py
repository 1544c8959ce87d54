"""Answers of a NATS server that cannot be read; the server is ours, as a real one does not answer so."""

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("nats", reason="nats-py is not installed")

import msgspec
from nats.errors import Error

from tests.gateway.support import running as running_broker
from tests.uplink.foreign.support import FAST, routed
from tests.uplink.support import until
from uplink.foreign.config import NatsConfig
from uplink.foreign.nats.client import BoundedClient, Unreadable, readable
from uplink.foreign.nats.jetstream import JetStream
from uplink.foreign.route import ForeignRoute

INFO = {"server_id": "evil", "version": "2.10.0", "max_payload": 1 << 20, "headers": True, "proto": 1}
STREAM, CONSUMER = "$JS.API.STREAM.INFO.S", "$JS.API.CONSUMER.INFO.S.r"
A_STREAM = {
    "config": {"name": "S"},
    "created": "2024-01-01T00:00:00Z",
    "state": {"messages": 0, "bytes": 0, "first_seq": 1, "last_seq": 0, "consumer_count": 0},
}
A_CONSUMER = {"stream_name": "S", "name": "r", "config": {}, "created": "2024-01-01T00:00:00Z"}


def of_stream(**state: Any) -> bytes:
    return json.dumps({**A_STREAM, "state": {**A_STREAM["state"], **state}}).encode()  # type: ignore[dict-item]


def of_consumer(**keys: Any) -> bytes:
    return json.dumps({**A_CONSUMER, **keys}).encode()


UNREADABLE = {
    "no JSON": b"sorry",
    "no text": b"\xff\xfe",
    "a list": b"[]",
    "a number": b"7",
    "nothing": b"",
    "deep": b"[" * 200_000,
    "no members": b"{}",
    "an error that is text": b'{"error": "no"}',
}


@asynccontextmanager
async def answering(answers: Mapping[str, bytes], first: bytes = b"", behind: bytes = b"") -> AsyncIterator[str]:
    """The URL of a server that answers requests so, by subject; ``first`` stands for its INFO line, and ``behind`` is
    sent behind the first PONG."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(first or b"INFO " + json.dumps(INFO).encode() + b"\r\n")
        inboxes, pongs = list[tuple[str, bytes]](), 0
        with contextlib.suppress(ConnectionError):
            while line := await reader.readline():
                words = line.split()
                if words[0] == b"PING":
                    writer.write(b"PONG\r\n" + (b"" if pongs else behind))
                    pongs += 1
                elif words[0] == b"SUB":
                    inboxes.append((words[1].decode().rstrip("*"), words[-1]))
                elif words[0] == b"PUB":
                    await reader.readexactly(int(words[-1]) + 2)
                    answer, reply = answers.get(words[1].decode()), words[2].decode()
                    sid = next((sid for inbox, sid in inboxes if reply.startswith(inbox)), None)
                    if answer is not None and sid is not None:
                        writer.write(b"MSG %s %s %d\r\n%s\r\n" % (words[2], sid, len(answer), answer))
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        yield f"nats://127.0.0.1:{server.sockets[0].getsockname()[1]}"


def config(url: str, **keys: Any) -> NatsConfig:
    return msgspec.convert({"kind": "nats", "servers": [url], **FAST, **keys}, NatsConfig)


async def told(folder: Path, config: NatsConfig) -> str:
    """What the route says that is wrong; it is no fault of the gateway."""
    async with routed(folder, config) as (_, route):
        state = route.queue.state
        await until(lambda: bool(route.problem or state.receive_problem))
        assert state.fault == ""
        return route.problem or state.receive_problem


@asynccontextmanager
async def asking(answers: Mapping[str, bytes]) -> AsyncIterator[JetStream]:
    async with answering(answers) as url:
        client = BoundedClient()
        await client.connect([url], allow_reconnect=False)
        yield JetStream(client)
        await client.close()


@pytest.mark.parametrize("answer", [*UNREADABLE.values(), of_stream(last_seq="7")], ids=[*UNREADABLE, "a text"])
async def test_an_answer_about_a_stream_is_looked_at(answer: bytes) -> None:
    async with asking({STREAM: answer}) as jetstream:
        with pytest.raises(Unreadable, match="the answer about the stream 'S' cannot be read"):
            await jetstream.stream("S")


@pytest.mark.parametrize(
    "answer",
    [*UNREADABLE.values(), of_consumer(num_pending="7"), of_consumer(num_pending=1, ack_floor={"stream_seq": None})],
    ids=[*UNREADABLE, "a text", "no floor"],
)
async def test_an_answer_about_a_consumer_is_looked_at(answer: bytes) -> None:
    async with asking({CONSUMER: answer}) as jetstream:
        with pytest.raises(Unreadable, match="the answer about the consumer 'r' of 'S' cannot be read"):
            await jetstream.progress("S", "r")


@pytest.mark.parametrize(
    ("answers", "keys"),
    [
        ({STREAM: b"sorry"}, {"stream": "S"}),
        ({STREAM: b"sorry"}, {"incoming": [{"topic": "a/b", "stream": "S"}]}),
        (
            {STREAM: of_stream(), CONSUMER: b"sorry"},
            {"stream": "S", "receivers": ["r"], "delivery_mode": "all"},
        ),
    ],
    ids=["export", "import", "receivers"],
)
async def test_a_route_tells_what_it_cannot_read_as_the_servers_fault(
    tmp_path: Path, answers: dict[str, bytes], keys: dict[str, Any]
) -> None:
    async with answering(answers) as url:
        assert "cannot be read" in await told(tmp_path, config(url, **keys))


@pytest.mark.parametrize("first", [b"INFO []\r\n", b'INFO {"max_payload": "big"}\r\n', b"INFO \xff\r\n"])
async def test_a_greeting_that_cannot_be_read_is_told_as_the_servers(tmp_path: Path, first: bytes) -> None:
    async with answering({}, first) as url:
        problem = await told(tmp_path, config(url))
        assert "server" in problem or "INFO" in problem or "info" in problem
        assert "login" not in problem


@pytest.mark.parametrize(
    "line", [b"INFO sorry\r\n", b"INFO []\r\n", b'INFO {"max_payload": "big"}\r\n', b"MSG a x 1\r\n"]
)
async def test_a_line_that_cannot_be_read_ends_the_connection_at_once(
    tmp_path: Path, line: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, "nats")
    async with answering({}, behind=line) as url:
        assert "connection has ended" in await told(tmp_path, config(url))


@pytest.mark.parametrize("is_error", [False, True], ids=["an answer", "an error"])
async def test_what_is_cancelled_in_the_moment_in_which_its_answer_comes_ends(is_error: bool) -> None:
    answer = asyncio.get_running_loop().create_future()

    async def ask() -> None:
        with contextlib.suppress(Error), readable("the answer"):
            await asyncio.wait_for(answer, timeout=60)  # as the library waits

    task = asyncio.create_task(ask())
    await asyncio.sleep(0)
    if is_error:
        answer.set_exception(Error("no stream"))
    else:
        answer.set_result(None)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_route_that_is_cancelled_in_the_moment_in_which_it_is_connected_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect, answer = BoundedClient.connect, asyncio.get_running_loop().create_future()

    async def connect_and_wait(self: BoundedClient, *servers: Any, **options: Any) -> None:
        await connect(self, *servers, **options)
        task = asyncio.current_task()
        assert task is not None
        asyncio.get_running_loop().call_soon(answer.set_result, None)
        asyncio.get_running_loop().call_soon(task.cancel)
        await asyncio.wait_for(answer, timeout=60)  # as the library waits

    monkeypatch.setattr(BoundedClient, "connect", connect_and_wait)
    async with answering({}) as url, running_broker(tmp_path) as broker:
        core = config(url, delivery_mode="best_effort")
        route = ForeignRoute(core, "gateway-1", broker.log, services=broker.services)
        task = asyncio.create_task(route.run())
        done, _ = await asyncio.wait({task}, timeout=10)
        task.cancel()
        assert done
