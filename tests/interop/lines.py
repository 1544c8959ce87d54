"""A gateway that listens on every kind of line, for other projects' clients."""

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

from gateway.broker import Broker
from gateway.config.schema import TcpConfig, TlsConfig, UnixConfig, WebSocketConfig
from tests.gateway.support import running
from tools.lab.testing.certificates import Authority


@dataclass
class Lines:
    """Where a gateway can be reached; ``authority`` is the file of the certificate that signed the gateway's."""

    broker: Broker
    socket: str
    authority: str
    tcp: int
    tls: int
    websocket: int
    wss: int


@contextlib.asynccontextmanager
async def serving(folder: Path) -> AsyncIterator[Lines]:
    """A broker on all of them."""
    authority = Authority(folder / "tls")
    certificate, key = authority.server()
    tls = TlsConfig(str(certificate), str(key))
    socket = str(folder / "socket")
    listeners = (
        TcpConfig(port=0),
        TcpConfig(port=0, tls=tls),
        WebSocketConfig(port=0),
        WebSocketConfig(port=0, tls=tls),
        UnixConfig(socket),
    )
    async with running(folder / "store", *listeners) as broker:
        ports = [listener.port for listener in broker.listeners.all[:4]]  # type: ignore[union-attr]
        yield Lines(broker, socket, str(authority.path), *ports)
