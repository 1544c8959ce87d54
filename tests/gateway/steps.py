"""Steps with which many tests of the gateway begin."""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from gateway.broker import Broker
from gateway.config.schema import StoreConfig
from gateway.sessions.session import Session
from tests.gateway.store.support import stored
from tests.gateway.support import Client, GatewayProcess, connected, running, subscribed, tcp_port
from wire.codec.packets import Connack


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


def dropped(folder: Path) -> list[tuple[Any, ...]]:
    return stored(folder, "SELECT reason, consumer, first, last, messages FROM dropped ORDER BY first, consumer")


async def away(broker: Any, *filters: str, options: int = 1) -> None:
    """A durable session with subscriptions whose client is not there."""
    subscriber = await subscribed(broker, "subscriber", *filters, options=options)
    await subscriber.disconnect()


async def received(broker: Any, count: int, retained: bool = True, address: str = "127.0.0.1") -> list[int]:
    subscriber = await connected(broker, "subscriber", address=address)
    packets = [await subscriber.receive() for _ in range(count)]
    await subscriber.expect_no_message(retained)
    return [int(packet.payload) for packet in packets]


def limited(folder: Path, **limits: Any) -> Any:
    return running(folder, store=StoreConfig(str(folder), **limits))


async def code_of(client: Client, broker: Broker) -> int:
    """The reason code with which a client is let in or not."""
    await client.open(tcp_port(broker))
    return (await client.expect(Connack)).reason_code
