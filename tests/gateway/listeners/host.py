"""Listeners without a broker: a host that accepts each connection and echoes its bytes."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

from gateway.broker import Broker
from gateway.config.schema import GatewayConfig, LimitsConfig, ListenerConfig, StoreConfig
from gateway.listeners.listeners import Listeners
from gateway.port import Port

LONG_S = 60.0


class Host:
    """Echoes each port's bytes; admits a client whose first byte is ``!``."""

    def __init__(self, config: GatewayConfig) -> None:
        self.ports: list[Port] = []
        self.listeners = Listeners(config, lambda port, _stream: self._connect(port))
        self._all: list[Port] = []
        self._arrived = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()

    async def next_port(self) -> Port:
        """The next port that a client is at."""
        while not self.ports:
            self._arrived.clear()
            await asyncio.wait_for(self._arrived.wait(), LONG_S)
        return self.ports.pop(0)

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for port in self._all:
            port.close()
        await self.listeners.close()

    def _connect(self, port: Port) -> None:
        self.ports.append(port)
        self._all.append(port)
        self._arrived.set()


async def take(port: Port) -> bytes:
    """The bytes of MQTT that a client has sent; empty once the line has ended."""
    while received := await port.receive():
        if data := b"".join(port.unpack(received)):
            return data
    return b""


async def echo(port: Port) -> None:
    """Sends back all that comes until the line ends; ``!`` at its beginning lets the client in."""
    with contextlib.suppress(OSError):
        while data := await port.receive():
            for piece in port.unpack(data):
                if piece.startswith(b"!"):
                    port.note_admitted()
                port.send(piece)
            await port.drain()
    port.close()


class EchoHost(Host):
    """Serves every connection."""

    def _connect(self, port: Port) -> None:
        super()._connect(port)
        task = asyncio.get_running_loop().create_task(echo(port))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


@contextlib.asynccontextmanager
async def hosting(
    *listeners: ListenerConfig, limits: LimitsConfig | None = None, accounts: str | None = None, kind: type[Host] = Host
) -> AsyncIterator[Host]:
    store = StoreConfig(str(Path("/nowhere")))
    config = GatewayConfig("host", store, list(listeners), accounts=accounts, limits=limits or LimitsConfig())
    host = kind(config)
    await host.listeners.open()
    try:
        yield host
    finally:
        await host.close()


def port_number(host: Host | Broker, place: int = 0) -> int:
    """The TCP port of a listener."""
    number = host.listeners.all[place].port  # type: ignore[union-attr]
    assert number
    return number
