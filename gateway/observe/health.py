"""``/metrics`` and ``/healthz`` over HTTP, for monitoring from the same machine, and ``/firmware/`` for its browser."""

from collections.abc import Callable

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST

from gateway.config.schema import LimitsConfig
from gateway.listeners.accept import listen_tcp
from gateway.listeners.connection_limits import ConnectionLimits
from gateway.listeners.http import HttpServer, is_for_this_machine
from gateway.listeners.proxies import Proxies
from gateway.observe.firmware import PLACE, FirmwareFolder
from gateway.observe.metrics import Metrics

HOST = "127.0.0.1"  # requests need no login, so only this machine may send them
LIMITS = LimitsConfig(connections=32, connect_timeout_s=10)  # no connection logs in, so each ends after this time
CLOSE_GRACE_S = 1.0


class HealthServer:
    """Answers on a loopback port, one request for each connection.

    Args:
        port: the TCP port, 0 for one that is free.
        metrics: what ``/metrics`` shows.
        problems: returns what is wrong now, a line each. Without any ``/healthz`` answers 200, else 503 with the lines.
        notes: returns more lines that ``/healthz`` shows with either status.
        firmware: the folder that ``/firmware/`` serves; None: there is none.
    """

    def __init__(
        self,
        port: int,
        metrics: Metrics,
        problems: Callable[[], list[str]],
        notes: Callable[[], list[str]] = list,
        firmware: str | None = None,
    ) -> None:
        self.port = port
        self._metrics = metrics
        self._problems = problems
        self._notes = notes
        self._firmware = None if firmware is None else FirmwareFolder(firmware)
        self._server = HttpServer(ConnectionLimits(LIMITS), None, self._answer, Proxies(()), CLOSE_GRACE_S)

    async def open(self) -> None:
        """Begins to answer; ``port`` is the port's number then. Raises ListenError."""
        sockets = listen_tcp("metrics", HOST, self.port)
        self.port = sockets[0].getsockname()[1]
        self._server.open(sockets)

    async def close(self) -> None:
        """Stops answering."""
        await self._server.close()

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        response: web.StreamResponse | None = self._response(request)
        if response is None:
            assert self._firmware is not None
            response = await self._firmware.answer(request)
        response.force_close()
        return response

    def _response(self, request: web.BaseRequest) -> web.Response | None:
        """Returns the answer; None for a file of the firmware."""
        if not is_for_this_machine(request):
            return web.Response(
                status=403, text="expected a Host that is an address, localhost or this machine's name\n"
            )
        is_file = self._firmware is not None and f"{request.path}/".startswith(PLACE)
        if not is_file and request.path not in ("/metrics", "/healthz"):
            return web.Response(status=404, text="/metrics and /healthz are here\n")
        if request.method not in ("GET", "HEAD"):
            return web.Response(status=405, headers={"Allow": "GET, HEAD"})
        if is_file:
            is_folder = request.path != PLACE.rstrip("/")
            return None if is_folder else web.Response(status=308, headers={"Location": PLACE})
        if request.path == "/metrics":
            return web.Response(body=self._metrics.text(), headers={"Content-Type": CONTENT_TYPE_LATEST})
        problems = self._problems()
        lines = [*(problems or ["ok"]), *self._notes()]
        return web.Response(text="\n".join(lines) + "\n", status=503 if problems else 200)
