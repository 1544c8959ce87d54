"""Clients on the same machine, over a Unix socket."""

import contextlib
import os
from collections.abc import Callable

from gateway.config import UnixConfig
from gateway.listeners.addresses import listen_unix
from gateway.listeners.door import Door
from gateway.listeners.entrance import Entrance
from gateway.listeners.stream_port import StreamPort
from gateway.listeners.visitors import Visitors
from gateway.port import Port


class UnixListener:
    """Listens on one Unix socket.

    Args:
        config: its path and permissions.
        anonymous: whether clients without an account may come in here.
        entrance: the limits.
        connect: called with each client's port.
    """

    def __init__(
        self, config: UnixConfig, *, anonymous: bool, entrance: Entrance, connect: Callable[[Port], None]
    ) -> None:
        self._config = config
        self._is_open = False
        identify = Visitors(None, anonymous).identify
        self._door = Door(entrance, None, lambda guest: StreamPort(guest, identify, connect))

    async def open(self) -> None:
        """Listens from now on. Raises ListenError."""
        self._door.open([listen_unix(self._config.path, self._config.mode)])
        self._is_open = True

    async def close(self) -> None:
        """Accepts nobody any more, and takes the socket away."""
        await self._door.close()
        if self._is_open:
            self._is_open = False
            with contextlib.suppress(OSError):
                os.unlink(self._config.path)

    def reload(self) -> None:
        """There is nothing to read again."""
