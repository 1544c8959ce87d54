"""``/firmware/`` over HTTP: the folder from which a browser on the same machine writes the firmware to a board."""

import asyncio
import contextlib
import os
import re
import stat
from collections.abc import Iterator
from typing import cast

from aiohttp import web

from gateway.listeners.http import HttpConnection

PLACE = "/firmware/"
INDEX = "index.html"
NAME = re.compile(r"(?:esp-web-tools/)?[A-Za-z0-9][A-Za-z0-9._-]{0,99}")  # `\w` would match other alphabets
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".bin": "application/octet-stream",
}
HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'unsafe-inline'; "
    "img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
}
FILE_MAX = 32 * 1024 * 1024  # bytes; the largest flash of usual boards has 16 MiB
CHUNK = 64 * 1024
AT_ONCE = 12  # answers; a browser asks for six files at a time
SEND_S = 120.0  # the longest time for one file


class FirmwareFolder:
    """Serves plain files of one folder, which is looked at anew for each request.

    Names are of a fixed form, and no symbolic link is followed: nothing outside of the folder can be named.

    Args:
        path: the folder that ``holdfast device build --web`` has written.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._sending = 0

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answers a request for a path below ``PLACE``."""
        name = request.path.removeprefix(PLACE) or INDEX
        kind = TYPES.get(os.path.splitext(name)[1])
        if kind is None or not NAME.fullmatch(name):
            return web.Response(status=404, text="no such file\n")
        if self._sending >= AT_ONCE:
            return web.Response(status=503, text="too many requests at once\n", headers={"Retry-After": "1"})
        self._sending += 1
        try:
            with _opened(self._path, name) as file:
                return await _send(request, file, kind)
        except OSError:
            return web.Response(status=404, text="no such file; holdfast device build --web writes the folder\n")
        finally:
            self._sending -= 1


@contextlib.contextmanager
def _opened(folder: str, name: str) -> Iterator[int]:
    """Opens a plain file by its name in the folder, without following links or waiting. Raises OSError."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    *folders, last = name.split("/")
    with contextlib.ExitStack() as opened:
        at = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        opened.callback(os.close, at)
        for part in folders:
            at = os.open(part, flags | os.O_DIRECTORY, dir_fd=at)
            opened.callback(os.close, at)
        file = os.open(last, flags, dir_fd=at)
        opened.callback(os.close, file)
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode) or status.st_size > FILE_MAX:
            raise FileNotFoundError(name)
        yield file


async def _send(request: web.BaseRequest, file: int, kind: str) -> web.StreamResponse:
    size = os.fstat(file).st_size
    headers = {**HEADERS, "Content-Type": kind, "Content-Length": str(size)}
    if request.method == "HEAD":
        return web.Response(headers=headers)
    response = web.StreamResponse(headers=headers)
    response.force_close()
    cast(HttpConnection, request.protocol).accepted.note_admitted()  # the time for a request is over, not for a file
    left = size
    with contextlib.suppress(ConnectionError):
        try:
            async with asyncio.timeout(SEND_S):
                await response.prepare(request)
                while left and (chunk := await asyncio.to_thread(os.read, file, min(CHUNK, left))):
                    await response.write(chunk)
                    left -= len(chunk)
        except TimeoutError:
            left = size
    if left and request.transport is not None:  # cut short: the client must not take it for the whole file
        request.transport.abort()
    return response
