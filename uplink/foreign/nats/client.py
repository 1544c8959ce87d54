"""The NATS library's client, with bounds on what a server may make it do in one piece."""

import contextlib
from collections.abc import Iterator
from typing import Any

from nats.aio.client import Client
from nats.errors import Error, ProtocolError
from nats.protocol.parser import AWAITING_CONTROL_LINE, AWAITING_MSG_PAYLOAD, CRLF_SIZE, Parser

from gateway.routes import Slice
from uplink.connect.connections import end_if_cancelled
from uplink.foreign.transport import UNREADABLE

PIECE = 2048  # bytes that are parsed at a time: 150 of the smallest messages
LINE_MAX = 64 * 1024  # bytes; a server's own limit is 4,096 for lines, and an INFO has some hundred
MESSAGE_MAX = 8 << 20  # bytes of a message with its headers; NATS recommends no more, and its default is 1 MB
HEADERS_MAX = 64 * 1024  # bytes; the library takes 0.2 µs a byte for headers
UNREAD = "holdfast-unread"
"""The one header of a message whose headers were not read; its value are their bytes, as Latin-1."""


class Unreadable(Error):
    """What a server has sent cannot be read; the text says why."""


@contextlib.contextmanager
def readable(what: str) -> Iterator[None]:
    """Raises Unreadable, in the ``with`` block, where the library cannot read what the server has sent.

    Ends a task that is cancelled while an answer comes, which the library forgets.
    """
    try:
        yield
    except Error:
        raise
    except UNREADABLE as error:
        raise Unreadable(f"{what} cannot be read: {error or type(error).__name__}") from error
    finally:
        end_if_cancelled()


class BoundedClient(Client):
    """A client that reads in time slices. It knows no servers but the ones that it is given.

    Attributes:
        fault: why it has ended the connection; "" if it has not.
        skipped: what it says of the last message that was too large; "" if there was none.
    """

    def __init__(self) -> None:
        super().__init__()
        self.fault = ""
        self.skipped = ""
        self._ps = _BoundedParser(self)

    async def _process_info(self, info: dict[str, Any], initial_connection: bool = False) -> None:
        info.pop("connect_urls", None)  # the library compares each with each
        if not isinstance(most := info.get("max_payload", 0), int):
            raise Unreadable(f"the server's INFO has max_payload {most!r}, expected a number")
        await super()._process_info(info, initial_connection)

    async def _process_headers(self, headers: bytes | None) -> dict[str, str] | None:
        if headers is not None and len(headers) > HEADERS_MAX:
            return {UNREAD: headers.decode("latin-1")}
        found: dict[str, str] | None = await super()._process_headers(headers)
        return found


class _BoundedParser(Parser):
    """Skips messages that are too large, which stay where they are, and ends the connection at a line that is, or that
    cannot be read.
    """

    nc: BoundedClient

    def __init__(self, client: BoundedClient) -> None:
        super().__init__(client)
        self._to_skip = 0

    async def parse(self, data: bytes = b"") -> None:
        slice_ = Slice()
        for start in range(0, len(data), PIECE):
            if slice_.is_over:
                await slice_.give_way()
            piece = data[start : start + PIECE]
            skipped = min(self._to_skip, len(piece))
            self._to_skip -= skipped
            if skipped < len(piece):
                await self._parse(piece[skipped:])
                self._bound()

    async def _parse(self, piece: bytes) -> None:
        try:
            with readable("what the server sends"):
                await super().parse(piece)
        except (ProtocolError, Unreadable) as error:
            self.nc.fault = str(error)
            raise ProtocolError(self.nc.fault) from error

    def _bound(self) -> None:
        if self.state == AWAITING_MSG_PAYLOAD and self.needed > MESSAGE_MAX:
            with contextlib.suppress(UnicodeDecodeError):
                subject = self.msg_arg["subject"].decode()
                self.nc.skipped = f"a message on {subject!r} has {self.needed} bytes, {MESSAGE_MAX} at most are read"
            self._to_skip = self.needed + CRLF_SIZE - len(self.buf)
            self.reset()
        elif self.state == AWAITING_CONTROL_LINE and len(self.buf) > LINE_MAX:
            self.nc.fault = f"the server sends a line of more than {LINE_MAX} bytes"
            raise ProtocolError(self.nc.fault)


def fault_of(headers: dict[str, str]) -> str:
    """Returns why a message with these headers cannot be taken, "" if it can."""
    unread = headers.get(UNREAD)
    return f"its headers have {len(unread)} bytes, {HEADERS_MAX} at most are read" if unread else ""
