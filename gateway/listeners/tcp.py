"""Clients over TCP, with TLS or without."""

from collections.abc import Callable

from gateway.config import TcpConfig
from gateway.listeners.addresses import listen_tcp
from gateway.listeners.door import Door
from gateway.listeners.entrance import Entrance
from gateway.listeners.stream_port import StreamPort
from gateway.listeners.tls import Tls
from gateway.listeners.visitors import Visitors
from gateway.port import Port


class TcpListener:
    """Listens on one TCP address.

    Args:
        config: the address.
        anonymous: whether clients without an account may come in here.
        entrance: the limits.
        connect: called with each client's port.

    Raises:
        ConfigError: a file of TLS cannot be used.
    """

    def __init__(
        self, config: TcpConfig, *, anonymous: bool, entrance: Entrance, connect: Callable[[Port], None]
    ) -> None:
        self.port = config.port
        self._host = config.host
        tls = Tls(config.tls) if config.tls else None
        identify = Visitors(tls, anonymous).identify
        self._door = Door(entrance, tls, lambda guest: StreamPort(guest, identify, connect))

    async def open(self) -> None:
        """Listens from now on; ``port`` is then the port's number. Raises ListenError."""
        sockets = listen_tcp("tcp", self._host, self.port)
        self.port = sockets[0].getsockname()[1]
        self._door.open(sockets)

    async def close(self) -> None:
        """Accepts nobody any more."""
        await self._door.close()

    def reload(self) -> None:
        """Reads the certificates again. Raises ConfigError."""
        self._door.reload()
