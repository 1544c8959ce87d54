"""Steps with which many tests of the gateway begin."""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from gateway.broker import Broker
from gateway.sessions.session import Session
from tests.gateway.support import Client, GatewayProcess, connected, running


async def started(folder: Path) -> GatewayProcess:
    """A gateway in a process of its own, which listens."""
    gateway = GatewayProcess(folder)
    await gateway.start()
    return gateway


@contextlib.asynccontextmanager
async def with_publisher(folder: Path, **settings: Any) -> AsyncIterator[tuple[Broker, Client]]:
    """A broker as `running` makes it, and a client "publisher"."""
    async with running(folder, **settings) as broker:
        yield broker, await connected(broker, "publisher")


async def publish_numbers(publisher: Client, count: int, topic: str = "a") -> None:
    for number in range(count):
        await publisher.publish(topic, b"%d" % number)


def session_of(broker: Broker, client_id: str) -> Session:
    session = broker.sessions.get(client_id)
    assert session is not None
    return session
