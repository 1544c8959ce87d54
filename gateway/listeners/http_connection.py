"""One connection that begins as HTTP, for as long as its client is a stranger."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.http_websocket import WebSocketReader

from gateway.listeners.entrance import Guest
from gateway.logs import about

CLOSE_PROTOCOL_ERROR = b"\x88\x02\x03\xea"  # a frame: Close, 1002
MASKED = 0x80
MASK_SIZE = 4
LENGTH_SIZES = {126: 2, 127: 8}  # bytes, where a frame's length does not fit 7 bits

logger = logging.getLogger(__name__)


class HttpConnection(web.RequestHandler):
    """A connection's bytes, counted for the limits.

    Args:
        server: what answers its requests.
        guest: the connection.
    """

    __slots__ = ("guest",)

    def __init__(self, server: web.Server, guest: Guest) -> None:
        super().__init__(server, loop=asyncio.get_running_loop(), access_log=None)  # type: ignore[arg-type]
        self.guest = guest

    def data_received(self, data: bytes) -> None:
        self.guest.note_received(len(data))
        super().data_received(data)

    def set_parser(self, parser: Any, data_received_cb: Callable[[], None] | None = None) -> None:
        """The connection is a WebSocket from now on; its frames are looked at before aiohttp's reader sees them."""
        super().set_parser(_MaskedFrames(parser, self._refuse_unmasked), data_received_cb)  # type: ignore[arg-type]

    def _refuse_unmasked(self) -> None:
        if self.transport is not None:
            logger.warning("connection dropped", extra=about(peer=self.guest.peer, reason="a frame without a mask"))
            self.transport.write(CLOSE_PROTOCOL_ERROR)
            self.transport.close()

    def connection_lost(self, exception: BaseException | None) -> None:
        self.guest.leave()
        super().connection_lost(exception)

    def log_exception(self, *args: Any, **kw: Any) -> None:
        """Says in a line that a request is malformed: aiohttp would quote it, and there may be a password in it."""
        error = kw.get("exc_info")
        if isinstance(error, HttpProcessingError):
            logger.warning("malformed request", extra=about(peer=self.guest.peer, reason=type(error).__name__))
        else:
            super().log_exception(*args, **kw)


class _MaskedFrames:
    """Ends a WebSocket whose client sends a frame without a mask [RFC 6455 section 5.1]; aiohttp's reader takes it.

    Args:
        reader: takes the bytes of frames that are masked.
        refuse: called at the first frame that is not.
    """

    def __init__(self, reader: WebSocketReader, refuse: Callable[[], None]) -> None:
        self._reader = reader
        self._refuse = refuse
        self._header = bytearray()  # of the frame that begins
        self._rest = 0  # bytes of the frame's payload that have not come
        self._is_refused = False

    def feed_data(self, data: bytes) -> tuple[bool, bytes]:
        """Takes bytes; returns whether the WebSocket has ended, and what is left of them, as aiohttp's reader does."""
        if not self._is_refused and self._are_masked(data):
            return self._reader.feed_data(data)
        if not self._is_refused:
            self._is_refused = True
            self._refuse()
        return True, b""

    def feed_eof(self) -> None:
        self._reader.feed_eof()

    def _are_masked(self, data: bytes) -> bool:
        at = 0
        while at < len(data):
            if self._rest:
                passed = min(self._rest, len(data) - at)
                self._rest -= passed
                at += passed
                continue
            header = self._header
            more = (_header_size(header) if len(header) > 1 else 2) - len(header)
            header += data[at : at + more]
            at += more
            if len(header) > 1 and not header[1] & MASKED:
                return False
            if len(header) > 1 and len(header) == _header_size(header):
                length = header[1] & ~MASKED
                self._rest = int.from_bytes(header[2:-MASK_SIZE], "big") if length in LENGTH_SIZES else length
                header.clear()
        return True


def _header_size(header: bytearray) -> int:
    return 2 + LENGTH_SIZES.get(header[1] & ~MASKED, 0) + MASK_SIZE
