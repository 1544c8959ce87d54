"""Clients over WebSocket, with TLS or without."""

import asyncio
import logging
from collections.abc import Callable
from typing import cast
from urllib.parse import urlsplit

from aiohttp import web

from gateway.config import WebSocketConfig
from gateway.listeners.addresses import is_own_name, listen_tcp
from gateway.listeners.door import Door
from gateway.listeners.entrance import Entrance, Guest
from gateway.listeners.http_connection import HttpConnection
from gateway.listeners.stream_port import CLOSE_GRACE_S
from gateway.listeners.tls import Tls
from gateway.listeners.visitors import Visitors
from gateway.listeners.websocket_port import WebSocketPort
from gateway.logs import about
from gateway.port import Port

PATH = "/mqtt"
SUBPROTOCOL = "mqtt"  # [MQTT-6.0.0-4]
UPGRADE_REQUIRED = 426

logger = logging.getLogger(__name__)


class WebSocketListener:
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
        self,
        config: WebSocketConfig,
        *,
        anonymous: bool,
        entrance: Entrance,
        connect: Callable[[Port], None],
    ) -> None:
        self.port = config.port
        self._config = config
        self._connect = connect
        self._server: web.Server | None = None
        tls = Tls(config.tls) if config.tls else None
        self._visitors = Visitors(tls, anonymous)
        self._door = Door(entrance, tls, self._receive)

    async def open(self) -> None:
        """Listens from now on; ``port`` is then the port's number. Raises ListenError."""
        sockets = listen_tcp("websocket", self._config.host, self.port)
        self.port = sockets[0].getsockname()[1]
        self._server = web.Server(self._answer)
        self._door.open(sockets)

    async def close(self) -> None:
        """Accepts nobody any more; whose port is closed already takes our last words first."""
        await self._door.close()
        if self._server is not None:
            await self._server.shutdown(CLOSE_GRACE_S)
            self._server = None

    def reload(self) -> None:
        """Reads the certificates again. Raises ConfigError."""
        self._door.reload()

    def _receive(self, guest: Guest) -> asyncio.BaseProtocol:
        assert self._server is not None
        return HttpConnection(self._server, guest)

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        connection = cast(HttpConnection, request.protocol)
        guest, transport = connection.guest, connection.transport
        refusal = _refusal(request, self._config.origins)
        if refusal is not None:
            status, text = refusal
            origin = {"origin": request.headers["Origin"]} if "Origin" in request.headers else {}
            logger.warning("connection refused", extra=about(peer=guest.peer, path=request.path, **origin, reason=text))
            upgrade = {"Upgrade": "websocket"} if status == UPGRADE_REQUIRED else None
            return _close_after(web.Response(status=status, text=f"{text}\n", headers=upgrade))
        if transport is None:
            return _close_after(web.Response(status=400))
        visitor = self._visitors.identify(guest, transport)
        if visitor is None:
            return _close_after(web.Response(status=403, text="the certificate names no user\n"))
        websocket = web.WebSocketResponse(protocols=(SUBPROTOCOL,), compress=False)
        port = connection.port = WebSocketPort(guest, visitor, websocket, connection, transport)
        await websocket.prepare(request)
        try:
            self._connect(port)
            await port.carry()
        finally:
            connection.port = None  # each knows the other: apart they are freed at once
        return websocket


def _refusal(request: web.BaseRequest, origins: list[str]) -> tuple[int, str] | None:
    """Status and text of the answer to what is no WebSocket of ours; None if it is one."""
    if request.path != PATH:
        return 404, f"MQTT is at {PATH}"
    if not web.WebSocketResponse(protocols=(SUBPROTOCOL,)).can_prepare(request).ok:
        return UPGRADE_REQUIRED, "only WebSocket is spoken here"
    offered = request.headers.get("Sec-WebSocket-Protocol", "").split(",")
    if SUBPROTOCOL not in map(str.strip, offered):
        return 400, f"the subprotocol has to be {SUBPROTOCOL}"
    origin = request.headers.get("Origin")
    if origin is not None and not _is_ours(origin, request, origins):
        return 403, "pages of this origin may not connect"
    return None


def _is_ours(origin: str, request: web.BaseRequest, origins: list[str]) -> bool:
    """Whether a browser's page may connect: one from the same host, whatever its port, or one of the list."""
    try:
        host = urlsplit(f"//{request.host}").hostname
        same = urlsplit(origin).hostname == host
    except ValueError:
        return False
    # Over TLS the name needs no question: the certificate would not be that of another owner's name.
    return (same and (request.secure or is_own_name(host or ""))) or origin in origins or "*" in origins


def _close_after(response: web.Response) -> web.Response:
    response.force_close()
    return response
