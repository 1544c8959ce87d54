"""A broker with connectors in this process, and what they have stored."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any

import msgspec

from gateway.broker import Broker
from gateway.config.connectors import ConnectorConfig
from gateway.connectors.connectors import Connectors
from gateway.counters import ConnectorUnit
from tests.gateway.support import LONG_S, running, subscribed
from tools.lab.testing.client import Client
from tools.lab.testing.serial_line import SerialLine


def configured(kind: type[ConnectorConfig], **values: Any) -> Any:
    """A connector as the configuration file has it."""
    return msgspec.convert({"name": "hall", "kind": kind.__struct_config__.tag, **values}, kind)


@contextlib.asynccontextmanager
async def cable() -> AsyncIterator[SerialLine]:
    line = SerialLine()
    line.open()
    try:
        yield line
    finally:
        line.close()


@contextlib.asynccontextmanager
async def connecting(broker: Broker, *configs: ConnectorConfig) -> AsyncIterator[Connectors]:
    """Runs connectors beside a broker."""
    services = broker.services
    connectors = Connectors(configs, broker.config.name, services.log, services.publishing, services.limits)
    task = asyncio.create_task(connectors.run())
    try:
        yield connectors
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


@contextlib.asynccontextmanager
async def gateway(folder: Path, *configs: ConnectorConfig) -> AsyncIterator[tuple[Connectors, Client]]:
    """A broker with connectors, and a client that gets all messages."""
    async with running(folder) as broker:
        client = await subscribed(broker, "watcher", "#", options=0)
        async with connecting(broker, *configs) as connectors:
            yield connectors, client


async def next_of(client: Client) -> dict[str, Any]:
    """The values of the next message by name."""
    packet = await asyncio.wait_for(client.receive(), LONG_S)
    return {one["n"]: one.get("v", one.get("vs", one.get("vb"))) for one in json.loads(packet.payload)}


async def next_with(client: Client, names: Iterable[str]) -> dict[str, Any]:
    """The next message with one of these values."""
    while not (set(names) & (found := await next_of(client)).keys()):
        pass
    return found


def unit_of(connectors: Connectors, device: str) -> ConnectorUnit:
    return next(unit for state in connectors.states() for unit in state.units if unit.device == device)
