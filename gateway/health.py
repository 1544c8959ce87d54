"""``/metrics`` and ``/healthz`` over HTTP, for whoever watches the gateway from the same machine."""

from collections.abc import Callable

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST

from gateway.errors import ListenError
from gateway.metrics import Metrics

HOST = "127.0.0.1"  # nobody logs in here, so nobody from outside may come
CLOSE_GRACE_S = 1.0


class HealthServer:
    """Answers on a loopback port.

    Args:
        port: the TCP port, 0 for one that is free.
        metrics: what ``/metrics`` shows.
        problems: returns what is wrong now, a line each; none: ``/healthz`` answers 200, else 503 with the lines.
    """

    def __init__(self, port: int, metrics: Metrics, problems: Callable[[], list[str]]) -> None:
        self.port = port
        self._metrics = metrics
        self._problems = problems
        self._runner: web.AppRunner | None = None

    async def open(self) -> None:
        """Answers from now on; ``port`` is then the port's number. Raises ListenError."""
        app = web.Application()
        app.router.add_get("/metrics", self._answer_metrics)
        app.router.add_get("/healthz", self._answer_healthz)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=CLOSE_GRACE_S)
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, HOST, self.port).start()
        except OSError as error:
            await self.close()
            raise ListenError(f"metrics {HOST}:{self.port}: {error.strerror}") from error
        self.port = self._runner.addresses[0][1]

    async def close(self) -> None:
        """Answers nobody any more."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def _answer_metrics(self, _: web.Request) -> web.Response:
        return web.Response(body=self._metrics.text(), headers={"Content-Type": CONTENT_TYPE_LATEST})

    async def _answer_healthz(self, _: web.Request) -> web.Response:
        problems = self._problems()
        return web.Response(text="\n".join(problems or ["ok"]) + "\n", status=503 if problems else 200)
