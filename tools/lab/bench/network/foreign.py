"""A route to JetStream, beside the client library alone: each message is acknowledged, with the same window."""

import asyncio
import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

import nats
import uvloop
from nats.js.errors import NotFoundError

from gateway.message import Message
from gateway.store import MessageLog
from tools.lab.bench.broker.processes import BenchUnavailable
from tools.lab.figure import Figure
from tools.lab.testing.nats import NatsServer, NatsUnavailable
from tools.lab.testing.ports import free_port
from uplink.foreign.config import NatsConfig
from uplink.foreign.route import ForeignRoute

WINDOW = 256
PAYLOAD = bytes(range(32, 132))
ROUNDS = 3  # of each, one after the other; the best counts
SHARE_MIN = 0.7
STREAM = "BENCH"


def export(folder: Path, count: int) -> Iterator[Figure]:
    """Measures how many messages a second JetStream acknowledges. Raises BenchUnavailable."""
    folder.mkdir(parents=True)
    try:
        server = NatsServer(folder, port=free_port())
    except NatsUnavailable as error:
        raise BenchUnavailable(str(error)) from None
    server.start()
    try:
        rates = [
            (uvloop.run(_by_route(server, folder / f"gateway-{number}", count)), uvloop.run(_alone(server, count)))
            for number in range(ROUNDS)
        ]
    finally:
        server.kill()
    ours, theirs = (max(found) for found in zip(*rates, strict=True))
    yield Figure("export to JetStream, acknowledged, window 256", "messages/s", ours, theirs)
    yield Figure("its share of the client library's own rate", "", ours / theirs, None, SHARE_MIN)


async def _stream(server: NatsServer) -> None:
    """Makes the stream anew, so that each measurement begins with an empty one."""
    client = await nats.connect(server.url)
    jetstream = client.jetstream()
    with contextlib.suppress(NotFoundError):
        await jetstream.delete_stream(STREAM)
    await jetstream.add_stream(name=STREAM, subjects=["bench.>"])
    await client.close()


async def _by_route(server: NatsServer, folder: Path, count: int) -> float:
    """Returns the rate at which the messages in a gateway's store go, from the first to the last acknowledgement."""
    await _stream(server)
    log = await MessageLog.open(folder, origin="bench")
    route = ForeignRoute(NatsConfig(name="nats", servers=(server.url,), inflight_window=WINDOW), "bench", log)
    try:
        for begin in range(0, count, 1000):
            await log.submit([Message(f"bench/{seq % 16}", PAYLOAD) for seq in range(begin, min(begin + 1000, count))])
        started = time.perf_counter()
        task = asyncio.create_task(route.run())
        while route.queue.lanes.live.position < log.head:
            await asyncio.sleep(0.001)
        took_s = time.perf_counter() - started
        task.cancel()
        await asyncio.wait({task})
    finally:
        await log.close()
    return count / took_s


async def _alone(server: NatsServer, count: int) -> float:
    """Returns the rate at which the client library publishes the same."""
    await _stream(server)
    started = time.perf_counter()
    client = await nats.connect(server.url)
    jetstream = client.jetstream(publish_async_max_pending=WINDOW)
    for seq in range(count):
        headers = {"Nats-Msg-Id": f"00000001/{seq + 1}/bench"}
        await jetstream.publish_async(f"bench.{seq % 16}", PAYLOAD, headers=headers)
    await jetstream.publish_async_completed()
    took_s = time.perf_counter() - started
    await client.close()
    return count / took_s
