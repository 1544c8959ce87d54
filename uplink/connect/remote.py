"""The connection to the next broker: the shell with the IO around the sans-IO client."""

import asyncio
import fcntl
import ssl
import struct
import termios
from collections.abc import Callable, Iterable
from typing import Any, cast

from host.pem import reason_of
from uplink.connect.reading import Reading, Step
from wire.bulk.connection import BulkClientConnection
from wire.codec.packets import Disconnect
from wire.errors import Closed
from wire.identity import KEEP, WISH_PROPERTY
from wire.properties import RECEIVE_MAXIMUM, USER_PROPERTY
from wire.reasons import UNSPECIFIED_ERROR

MAXIMUM_PACKET_SIZE = 16 * 1024  # bytes: the broker only has acknowledgements to send, with a reason and properties


class Remote(asyncio.Protocol):
    """Feeds the client with bytes and time, and writes its bytes.

    Args:
        client: the connection's protocol state.
        handle: takes each step, at first.
        user_properties: the user properties of the CONNECT, such as what it says about message identities
        (docs/reference/wire.md).
        receive_maximum: what the CONNECT announces. A broker that sends more does not end the connection.

    ``reading`` hands on what the broker sends.
    """

    def __init__(
        self,
        client: BulkClientConnection,
        handle: Callable[[Step], None],
        user_properties: Iterable[tuple[str, str]] = ((WISH_PROPERTY, KEEP),),
        receive_maximum: int | None = None,
    ) -> None:
        self.reading = Reading(client, self, handle)
        self.closed: Closed | None = None
        """Why the client has ended the connection, if it has."""
        self.ended_by: int | None = None
        """The reason code with which the broker has ended the connection, UNSPECIFIED_ERROR where it gave none."""
        self.transferred = 0
        """Bytes that were sent and received, below TLS and above TCP."""
        self._written = 0  # bytes of these that were sent
        self.has_begun = False
        """Whether the CONNECT was sent."""
        self._client = client
        self._properties: dict[int, Any] = {USER_PROPERTY: list(user_properties)}
        if receive_maximum is not None:
            self._properties[RECEIVE_MAXIMUM] = receive_maximum
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0  # uvloop's handle of a time that has passed does not know its time
        self._writable = asyncio.Event()  # clear while the transport has more bytes than it can send soon
        self.ended: asyncio.Future[str] = self._loop.create_future()
        """Done with the reason once the connection is over."""

    @property
    def backlog(self) -> int:
        """Bytes that are not on the line yet."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    async def drain(self) -> None:
        """Waits until the backlog is small. Raises OSError once the connection is over."""
        await self._writable.wait()
        if self.ended.done():
            raise OSError(self.ended.result())

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's class does not derive from it
        self.reading.begin(self._transport)
        self._writable.set()
        self.has_begun = True
        self._client.connect(self._now_ms(), self._properties)
        self.flush()

    def data_received(self, data: bytes) -> None:
        self.transferred += len(data)
        self.reading.feed(data)

    def connection_lost(self, error: Exception | None) -> None:
        if not self.ended.done() and (error is None or isinstance(error, ConnectionError)):  # others are of the network
            self.ended_by = UNSPECIFIED_ERROR
        self._end(_in_words(error) if error else "the broker closed the connection")

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def flush(self) -> None:
        """Writes what the client has to send, and re-arms its timer; does nothing once the connection is over."""
        if self.ended.done():
            return
        self._write()
        deadline_ms = self._client.next_timer_ms()
        if deadline_ms is None or (self._timer is not None and self._timer_ms <= deadline_ms):
            return  # a timer that is early re-arms itself
        if self._timer is not None:
            self._timer.cancel()
        self._timer_ms = deadline_ms
        self._timer = self._loop.call_at(deadline_ms / 1000, self._on_timer)

    def close(self, reason: str) -> None:
        """Ends the connection for the reason given, with a DISCONNECT where it still stands."""
        if self.ended.done():
            return
        self._end(reason)
        if self._transport is not None:
            if self._client.connected:
                self._client.disconnect()
            self._write()
            self._transport.close()

    def handle_events(self) -> bool:
        """Hands on what the client has found; returns whether that was anything."""
        found = False
        while not self.ended.done() and (event := self._client.next_event()) is not None:
            found = True
            if isinstance(event, Closed):
                self.closed = event
                self.close(event.text)
            else:
                if isinstance(event, Disconnect):
                    self.ended_by = event.reason_code
                self.reading.hand_on(event)
        return found

    def _write(self) -> None:
        data = self._client.data_to_send()
        if data and self._transport is not None and not self._transport.is_closing():
            self.transferred += len(data)
            self._written += len(data)
            self._transport.write(data)

    def _on_timer(self) -> None:
        self._timer = None
        self._client.note_line(self._written, self._written - self.backlog - _in_socket(self._transport))
        self._client.handle_timer(self._now_ms())
        self.handle_events()
        self.flush()

    def _end(self, reason: str) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self.reading.stop()
        self._writable.set()
        if not self.ended.done():
            self.ended.set_result(reason)

    def _now_ms(self) -> int:
        return int(self._loop.time() * 1000)


def _in_socket(transport: asyncio.BaseTransport | None) -> int:
    """Returns how many bytes the system has that the other machine has not acknowledged; 0 where it does not say."""
    socket = None if transport is None else transport.get_extra_info("socket")
    if socket is None:
        return 0
    try:
        (size,) = struct.unpack("i", fcntl.ioctl(socket.fileno(), termios.TIOCOUTQ, bytes(4)))
    except OSError:
        return 0
    return int(size)


def _in_words(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        return f"TLS failed: {reason_of(error)}"
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
