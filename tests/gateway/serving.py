"""A gateway's broker on a store folder, without anything of pytest: processes of the tests import it at each start."""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from gateway.broker import Broker, stream_logs
from gateway.config.schema import GatewayConfig, ListenerConfig, StoreConfig, TcpConfig
from gateway.listeners.sockets import TcpListener
from gateway.store import MessageLog


def configure(folder: Path, *listeners: ListenerConfig, **settings: Any) -> GatewayConfig:
    settings.setdefault("store", StoreConfig(str(folder)))
    return GatewayConfig("test-gateway", listener=list(listeners) or [TcpConfig(port=0)], **settings)


@contextlib.asynccontextmanager
async def running(folder: Path, *listeners: ListenerConfig, **settings: Any) -> AsyncIterator[Broker]:
    """A broker on a store folder, on a free TCP port unless listeners are given, with settings of its configuration."""
    config = configure(folder, *listeners, **settings)
    log = await MessageLog.open(folder, origin=config.name)
    try:
        async with stream_logs(config) as logs:
            broker = Broker(config, log, logs)
            await broker.start()
            try:
                yield broker
            finally:
                await broker.close()
    finally:
        await log.close()


def tcp_port(broker: Broker) -> int:
    return next(listener.port for listener in broker.listeners.all if isinstance(listener, TcpListener))
