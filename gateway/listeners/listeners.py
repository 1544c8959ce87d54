"""All listeners of a gateway."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from gateway.config.schema import GatewayConfig, ListenerConfig, SerialConfig, TcpConfig, UnixConfig, allows_anonymous
from gateway.errors import ListenError
from gateway.listeners.connection_limits import FILES_LEAST, ConnectionLimits, files_allowed
from gateway.listeners.newest_lists import NewestLists
from gateway.listeners.sockets import TcpListener, UnixListener
from gateway.listeners.stream import CLOSE_GRACE_S
from gateway.port import Port
from host.errors import ConfigError
from host.pem import Validity

if TYPE_CHECKING:
    from gateway.listeners.serial import SerialListener
    from gateway.listeners.websocket import WebSocketListener

    Listener = TcpListener | WebSocketListener | UnixListener | SerialListener


class Listeners:
    """Opens, reloads and closes all listeners together.

    Args:
        config: the gateway's configuration.
        connect: called with each client's port, and the stream of its listener.

    Raises:
        ConfigError: a file of TLS cannot be used.
    """

    def __init__(self, config: GatewayConfig, connect: Callable[[Port, str], None]) -> None:
        self._connect = connect
        self._limits = ConnectionLimits(config.limits)
        self._newest = NewestLists(Path(config.store.path))
        self._configs = config.listener
        self.all: list[Listener] = [self._make(one, allows_anonymous(config, one)) for one in config.listener]

    async def open(self) -> None:
        """Opens all listeners. Raises ListenError; then none is open."""
        if (files := files_allowed()) < FILES_LEAST:
            raise ListenError(
                f"only {files} files may be open at once, and each connection is one: expected at least {FILES_LEAST} "
                "(ulimit -n, LimitNOFILE= of systemd)"
            )
        try:
            for listener in self.all:
                await listener.open()
        except ListenError:
            await self.close()
            raise

    def places(self) -> list[str]:
        """Returns for the log where each listener listens: its kind and its address, path or device."""
        return [_place_of(config, listener) for config, listener in zip(self._configs, self.all, strict=True)]

    def missing_lines(self) -> list[tuple[str, str]]:
        """Returns the serial ports that cannot be used now, each with the reason."""
        pairs = zip(self._configs, self.all, strict=True)
        found = [
            (config.device, getattr(one, "problem", "")) for config, one in pairs if isinstance(config, SerialConfig)
        ]
        return [(device, problem) for device, problem in found if problem]

    def certificates(self) -> list[tuple[str, Validity]]:
        """Returns the place of each listener with TLS, with the validity of each certificate and list that it uses."""
        pairs = ((place, getattr(one, "tls", None)) for place, one in zip(self.places(), self.all, strict=True))
        return [(f"listener {place}", one) for place, tls in pairs if tls is not None for one in tls.validities]

    async def close(self) -> None:
        """Closes all listeners, and waits until the clients have read what was sent last."""
        for listener in self.all:
            await listener.close()
        await self._limits.wait_until_empty(2 * CLOSE_GRACE_S)

    def reload(self) -> None:
        """Reads the certificates again, for later connections.

        Raises:
            ConfigError: a listener's files cannot be used; it goes on with those it has.
        """
        errors = []
        for listener in self.all:
            try:
                listener.reload()
            except ConfigError as error:
                errors.append(str(error))
        if errors:
            raise ConfigError("; ".join(errors))

    def _make(self, config: ListenerConfig, anonymous: bool) -> "Listener":
        def connect(port: Port) -> None:
            self._connect(port, config.stream)

        if isinstance(config, SerialConfig):
            from gateway.listeners.serial import (
                SerialListener,
            )  # a gateway without a serial line loads no library for it

            return SerialListener(config, anonymous=anonymous, connect=connect)
        if isinstance(config, TcpConfig):
            return TcpListener(config, anonymous=anonymous, limits=self._limits, connect=connect, newest=self._newest)
        if isinstance(config, UnixConfig):
            return UnixListener(config, anonymous=anonymous, limits=self._limits, connect=connect)
        from gateway.listeners.websocket import WebSocketListener  # its libraries take 15 MB of memory

        return WebSocketListener(
            config,
            anonymous=anonymous,
            limits=self._limits,
            connect=connect,
            newest=self._newest,
        )


def _place_of(config: ListenerConfig, listener: "Listener") -> str:
    if isinstance(config, SerialConfig):
        return f"serial {config.device}"
    if isinstance(config, UnixConfig):
        return f"unix {config.path}"
    kind = "tcp" if isinstance(config, TcpConfig) else "websocket"
    host = f"[{config.host}]" if ":" in config.host else config.host
    port = getattr(listener, "port", config.port)  # the system has chosen it if it was 0
    return f"{kind}{' with TLS' if config.tls else ''} {host}:{port}"
