"""The status page over HTTP: it shows, and changes nothing."""

import asyncio
import logging
import socket
import time
from typing import cast

from aiohttp import hdrs, web

from gateway.auth.watchers import Watcher, WatcherRefused, Watchers
from gateway.config.load import is_loopback
from gateway.config.schema import LimitsConfig, PageConfig
from gateway.listeners.accept import listen_tcp
from gateway.listeners.connection_limits import ConnectionLimits
from gateway.listeners.http import HttpConnection, HttpServer
from gateway.listeners.proxies import Proxies
from gateway.listeners.tls import Tls, Visitors
from gateway.log_fields import about
from gateway.page.board import Board
from gateway.page.document import HEADERS, Documents
from gateway.page.login import CHALLENGE, credentials_of, is_behind_proxy, why_refused
from gateway.page.observer import Observer
from gateway.page.sections import device_table
from gateway.page.snapshot import DeviceFacts
from gateway.page.times import clock_of
from gateway.port import Visitor
from host.pem import Validity

LIMITS = LimitsConfig(connections=64, connect_timeout_s=20)
DEVICES_OF_PAGE = 200
VIEWERS_MAX = 16  # pages that are kept up to date at once
TICK_S = 1.0
QUEUED_BYTES = 64 * 1024  # for a viewer that is slow: by the system, and as much by the event loop
SEND_S = 30.0  # a viewer that takes nothing for so long is dropped
CLOSE_GRACE_S = 1.0
RETRY_MS = 2000  # after which a browser asks again when its connection has ended
PATHS = ("/", "/devices", "/events", "/icon.svg")

logger = logging.getLogger(__name__)


class PageServer:
    """Serves the status page.

    Args:
        config: where, and its TLS.
        gateway: the gateway's name.
        watchers: admits visitors.
        observer: looks at the gateway.

    Raises:
        ConfigError: a file of TLS cannot be used.
    """

    def __init__(self, config: PageConfig, gateway: str, watchers: Watchers, observer: Observer) -> None:
        self.port = config.port
        self._config = config
        self._gateway = gateway
        self._watchers = watchers
        self._observer = observer
        self._board = Board()
        self._documents = Documents()
        self._tls = Tls(config.tls) if config.tls else None
        self._visitors = {one: Visitors(self._tls, one, False) for one in (False, True)}
        self._server = HttpServer(ConnectionLimits(LIMITS), self._tls, self._answer, Proxies(()), CLOSE_GRACE_S)
        self._ticking: asyncio.Task[None] | None = None
        self._viewers = 0
        self._news = asyncio.Event()
        self._looked_s = 0.0
        self._all: list[DeviceFacts] = []
        self._listed_s = 0.0

    async def open(self) -> None:
        """Begins to answer; ``port`` is the port's number then. Raises ListenError."""
        sockets = listen_tcp("page", self._config.host, self.port)
        self.port = sockets[0].getsockname()[1]
        self._tick()
        self._ticking = asyncio.get_running_loop().create_task(self._tick_on())
        self._server.open(sockets)

    async def close(self) -> None:
        """Stops answering."""
        if self._ticking is not None:
            self._ticking.cancel()
        await self._server.close()

    def reload(self) -> None:
        """Reads the certificates again. Raises ConfigError."""
        self._server.reload()

    def certificates(self) -> list[tuple[str, Validity]]:
        """Returns the validities of its certificate, and of its lists of revoked ones."""
        return [("status page", one) for one in self._tls.validities] if self._tls else []

    async def _tick_on(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            try:
                self._tick()
                if self._viewers:
                    await self._look()
                    news, self._news = self._news, asyncio.Event()
                    news.set()
            except Exception:  # a fault here must not end the gateway; viewers see that no news come
                logger.exception("the status page could not be renewed")

    def _tick(self) -> None:
        self._observer.tick(time.time(), asyncio.get_running_loop().time())

    async def _look(self) -> None:
        """Takes a new snapshot, unless the last one is from this second."""
        now_s = asyncio.get_running_loop().time()
        if now_s - self._looked_s >= TICK_S / 2 or not self._board.at:
            self._looked_s = now_s
            await self._observer.read_missing(now_s)
            self._board.update(await self._observer.look(time.time()))

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        response = await self._respond(request)
        response.force_close()
        return response

    async def _respond(self, request: web.BaseRequest) -> web.StreamResponse:
        if why := why_refused(request):
            return _refusal(403, why)
        if request.path not in PATHS:
            return _refusal(404, "the status page is at /")
        if request.method not in (hdrs.METH_GET, hdrs.METH_HEAD):
            return _refusal(405, "this page only shows", {hdrs.ALLOW: "GET, HEAD"})
        visitor = self._visitor(request)
        if visitor is None:
            return _refusal(403, "the certificate names no user")
        user, password = credentials_of(request) or (None, None)
        try:
            watcher = await self._watchers.admit(visitor, user, password)
        except WatcherRefused as refused:
            if user is not None:
                fields = about(peer=visitor.host, user=user, reason=str(refused))
                logger.warning("status page refused", extra=fields)
            return _answer_to(refused)
        return await self._show(request, visitor, watcher)

    def _visitor(self, request: web.BaseRequest) -> Visitor | None:
        connection = cast(HttpConnection, request.protocol)
        if connection.transport is None:
            return None
        may_be_anonymous = is_loopback(self._config.host) and not is_behind_proxy(request)
        return self._visitors[may_be_anonymous].identify(connection.accepted, connection.transport)

    async def _show(self, request: web.BaseRequest, visitor: Visitor, watcher: Watcher) -> web.StreamResponse:
        match request.path:
            case "/events":
                return await self._follow(request, visitor, watcher)
            case "/icon.svg":
                return web.Response(body=self._documents.icon, content_type="image/svg+xml", headers=self._headers)
            case "/devices":
                body = await self._device_page(request.query.get("from", "0"))
            case _:
                await self._look()
                board = self._board
                body = self._documents.page(self._gateway, board.at, board.version, board.html())
        return web.Response(body=body, content_type="text/html", charset="utf-8", headers=self._headers)

    @property
    def _headers(self) -> dict[str, str]:
        return self._documents.headers

    async def _device_page(self, begin: str) -> bytes:
        now_s = time.time()
        if abs(now_s - self._listed_s) > TICK_S:
            self._listed_s = now_s
            self._all = await self._observer.devices(now_s)
        count = len(self._all)
        first = min(int(begin), count) if begin.isascii() and begin.isdigit() and len(begin) < 9 else 0
        shown = self._all[first : first + DEVICES_OF_PAGE]
        ways = [f"<p>{first + 1:,} to {first + len(shown):,} of {count:,}, by name.</p>"] if shown else []
        if first:
            ways.append(f'<a href="/devices?from={max(0, first - DEVICES_OF_PAGE)}">Earlier ones</a> ')
        if first + DEVICES_OF_PAGE < count:
            ways.append(f'<a href="/devices?from={first + DEVICES_OF_PAGE}">Later ones</a>')
        table = device_table(shown) if shown else "<p>There are no devices here.</p>"
        return self._documents.devices(self._gateway, clock_of(1000 * now_s), table, "".join(ways))

    async def _follow(self, request: web.BaseRequest, visitor: Visitor, watcher: Watcher) -> web.StreamResponse:
        """Sends what changes, an event each second, until the viewer goes or may not look any more."""
        if self._viewers >= VIEWERS_MAX:
            return _refusal(503, f"{VIEWERS_MAX} pages are open already", {hdrs.RETRY_AFTER: "5"})
        if request.method == hdrs.METH_HEAD:
            return web.Response(headers=self._headers, content_type="text/event-stream")
        connection = cast(HttpConnection, request.protocol)
        connection.accepted.note_admitted()
        if connection.transport is not None and (line := connection.transport.get_extra_info("socket")) is not None:
            line.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, QUEUED_BYTES)  # the system would take some MB
        response = web.StreamResponse(headers={**self._headers, hdrs.CONTENT_TYPE: "text/event-stream; charset=utf-8"})
        response.force_close()
        since = request.headers.get("Last-Event-ID") or request.query.get("since", "")
        self._viewers += 1
        try:
            await response.prepare(request)
            await response.write(f"retry: {RETRY_MS}\n\n".encode())
            while self._watchers.may_look(watcher) and not visitor.is_revoked():
                await self._news.wait()
                since, news = self._board.version, self._board.news(since)
                async with asyncio.timeout(SEND_S):  # it waits while much is not taken, and then sends the newest
                    await response.write(news)
        except (ConnectionError, TimeoutError):
            if request.transport is not None:
                request.transport.abort()
        finally:
            self._viewers -= 1
        return response


def _answer_to(refused: WatcherRefused) -> web.Response:
    if refused.is_asked_to_log_in:
        return _refusal(401, str(refused), {hdrs.WWW_AUTHENTICATE: CHALLENGE})
    return _refusal(429, str(refused), {hdrs.RETRY_AFTER: "10"}) if refused.may_retry else _refusal(403, str(refused))


def _refusal(status: int, text: str, headers: dict[str, str] | None = None) -> web.Response:
    return web.Response(status=status, text=f"{text}\n", headers={**HEADERS, **(headers or {})})
