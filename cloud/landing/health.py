"""``/healthz`` and ``/metrics`` of a lander over HTTP, for monitoring from the same machine."""

import contextlib
import ipaddress
import socket
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread
from typing import Any
from urllib.parse import urlsplit

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, generate_latest

HOST = "127.0.0.1"  # requests need no login, so only this machine may send them
CONNECTION_DEADLINE_S = 5.0  # from the connection to the end of the answer
CONNECTIONS_MOST = 16  # each takes a thread; one more ends the oldest
LOOK_S = 0.5  # between two looks for connections that are over time
PATHS = ("/metrics", "/healthz")
TEXT = "text/plain; charset=utf-8"


class Metrics:
    """What a lander counts. `/metrics` shows the same names and meanings."""

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
    """Answers each connection in a thread of its own until `close`, one request for each.

    Args:
        port: a TCP port on the loopback address, 0 for one that is free; the attribute `port` is its number.
        metrics: what `/metrics` shows.
        problems: returns what is wrong now. `/healthz` answers 200 if nothing is, else 503 with a line each.

    Raises OSError if the port cannot be used.
    """

    def __init__(self, port: int, metrics: Metrics, problems: Callable[[], list[str]]) -> None:
        one_at_a_time = Lock()

        class Handler(_Handler):
            def answer(self, path: str) -> tuple[int, str, bytes]:
                with one_at_a_time:
                    if path == "/metrics":
                        return 200, CONTENT_TYPE_LATEST, metrics.text()
                    found = problems()
                return 503 if found else 200, TEXT, ("\n".join(found or ["ok"]) + "\n").encode()

        self._server = _Server((HOST, port), Handler)
        self.port: int = self._server.server_port
        self._thread = Thread(target=self._server.serve_forever, args=(LOOK_S,), name="health", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stops answering."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    """Ends connections that take too long, whatever they send or do not read, and the oldest one of too many."""

    daemon_threads = True

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        self._lock = Lock()
        self._begun_s: dict[socket.socket, float] = {}  # of each open connection, the oldest first
        super().__init__(address, handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Begins a connection's thread."""
        with self._lock:
            if len(self._begun_s) >= CONNECTIONS_MOST:
                self._end(next(iter(self._begun_s)))
            self._begun_s[request] = time.monotonic()
        super().process_request(request, client_address)

    def service_actions(self) -> None:
        """Ends the connections that are over time."""
        with self._lock:
            begun_s = time.monotonic() - CONNECTION_DEADLINE_S
            for request in [one for one, since_s in self._begun_s.items() if since_s < begun_s]:
                self._end(request)

    def shutdown_request(self, request: Any) -> None:
        """Closes a connection; its thread ends."""
        with self._lock:
            self._begun_s.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Says nothing: the client has gone, or was too slow."""

    def _end(self, request: socket.socket) -> None:
        """Makes a connection's thread find that the connection has ended."""
        del self._begun_s[request]
        with contextlib.suppress(OSError):
            request.shutdown(socket.SHUT_RDWR)


class _Handler(BaseHTTPRequestHandler):
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
