"""One connection that begins as HTTP, for as long as its client is a stranger."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from gateway.listeners.entrance import Guest
from gateway.listeners.websocket_port import WebSocketPort
from gateway.logs import about

logger = logging.getLogger(__name__)


class HttpConnection(web.RequestHandler):
    """A connection's bytes, counted for the limits. Once it is to be a WebSocket, ``port`` takes them.

    Args:
        server: what answers its requests.
        guest: the connection.
    """

    __slots__ = ("guest", "port")

    def __init__(self, server: web.Server, guest: Guest) -> None:
        super().__init__(server, loop=asyncio.get_running_loop(), access_log=None)  # type: ignore[arg-type]
        self.guest = guest
        self.port: WebSocketPort | None = None

    def data_received(self, data: bytes) -> None:
        self.guest.note_received(len(data))
        super().data_received(data)

    def set_parser(self, parser: Any, data_received_cb: Callable[[], None] | None = None) -> None:
        """The connection is a WebSocket from now on: its bytes go to ``port``, not to aiohttp's reader.

        That one works through a whole reading of the socket at once, and keeps a message until it is whole.
        """
        assert self.port is not None
        super().set_parser(self.port, data_received_cb)  # type: ignore[arg-type]

    def connection_lost(self, exception: BaseException | None) -> None:
        self.guest.leave()
        super().connection_lost(exception)

    def log_exception(self, *args: Any, **kw: Any) -> None:
        """Says in a line that a request is malformed: aiohttp would quote it, and there may be a password in it."""
        error = kw.get("exc_info")
        if isinstance(error, HttpProcessingError):
            logger.warning("malformed request", extra=about(peer=self.guest.peer, reason=type(error).__name__))
        else:
            super().log_exception(*args, **kw)
