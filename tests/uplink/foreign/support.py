"""A route to a foreign system on a gateway, with the real server."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gateway.broker import Broker
from tests.gateway.support import running as running_broker
from tests.uplink.support import serving
from tools.lab.testing.nats import NatsServer, NatsUnavailable
from tools.lab.testing.rabbitmq import RabbitMq, RabbitMqUnavailable
from uplink.foreign.config import AmqpConfig, ForeignConfig, NatsConfig
from uplink.foreign.route import ForeignRoute

nats = pytest.importorskip("nats", reason="nats-py is not installed")

DEADLINE_S = 30.0
FAST = {"name": "nats", "backoff_shortest_ms": 10, "backoff_longest_ms": 100}


@contextmanager
def nats_server(folder: Path, lines: str = "") -> Iterator[NatsServer]:
    """A running nats-server. The test is skipped where there is none."""
    try:
        server = NatsServer(folder / "nats", lines)
    except NatsUnavailable as error:
        pytest.skip(str(error))
    server.start()
    try:
        yield server
    finally:
        server.kill()


@contextmanager
def rabbitmq(folder: Path, lines: str = "", lasting: str | None = None) -> Iterator[RabbitMq]:
    """A running RabbitMQ, perhaps with a queue that outlasts a kill. The test is skipped where there is none, or no
    library to speak to it."""
    pytest.importorskip("proton", reason="python-qpid-proton is not installed")
    try:
        broker = RabbitMq(folder / "rabbitmq", lines)
    except RabbitMqUnavailable as error:
        pytest.skip(str(error))
    try:
        if lasting is None:
            broker.start()
        else:
            broker.make_lasting(lasting)
        yield broker
    finally:
        broker.close()


def amqp_config(broker: RabbitMq, folder: Path, **keys: Any) -> AmqpConfig:
    """The table of a route to the broker, as it is read from a file."""
    password = folder / "guest.password"
    password.write_text("guest\n")
    password.chmod(0o600)
    login = {"user": "guest", "password_file": str(password)}
    usual = {"kind": "amqp", "servers": [broker.url], "address": "/queue/telemetry", **login, **FAST, "name": "amqp"}
    return msgspec.convert({**usual, **keys}, AmqpConfig)


def nats_config(server: NatsServer, **keys: Any) -> NatsConfig:
    """The table of a route to the server, as it is read from a file."""
    return msgspec.convert({"kind": "nats", "servers": [server.url], **FAST, **keys}, NatsConfig)


@asynccontextmanager
async def connected(server: NatsServer, **keys: Any) -> AsyncIterator[Any]:
    """The other end: a client of the client library."""
    client = await nats.connect(server.url, **keys)
    try:
        yield client
    finally:
        await client.close()


@asynccontextmanager
async def routed(
    folder: Path, config: ForeignConfig, *, gateway_name: str = "gateway-1", **settings: Any
) -> AsyncIterator[tuple[Broker, ForeignRoute]]:
    """A gateway with a route that runs, under the name that it knows of the gateway."""
    async with running_broker(folder, **settings) as broker:
        route = ForeignRoute(config, gateway_name, broker.log, services=broker.services)
        async with serving(route):
            yield broker, route


async def drained(route: ForeignRoute) -> None:
    """Returns when nothing waits for the route."""
    async with asyncio.timeout(DEADLINE_S):
        while True:
            await route.queue.watch.count()
            if not route.queue.state.backlog_messages:
                return
            await asyncio.sleep(0.02)


async def stored_in(client: Any, stream: str) -> list[Any]:
    """All messages of a stream, in order."""
    jetstream = client.jetstream()
    state = (await jetstream.stream_info(stream)).state
    return [
        await jetstream.get_msg(stream, seq) for seq in range(state.first_seq, state.last_seq + 1) if state.messages
    ]


async def counted(client: Any, stream: str) -> int:
    """How many messages a stream has."""
    answer = await client.request(f"$JS.API.STREAM.INFO.{stream}", b"", timeout=20)
    return int(json.loads(answer.data)["state"]["messages"])


async def has_messages(client: Any, stream: str, count: int) -> None:
    """Returns when a stream has ``count`` messages."""
    async with asyncio.timeout(DEADLINE_S):
        while await counted(client, stream) < count:
            await asyncio.sleep(0.02)
