"""A Unix socket in the store's folder, through which commands talk with the gateway that runs.

A command connects, sends one request, gets one answer, and the connection ends. Both are one line of JSON. A request is
``{"do": NAME, "route": NAME, "file": PATH, …}``; the answer is ``{"result": …}`` or ``{"error": TEXT}``. Only the
gateway's user, and root, can connect.
"""

import asyncio
import contextlib
import errno
import logging
import os
import socket
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec

from gateway.links import Links, describe_all
from gateway.routes import ListenError
from gateway.store import disk
from uplink.carry import BadBacklogFile, ExportFailed, Imports, ImportStopped
from uplink.routes import NoSuchRoute, Routes

SOCKET = "control"
REQUEST_BYTES_MAX = 256 * 1024
FILTERS_MOST = 1000  # of a network, in an answer
ANSWER_DEADLINE_S = 120.0  # a request may have to read a long log
FILE_DEADLINE_S = 24 * 3600.0  # a file may be large, and its medium slow
CONNECT_DEADLINE_S = 10.0

logger = logging.getLogger(__name__)


class ControlFailed(Exception):
    """The gateway could not be asked, or could not do what it was asked; the text says why."""


class Request(msgspec.Struct, forbid_unknown_fields=True):
    """One request."""

    do: str
    route: str = ""
    file: str = ""
    filter: str = ""
    after: str = ""
    stream: str = ""
    limit: Annotated[int, msgspec.Meta(ge=1, le=FILTERS_MOST)] = FILTERS_MOST


class Control:
    """Answers the requests of commands.

    Args:
        folder: the store's folder.
        routes: the gateway's routes.
        imports: imports backlogs of other gateways.
        links: the links to neighbours in each stream, the default stream's first.
        see_drops: an operator has seen which messages were dropped; returns how many stores had any. Raises OSError.
    """

    def __init__(
        self, folder: Path, routes: Routes, imports: Imports, links: Sequence[Links], see_drops: Callable[[], int]
    ) -> None:
        self._folder = folder
        self._routes = routes
        self._imports = imports
        self._links = links
        self._see_drops = see_drops

    @contextlib.asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        """Answers in the ``with`` block. Raises ListenError."""
        listening = self._listen()
        server = await asyncio.start_unix_server(self._serve, sock=listening, limit=REQUEST_BYTES_MAX)
        try:
            yield
        finally:
            server.close()
            (self._folder / SOCKET).unlink(missing_ok=True)

    def _listen(self) -> socket.socket:
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            (self._folder / SOCKET).unlink(missing_ok=True)  # an earlier process was killed: the folder's lock is ours
            with _short(self._folder) as path:
                listening.bind(path)
            os.chmod(self._folder / SOCKET, 0o600)
            listening.setblocking(False)
        except OSError as error:
            listening.close()
            raise ListenError(f"control socket {self._folder / SOCKET}: {error.strerror}") from error
        return listening

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            try:
                async with asyncio.timeout(CONNECT_DEADLINE_S):
                    line = await reader.readline()
                answer = {"result": await self._do(msgspec.json.decode(line, type=Request))}
            except (NoSuchRoute, ExportFailed, BadBacklogFile, ImportStopped) as error:
                answer = {"error": str(error)}
            except (msgspec.MsgspecError, ValueError, TimeoutError) as error:
                answer = {"error": f"expected a request in one line of JSON: {error}"}
            except (OSError, sqlite3.Error) as error:  # of a file or the store; one of the connection ends it below
                answer = {"error": disk.words_of(error, self._folder)}
            writer.write(msgspec.json.encode(answer) + b"\n")
            await writer.drain()
        writer.close()

    async def _do(self, request: Request) -> Any:
        routes = self._routes
        match request.do:
            case "status":
                return routes.status()
            case "refused":
                return await routes.refused(request.route)
            case "resend":
                return routes.resend(request.route)
            case "discard":
                return await routes.discard(request.route)
            case "forget":
                return await routes.forget(request.route)
            case "export":
                return await routes.export(request.route, _absolute(request.file))
            case "network":
                return await describe_all(self._links)
            case "interest":
                return await self._links_of(request.stream).interest(request.filter, request.after, request.limit)
            case "seen":
                return self._see_drops()
            case "import":
                return await self._imports.import_file(_absolute(request.file))
        raise ValueError(f"no request is named {request.do!r}")

    def _links_of(self, stream: str) -> Links:
        for links in self._links:
            if links.stream == stream:
                return links
        raise ValueError(f"no stream is named {stream!r}")


def _absolute(file: str) -> Path:
    if not (path := Path(file)).is_absolute():
        raise ValueError(f"{file!r}, expected an absolute path")
    return path


def ask(folder: Path, do: str, route: str = "", file: str = "", **keys: Any) -> Any:
    """Asks the gateway that uses a store; returns its answer, as JSON's types. Blocks.

    Args:
        folder: the store's folder.
        do: ``status``, ``refused``, ``resend``, ``discard``, ``forget``, ``export``, ``import``, ``network``,
            ``interest`` or ``seen``.
        route: the route's name.
        file: the absolute path of a file to export to, or to import.
        keys: more keys of a `Request`.

    Raises:
        ControlFailed: no gateway runs on this store, or it could not do it.
    """
    request = msgspec.json.encode(Request(do, route, file, **keys)) + b"\n"
    try:
        with _short(folder) as path, socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(FILE_DEADLINE_S if file else ANSWER_DEADLINE_S)
            connection.connect(path)
            connection.sendall(request)
            with connection.makefile("rb") as answers:
                answer = msgspec.json.decode(answers.readline(), type=dict[str, Any])
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ECONNREFUSED, errno.ENOTDIR):
            raise ControlFailed(f"no gateway runs on the store {folder}") from error
        raise ControlFailed(f"the gateway on the store {folder} cannot be asked: {error.strerror or error}") from error
    except msgspec.MsgspecError as error:
        raise ControlFailed(f"the gateway on the store {folder} ended before it answered") from error
    if "error" in answer:
        raise ControlFailed(str(answer["error"]))
    return answer["result"]


@contextlib.contextmanager
def _short(folder: Path) -> Iterator[str]:
    """Yields a short path of the socket: the address of a Unix socket has 107 bytes at most [unix(7)]."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{descriptor}/{SOCKET}"
    finally:
        os.close(descriptor)
