"""HTTP connections, each for one request without a body, which may make it a WebSocket."""

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable
from typing import Any, Protocol
from urllib.parse import urlsplit

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from gateway.listeners.accept import Acceptor, is_own_name
from gateway.listeners.connection_limits import AcceptedConnection, ConnectionLimits
from gateway.listeners.proxies import Proxies
from gateway.listeners.tls import Tls
from gateway.log_fields import about

HEAD_MAX = 16 * 1024  # bytes of a request's first line and headers
HEAD_END = b"\r\n\r\n"
TOO_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"

logger = logging.getLogger(__name__)


class WebSocketReader(Protocol):
    """What takes the bytes of a WebSocket."""

    def feed_data(self, data: bytes) -> tuple[bool, bytes]:
        """Takes bytes; returns whether these were the last of the WebSocket, and the bytes that are left."""


class HttpConnection(web.RequestHandler):
    """An HTTP connection with its bytes counted for the limits. When it becomes a WebSocket ``port`` gets them.

    aiohttp gets the head of the first request and nothing behind it: it would unpack a body, or read it chunk by chunk,
    while other clients wait.

    Args:
        server: answers its request, and closes the connection unless the request makes it a WebSocket.
        accepted: the connection.
    """

    __slots__ = ("_behind", "_head_size", "_is_head_read", "_last", "accepted", "port")

    def __init__(self, server: web.Server, accepted: AcceptedConnection) -> None:
        loop = asyncio.get_running_loop()
        super().__init__(server, loop=loop, access_log=None, lingering_time=0)  # type: ignore[arg-type]
        self.accepted = accepted
        self.port: WebSocketReader | None = None
        self._head_size = 0
        self._is_head_read = False
        self._last = b""  # the bytes of the head that came last, in which its end may begin
        self._behind: list[bytes] = []  # what came behind the head, until it is known whether it is for a WebSocket

    def data_received(self, data: bytes) -> None:
        self.accepted.note_received(len(data))
        if self.port is not None:
            super().data_received(data)
        elif self._is_head_read:
            self._behind.append(data)
        else:
            self._take_head(data)

    def _take_head(self, data: bytes) -> None:
        found = (self._last + data).find(HEAD_END)
        size = len(data) if found < 0 else found + len(HEAD_END) - len(self._last)
        self._head_size += size
        if self._head_size > HEAD_MAX:
            logger.warning("malformed request", extra=about(peer=self.accepted.peer, reason="headers of many bytes"))
            if self.transport is not None:
                self.transport.write(TOO_LARGE)
            self.force_close()
            return
        self._last = (self._last + data)[1 - len(HEAD_END) :]
        self._is_head_read = found >= 0
        if data[size:]:
            self._behind.append(data[size:])
        super().data_received(data[:size])

    def set_parser(self, parser: Any, data_received_cb: Callable[[], None] | None = None) -> None:
        """Makes the connection a WebSocket: its bytes go to ``port`` and not to aiohttp's reader.

        That reader handles all bytes that came at once, and holds a message until it is complete.
        """
        assert self.port is not None
        super().set_parser(self.port, data_received_cb)  # type: ignore[arg-type]
        for data in self._behind:
            self.port.feed_data(data)
        self._behind.clear()

    def connection_lost(self, exception: BaseException | None) -> None:
        self.accepted.leave()
        self._behind.clear()
        super().connection_lost(exception)

    def log_exception(self, *args: Any, **kw: Any) -> None:
        """Logs a malformed request in one line, without its text, as aiohttp would: it may have a password."""
        error = kw.get("exc_info")
        if isinstance(error, HttpProcessingError):
            logger.warning("malformed request", extra=about(peer=self.accepted.peer, reason=type(error).__name__))
        else:
            super().log_exception(*args, **kw)


class HttpServer:
    """Answers on listening sockets, one request for each connection.

    Args:
        limits: counts the connections.
        tls: the TLS of the sockets, if any.
        answer: answers a request, whose `protocol` is an `HttpConnection`.
        proxies: the proxies whose connections begin with a PROXY header.
        grace_s: how long clients may read at the end, in seconds.
    """

    def __init__(
        self,
        limits: ConnectionLimits,
        tls: Tls | None,
        answer: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]],
        proxies: Proxies,
        grace_s: float,
    ) -> None:
        self._answer = answer
        self._grace_s = grace_s
        self._acceptor = Acceptor(limits, tls, self._receive, proxies)
        self._server: web.Server | None = None

    def open(self, sockets: list[socket.socket]) -> None:
        """Begins to answer on these sockets, which it closes in the end."""
        self._server = web.Server(self._answer)
        self._acceptor.open(sockets)

    async def close(self) -> None:
        """Stops accepting, and lets clients read what was sent last."""
        await self._acceptor.close()
        if self._server is not None:
            await self._server.shutdown(self._grace_s)
            self._server = None

    def reload(self) -> None:
        """Reads the certificates again, for later connections. Raises ConfigError."""
        self._acceptor.reload()

    def _receive(self, accepted: AcceptedConnection) -> asyncio.BaseProtocol:
        assert self._server is not None
        return HttpConnection(self._server, accepted)


def is_for_this_machine(request: web.BaseRequest) -> bool:
    """Whether the Host of a request names this machine. A page of a name that resolves to it does not (DNS rebinding).

    A request of HTTP/1.0 has no Host; no browser sends one.
    """
    host = request.headers.get("Host")
    try:
        return host is None or is_own_name(urlsplit(f"//{host}").hostname or "")
    except ValueError:
        return False
