"""Listeners for TCP, with TLS or without, and for Unix sockets."""

import contextlib
import os
from collections.abc import Callable

from gateway.config.schema import TcpConfig, UnixConfig
from gateway.listeners.accept import Acceptor, listen_tcp, listen_unix
from gateway.listeners.connection_limits import ConnectionLimits
from gateway.listeners.newest_lists import NewestLists
from gateway.listeners.proxies import Proxies
from gateway.listeners.stream import StreamPort
from gateway.listeners.tls import Tls, Visitors
from gateway.port import Port


class TcpListener:
    """Listens on one TCP address.

    Args:
        config: the address.
        anonymous: whether clients without an account may log in here.
        limits: counts the connections of all listeners.
        connect: called with each client's port.

    Raises:
        ConfigError: a file of TLS cannot be used.
    """

    def __init__(
        self,
        config: TcpConfig,
        *,
        anonymous: bool,
        limits: ConnectionLimits,
        connect: Callable[[Port], None],
        newest: NewestLists | None = None,
    ) -> None:
        self.port = config.port
        self._host = config.host
        self.tls = tls = Tls(config.tls, newest) if config.tls else None
        identify = Visitors(tls, anonymous, config.realtime).identify
        proxies = Proxies(config.proxy_from)
        self._acceptor = Acceptor(limits, tls, lambda accepted: StreamPort(accepted, identify, connect), proxies)

    async def open(self) -> None:
        """Begins to listen; ``port`` is the port's number then. Raises ListenError."""
        sockets = listen_tcp("tcp", self._host, self.port)
        self.port = sockets[0].getsockname()[1]
        self._acceptor.open(sockets)

    async def close(self) -> None:
        """Stops accepting."""
        await self._acceptor.close()

    def reload(self) -> None:
        """Reads the certificates again. Raises ConfigError."""
        self._acceptor.reload()


class UnixListener:
    """Listens on one Unix socket.

    Args:
        config: its path and permissions.
        anonymous: whether clients without an account may log in here.
        limits: counts the connections of all listeners.
        connect: called with each client's port.
    """

    def __init__(
        self,
        config: UnixConfig,
        *,
        anonymous: bool,
        limits: ConnectionLimits,
        connect: Callable[[Port], None],
    ) -> None:
        self._config = config
        self._is_open = False
        identify = Visitors(None, anonymous, config.realtime).identify
        self._acceptor = Acceptor(limits, None, lambda accepted: StreamPort(accepted, identify, connect), Proxies(()))

    async def open(self) -> None:
        """Begins to listen. Raises ListenError."""
        self._acceptor.open([listen_unix(self._config.path, self._config.mode)])
        self._is_open = True

    async def close(self) -> None:
        """Stops accepting and removes the socket."""
        await self._acceptor.close()
        if self._is_open:
            self._is_open = False
            with contextlib.suppress(OSError):
                os.unlink(self._config.path)

    def reload(self) -> None:
        """Does nothing: a Unix socket has no files to read again."""
