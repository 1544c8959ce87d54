"""The connection to the next broker: the shell with the IO around the sans-IO client."""

import asyncio
import fcntl
import ssl
import struct
import termios
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Any, cast

from gateway.routes import Slice, Topics
from host.pem import reason_of
from wire.bulk.connection import Acknowledgements, BulkClientConnection
from wire.bulk.reader import BulkReader, Publishes
from wire.codec.packets import Disconnect, Packet
from wire.errors import Closed
from wire.identity import KEEP, WISH_PROPERTY
from wire.properties import RECEIVE_MAXIMUM, USER_PROPERTY
from wire.reasons import UNSPECIFIED_ERROR

MAXIMUM_PACKET_SIZE = 16 * 1024  # bytes: the broker only has acknowledgements to send, with a reason and properties
IDLE_PER_S = 5000  # packets that answer nothing, and pieces of packets, that are read in a second
IDLE_BURST_S = 1.0  # the packets of this time are read at once; then reading pauses until half of it is paid for
BACKLOG_MAX = 1024 * 1024  # bytes; while the broker leaves more unread it may send less that answers nothing
IDLE_WITH_BACKLOG = 100  # the cost of a packet while the backlog is large

Step = Packet | Acknowledgements | Publishes
"""A packet that the broker sent, or many acknowledgements of success or messages at once."""


class Remote(asyncio.Protocol):
    """Feeds the client with bytes and time, hands its packets on, and writes its bytes.

    What the broker sends is read slice by slice, and not faster than ``IDLE_PER_S`` as far as it answers nothing that
    the client has sent. So the broker, or a machine that stands in for it, takes no time from the gateway's clients.

    Args:
        client: the connection's protocol state.
        handle: takes each step; it may be changed.
        user_properties: the user properties of the CONNECT, such as what it says about message identities
        (docs/reference/wire.md).
        receive_maximum: what the CONNECT announces. A broker that sends more does not end the connection.

    ``topics`` learns the topic names of messages that may come many at once, while ``may_take`` allows it.
    """

    def __init__(
        self,
        client: BulkClientConnection,
        handle: Callable[[Step], None],
        user_properties: Iterable[tuple[str, str]] = ((WISH_PROPERTY, KEEP),),
        receive_maximum: int | None = None,
    ) -> None:
        self.handle = handle
        self.closed: Closed | None = None
        """Why the client has ended the connection, if it has."""
        self.ended_by: int | None = None
        """The reason code with which the broker has ended the connection, UNSPECIFIED_ERROR where it gave none."""
        self.transferred = 0
        """Bytes that were sent and received, below TLS and above TCP."""
        self._written = 0  # bytes of these that were sent
        self.has_begun = False
        """Whether the CONNECT was sent."""
        self.unpack: Callable[[bytes], Iterable[bytes]] = lambda data: (data,)
        """Finds the bytes of MQTT in what has come; an empty piece is a part of the line that holds none."""
        self.topics = Topics()
        self.may_take: Callable[[Iterable[str]], bool] = lambda _: False
        self._client = client
        self._properties: dict[int, Any] = {USER_PROPERTY: list(user_properties)}
        if receive_maximum is not None:
            self._properties[RECEIVE_MAXIMUM] = receive_maximum
        self._reader = BulkReader(client, self.topics, self.topics.origins)
        self._received: deque[bytes] = deque()  # besides what `_steps` still has
        self._steps = self._read()
        self._is_paused = False  # reading is paused until `_go_on` is called
        self._postponed: list[Step] | None = None  # what came since `postpone`
        self._room: Callable[[], Awaitable[None]] | None = None  # is to be awaited before more is read
        self._waiting: asyncio.Task[None] | None = None  # for that
        self._idle_until_s = 0.0  # by then the idle packets that have come are paid for
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

    def postpone(self) -> None:
        """Keeps what comes from now on for ``take``: a broker may go on with the session right behind its CONNACK."""
        if self._postponed is None:
            self._postponed = []
            self._is_paused = True
            assert self._transport is not None
            self._transport.pause_reading()

    def read_after(self, room: Callable[[], Awaitable[None]]) -> None:
        """Reads more, after this slice, when ``room`` has returned."""
        self._room = room

    def take(self, handle: Callable[[Step], None]) -> None:
        """Hands on what was kept, and all that comes, to ``handle``."""
        self.handle = handle
        postponed, self._postponed = self._postponed or [], None
        for packet in postponed:
            handle(packet)
        self._go_on()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's class does not derive from it
        self._writable.set()
        self.has_begun = True
        self._client.connect(self._now_ms(), self._properties)
        self.flush()

    def data_received(self, data: bytes) -> None:
        self.transferred += len(data)
        self._received.append(data)
        if not self._is_paused:
            self._work()

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
        self._handle_events()
        self.flush()

    def _work(self) -> None:
        """Handles what has come, for one slice at most."""
        slice_ = Slice()
        for step in self._steps:
            if step is not None:
                self._hand_on(step)
            elif not self._handle_events():
                self._note_idle()
            if self.ended.done():
                return
            wait_s = self._idle_until_s - self._loop.time()
            if slice_.is_over or wait_s > IDLE_BURST_S:
                self._pause(wait_s - IDLE_BURST_S / 2 if wait_s > IDLE_BURST_S else 0.0)
                break
        else:
            self._steps = self._read()
            if self._room is not None:
                self._pause(0.0)
        self.flush()

    def _read(self) -> Iterator[Publishes | Acknowledgements | None]:
        while self._received:
            for piece in self.unpack(self._received.popleft()):
                if piece:
                    yield from self._reader.feed(piece, self._now_ms(), self._may_take)
                else:
                    yield None

    def _may_take(self, topics: Iterable[str]) -> bool:
        return self.may_take(topics)

    def _note_idle(self) -> None:
        """A packet, or a piece of the line, answered nothing."""
        costs = IDLE_WITH_BACKLOG if self.backlog > BACKLOG_MAX else 1
        self._idle_until_s = max(self._idle_until_s, self._loop.time()) + costs / IDLE_PER_S

    def _pause(self, wait_s: float) -> None:
        """Lets other tasks run, for at least ``wait_s`` seconds."""
        assert self._transport is not None
        if not self._is_paused:
            self._transport.pause_reading()
        self._is_paused = True
        if self._room is None:
            self._loop.call_later(wait_s, self._go_on)
        else:
            room, self._room = self._room, None
            self._waiting = self._loop.create_task(self._wait(room, wait_s))

    async def _wait(self, room: Callable[[], Awaitable[None]], wait_s: float) -> None:
        await room()
        await asyncio.sleep(wait_s)
        self._waiting = None
        self._go_on()

    def _go_on(self) -> None:
        if self.ended.done() or self._postponed is not None or self._waiting is not None:
            return
        self._is_paused = False
        self._work()
        if not self._is_paused and not self.ended.done() and self._transport is not None:
            self._transport.resume_reading()

    def _handle_events(self) -> bool:
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
                self._hand_on(event)
        return found

    def _hand_on(self, packet: Step) -> None:
        if self._postponed is None:
            self.handle(packet)
        else:
            self._postponed.append(packet)

    def _end(self, reason: str) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._waiting is not None:
            self._waiting.cancel()
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
