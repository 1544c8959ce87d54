"""One connection that begins as HTTP, for as long as its client is a stranger."""

import asyncio
import logging
from typing import Any

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from gateway.listeners.entrance import Guest
from gateway.logs import about

logger = logging.getLogger(__name__)


class HttpConnection(web.RequestHandler):
    """A connection's bytes, counted for the limits.

    Args:
        server: what answers its requests.
        guest: the connection.
    """

    __slots__ = ("guest",)

    def __init__(self, server: web.Server, guest: Guest) -> None:
        super().__init__(server, loop=asyncio.get_running_loop(), access_log=None)  # type: ignore[arg-type]
        self.guest = guest

    def data_received(self, data: bytes) -> None:
        self.guest.note_received(len(data))
        super().data_received(data)

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
