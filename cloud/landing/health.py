"""``/healthz`` and ``/metrics`` of a lander over HTTP, for monitoring from the same machine."""

import ipaddress
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from urllib.parse import urlsplit

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, generate_latest

HOST = "127.0.0.1"  # requests need no login, so only this machine may send them
REQUEST_DEADLINE_S = 2.0  # one request at a time is answered, so none may take long
PATHS = ("/metrics", "/healthz")
TEXT = "text/plain; charset=utf-8"


class Metrics:
    """What a lander counts. The names and meanings are those that `/metrics` shows."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.messages = self._counter("messages", "Messages in landing files.")
        self.bytes = self._counter("bytes", "Bytes of landing files.")
        self.files = self._counter("files", "Landing files.")
        self.failures = self._counter("failures", "Attempts to write a landing file that failed.")
        self.redelivered = self._counter("redelivered", "Messages that the broker sent again, with DUP.")
        self.connections = self._counter("connections", "Connections that the broker accepted.")
        self.lost_sessions = self._counter("lost_sessions", "Sessions that the broker did not keep.")
        self.connected = self._gauge("connected", "Whether the lander is connected and subscribed.")
        self.held_messages = self._gauge("held_messages", "Messages that are received and not landed.")
        self.held_bytes = self._gauge("held_bytes", "Memory that these take.")
        self.last_landed = self._gauge("last_landed_timestamp_seconds", "When the newest landing file was complete.")

    def text(self) -> bytes:
        """Returns all of them as Prometheus reads them."""
        return generate_latest(self.registry)

    def _counter(self, name: str, about: str) -> Counter:
        return Counter(f"holdfast_lander_{name}", about, registry=self.registry)

    def _gauge(self, name: str, about: str) -> Gauge:
        return Gauge(f"holdfast_lander_{name}", about, registry=self.registry)


class HealthServer:
    """Answers in a thread of its own, one request after the other, until `close`.

    Args:
        port: a TCP port on the loopback address, 0 for one that is free; the attribute `port` is its number.
        metrics: what `/metrics` shows.
        problems: returns what is wrong now. `/healthz` answers 200 if nothing is, else 503 with a line each.

    Raises OSError if the port cannot be used.
    """

    def __init__(self, port: int, metrics: Metrics, problems: Callable[[], list[str]]) -> None:
        class Handler(_Handler):
            def answer(self, path: str) -> tuple[int, str, bytes]:
                if path == "/metrics":
                    return 200, CONTENT_TYPE_LATEST, metrics.text()
                found = problems()
                return 503 if found else 200, TEXT, ("\n".join(found or ["ok"]) + "\n").encode()

        self._server = HTTPServer((HOST, port), Handler)
        self.port: int = self._server.server_port
        self._thread = Thread(target=self._server.serve_forever, name="health", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stops answering."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    timeout = REQUEST_DEADLINE_S

    def answer(self, path: str) -> tuple[int, str, bytes]:
        """Returns the status, the content type and the body for one of PATHS."""
        raise NotImplementedError

    def do_GET(self) -> None:
        if not _is_own_name(self.headers.get("Host", "")):  # a page in a browser could ask under a name of its own
            self._send(403, TEXT, b"expected a Host that is an address or localhost\n")
        elif (path := urlsplit(self.path).path) in PATHS:
            self._send(*self.answer(path))
        else:
            self._send(404, TEXT, b"/metrics and /healthz are here\n")

    def log_message(self, format: str, *args: object) -> None:
        """Logs nothing."""

    def _send(self, status: int, content_type: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def _is_own_name(host: str) -> bool:
    try:
        name = urlsplit(f"//{host}").hostname or ""
        return name == "localhost" or bool(ipaddress.ip_address(name))
    except ValueError:
        return False
