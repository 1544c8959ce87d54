"""A line to an object store that fails, and that ends the process behind it before one of its requests.

A request may not reach the store, or its answer may not come back, so that its process does not know whether it was
carried out. It may also be carried out when the process that sent it is long dead.
"""

import os
import random
import signal
import socket
import threading
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from http.client import HTTPConnection, HTTPException, HTTPResponse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tools.lab.testing.ports import free_port

DELAY_S = 0.5
HELD_S = 60.0
"""A line that is not released lets all requests through again after so long."""
LATE_S = 2.0
"""A request that is late is carried out at most so long after its line was cut."""
OUTAGE_S = 4.0
CONTROL = "/-/"
"""Below this path a process speaks with its line. No bucket has such a name."""
FAULTS = ("delayed", "cut before", "cut after", "cut within", "503", "503 though done")
LATE_FAULTS = (*FAULTS, "late")
KILLS = ("before", "after")
LATE_KILLS = (*KILLS, "late")
"""Whether the store carries out the request at which a process is killed."""
_BUSY = b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"
_OWN_HEADERS = ("connection", "keep-alive", "transfer-encoding", "content-length", "date", "server")


class StoreLine:
    """A line to the store on a port of its own, for one process at a time and the processes that work for it.

    struck: how often each fault struck, apart from kills.
    """

    def __init__(
        self,
        store: int,
        creating: threading.Lock,
        seed: int,
        share: float,
        faults: Sequence[str] = FAULTS,
        kills: Sequence[str] = KILLS,
    ) -> None:
        """store: the port of the store.

        creating: held by all lines to this store while it creates an object on condition that there is none. S3 looks
            and creates at once; moto looks first.
        share: the share of requests that have one of the faults.
        """
        self.struck: Counter[str] = Counter()
        self.port = free_port()
        self._store = store
        self._creating = creating
        self._chance = random.Random(seed)
        self._share = share
        self._faults, self._kills = faults, kills
        self._lock = threading.Lock()
        self._pid = 0
        self._at: int | None = None
        self._outage_at: int | None = None
        self._outage_end_s = 0.0
        self._hold_at: int | None = None
        self._held = threading.Event()
        self._through = threading.Event()
        self._through.set()
        self._late: list[threading.Thread] = []
        self._requests = 0
        self._server = _Server(("127.0.0.1", self.port), _Handler)
        self._server.line = self
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def close(self) -> None:
        """Takes no more requests."""
        self._server.shutdown()
        self._server.server_close()

    def settle(self) -> None:
        """Lets all requests through from now on, and waits for the late ones."""
        with self._lock:
            self._share, self._outage_at, self._outage_end_s = 0, None, 0
            late = list(self._late)
        for one in late:
            one.join()

    def fail_at(self, request: int | None) -> None:
        """All requests fail for a while, from this one of the next process on; None: they do not."""
        with self._lock:
            self._outage_at = request

    def hold_at(self, request: int) -> None:
        """Holds all requests, from this one of the next process on, until `release`."""
        with self._lock:
            self._hold_at = request
        self._held.clear()

    def is_held(self, seconds: float) -> bool:
        """Waits until requests are held, at most for so long (s). Returns whether they are."""
        return self._held.wait(seconds)

    def release(self) -> None:
        """Lets all requests through that were held."""
        with self._lock:
            self._hold_at = None
        self._through.set()

    def begin(self, pid: int, at: int | None) -> None:
        """Counts from 0. The process is killed at request `at`."""
        with self._lock:
            self._pid, self._at, self._requests = pid, at, 0

    def wait(self) -> None:
        """Returns when the line is not held."""
        if not self._through.wait(HELD_S):
            self.release()

    def spare(self) -> int:
        """Lets the process live: it has done all that it was to do. Returns how many requests it has sent."""
        with self._lock:
            self._at = None
            return self._requests

    def draw(self) -> str:
        """Returns the fate of the next request, "" for one without a fault."""
        with self._lock:
            number, self._requests = self._requests, self._requests + 1
            if number == self._hold_at:
                self._hold_at = None
                self.struck["held"] += 1
                self._through.clear()
                self._held.set()
            if number == self._at:
                self._at = None
                return f"killed {self._chance.choice(self._kills)}"
            if number == self._outage_at:
                self._outage_at, self._outage_end_s = None, time.monotonic() + OUTAGE_S
                self.struck["outage"] += 1
            if time.monotonic() < self._outage_end_s:
                return "503"
            if self._chance.random() >= self._share:
                return ""
            fate = self._chance.choice(self._faults)
            self.struck[f"request {fate}"] += 1
            return fate

    def kill(self) -> None:
        """Kills the process that is counted."""
        with suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGKILL)

    def carry(self, request: "Request") -> "Answer":
        """Lets the store carry out a request. Raises OSError."""
        if request.is_creating:
            with self._creating:
                return self._carry(request)
        return self._carry(request)

    def carry_late(self, request: "Request") -> None:
        """Lets the store carry out a request after a while, if it changes something."""
        if request.method in ("GET", "HEAD"):
            return
        with self._lock:
            late = threading.Thread(target=self._carry_late, args=(request, self._chance.random() * LATE_S))
            self._late = [one for one in self._late if one.is_alive()] + [late]
            late.start()

    def _carry_late(self, request: "Request", seconds: float) -> None:
        time.sleep(seconds)
        with suppress(OSError):  # the store has ended
            self.carry(request)

    def _carry(self, request: "Request") -> "Answer":
        connection = HTTPConnection("127.0.0.1", self._store, timeout=60)
        try:
            connection.request(request.method, request.path, request.body, request.headers)
            return Answer(connection.getresponse())
        except HTTPException as error:
            raise OSError(str(error)) from error
        finally:
            connection.close()

    def draw_delay_s(self) -> float:
        """Returns for how long a request is delayed (s)."""
        with self._lock:
            return self._chance.random() * DELAY_S


class Request:
    """A request as a process has sent it."""

    def __init__(self, handler: BaseHTTPRequestHandler) -> None:
        self.method: str = handler.command
        self.path = handler.path
        self.headers = dict(handler.headers.items())
        self.is_creating = handler.headers.get("If-None-Match") == "*"  # in whatever case it is written
        self.body = handler.rfile.read(int(handler.headers.get("Content-Length", 0)))


class Answer:
    """The store's answer to a request. A HEAD has no body, and says how long it would be."""

    def __init__(self, came: HTTPResponse) -> None:
        self.status = came.status
        self.body = came.read()
        self.length = came.getheader("Content-Length") or str(len(self.body))
        self.headers = [(name, value) for name, value in came.getheaders() if name.lower() not in _OWN_HEADERS]


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    line: StoreLine

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A process that was killed reads no answer."""


class _Handler(BaseHTTPRequestHandler):
    """One connection of a process to the store."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Server

    def _handle(self) -> None:
        line, request = self.server.line, Request(self)
        if request.path.startswith(CONTROL):
            self._control(line, urlsplit(request.path))
            return
        fate = line.draw()
        line.wait()
        match fate:
            case "":
                self._answer(line.carry(request))
            case "delayed":
                time.sleep(line.draw_delay_s())
                self._answer(line.carry(request))
            case "503":
                self._send(503, [], _BUSY)
            case "503 though done":
                line.carry(request)
                self._send(503, [], _BUSY)
            case "cut within":
                answer = line.carry(request)
                answer.body = answer.body[: len(answer.body) // 2]
                self._answer(answer)
                self._cut()
            case "cut after":
                line.carry(request)
                self._cut()
            case "late":
                line.carry_late(request)
                self._cut()
            case "killed after":
                line.carry(request)
                line.kill()
                self._cut()
            case "killed late":
                line.kill()
                line.carry_late(request)
                self._cut()
            case "killed before":
                line.kill()
                self._cut()
            case _:
                self._cut()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("do_"):  # whatever the method of the request
            return self._handle
        raise AttributeError(name)

    def _control(self, line: StoreLine, asked: Any) -> None:
        if asked.path == f"{CONTROL}begin":
            order = parse_qs(asked.query)
            line.begin(int(order["pid"][0]), int(order["at"][0]) if "at" in order else None)
            self._send(200, [], b"")
        else:
            self._send(200, [], str(line.spare()).encode())

    def _answer(self, answer: Answer) -> None:
        self._send(answer.status, answer.headers, answer.body, answer.length)

    def _send(self, status: int, headers: list[tuple[str, str]], body: bytes, length: str | None = None) -> None:
        self.send_response_only(status)
        for name, value in headers:
            self.send_header(name, value)
        if status not in (204, 304):
            self.send_header("Content-Length", length or str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
        self.wfile.flush()

    def _cut(self) -> None:
        self.close_connection = True
        with suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)
