"""``/metrics`` and ``/healthz`` over HTTP, for whoever watches the gateway from the same machine."""

import asyncio
from collections.abc import Callable
from urllib.parse import urlsplit

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST

from gateway.config import LimitsConfig
from gateway.listeners.addresses import is_own_name, listen_tcp
from gateway.listeners.door import Door
from gateway.listeners.entrance import Entrance, Guest
from gateway.listeners.http_connection import HttpConnection
from gateway.metrics import Metrics

HOST = "127.0.0.1"  # nobody logs in here, so nobody from outside may come
LIMITS = LimitsConfig(connections=32, connect_timeout_s=10)  # who is let in nowhere stays no longer than that
CLOSE_GRACE_S = 1.0


class HealthServer:
    """Answers on a loopback port, a request a connection.

    Args:
        port: the TCP port, 0 for one that is free.
        metrics: what ``/metrics`` shows.
        problems: returns what is wrong now, a line each; none: ``/healthz`` answers 200, else 503 with the lines.
        notes: returns what is to be known besides, a line each, whatever the status is.
    """

    def __init__(
        self, port: int, metrics: Metrics, problems: Callable[[], list[str]], notes: Callable[[], list[str]] = list
    ) -> None:
        self.port = port
        self._metrics = metrics
        self._problems = problems
        self._notes = notes
        self._server: web.Server | None = None
        self._door = Door(Entrance(LIMITS), None, self._receive)

    async def open(self) -> None:
        """Answers from now on; ``port`` is then the port's number. Raises ListenError."""
        sockets = listen_tcp("metrics", HOST, self.port)
        self.port = sockets[0].getsockname()[1]
        self._server = web.Server(self._answer)
        self._door.open(sockets)

    async def close(self) -> None:
        """Answers nobody any more."""
        await self._door.close()
        if self._server is not None:
            await self._server.shutdown(CLOSE_GRACE_S)
            self._server = None

    def _receive(self, guest: Guest) -> asyncio.BaseProtocol:
        assert self._server is not None
        return HttpConnection(self._server, guest)

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        response = self._response(request)
        response.force_close()
        return response

    def _response(self, request: web.BaseRequest) -> web.Response:
        if not _is_for_this_machine(request):
            return web.Response(
                status=403, text="expected a Host that is an address, localhost or this machine's name\n"
            )
        if request.path not in ("/metrics", "/healthz"):
            return web.Response(status=404, text="/metrics and /healthz are here\n")
        if request.method not in ("GET", "HEAD"):
            return web.Response(status=405, headers={"Allow": "GET, HEAD"})
        if request.path == "/metrics":
            return web.Response(body=self._metrics.text(), headers={"Content-Type": CONTENT_TYPE_LATEST})
        problems = self._problems()
        lines = [*(problems or ["ok"]), *self._notes()]
        return web.Response(text="\n".join(lines) + "\n", status=503 if problems else 200)


def _is_for_this_machine(request: web.BaseRequest) -> bool:
    """Whether a request names this machine: a page whose own name was made to lead here does not (DNS rebinding).

    HTTP/1.0 has no Host, and no browser speaks it.
    """
    host = request.headers.get("Host")
    try:
        return host is None or is_own_name(urlsplit(f"//{host}").hostname or "")
    except ValueError:
        return False
