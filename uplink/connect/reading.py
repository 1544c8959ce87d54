"""What the next broker sends, read so slowly that it takes no time from the gateway's clients."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator
from typing import Protocol

from gateway.routes import Slice, Topics
from wire.bulk.connection import Acknowledgements, BulkClientConnection
from wire.bulk.reader import BulkReader, Publishes
from wire.codec.packets import Packet

IDLE_PER_S = 5000  # packets that answer nothing, and pieces of packets, that are read in a second
IDLE_BURST_S = 1.0  # the packets of this time are read at once; then reading pauses until half of it is paid for
BACKLOG_MAX = 1024 * 1024  # bytes; while the broker leaves more unread it may send less that answers nothing
IDLE_WITH_BACKLOG = 100  # the cost of a packet while the backlog is large

Step = Packet | Acknowledgements | Publishes
"""A packet that the broker sent, or many acknowledgements of success or messages at once."""


class Line(Protocol):
    """What the reading asks of the connection."""

    ended: asyncio.Future[str]

    @property
    def backlog(self) -> int:
        """Bytes that are not on the line yet."""

    def flush(self) -> None:
        """Writes what the client has to send."""

    def handle_events(self) -> bool:
        """Hands on what the client has found; returns whether that was anything."""


class Reading:
    """Feeds the client with what comes, slice by slice, and hands its packets on.

    What answers nothing that the client has sent is read no faster than ``IDLE_PER_S``. So the broker, or a machine
    that stands in for it, takes no time from the gateway's clients.

    Args:
        client: the connection's protocol state.
        line: the connection.
        handle: takes each step.

    ``unpack`` finds the bytes of MQTT in what has come; an empty piece is a part of the line that holds none.
    ``topics`` learns the topic names of messages that may come many at once, while ``may_take`` allows it.
    """

    def __init__(self, client: BulkClientConnection, line: Line, handle: Callable[[Step], None]) -> None:
        self.unpack: Callable[[bytes], Iterable[bytes]] = lambda data: (data,)
        self.topics = Topics()
        self.may_take: Callable[[Collection[str]], bool] = lambda _: False
        self._line = line
        self._handle = handle
        self._reader = BulkReader(client, self.topics, self.topics.origins)
        self._received: deque[bytes] = deque()  # besides what `_steps` still has
        self._steps = self._read()
        self._is_paused = False  # until `_go_on` is called
        self._postponed: list[Step] | None = None  # what came since `postpone`
        self._room: Callable[[], Awaitable[None]] | None = None  # is to be awaited before more is read
        self._waiting: asyncio.Task[None] | None = None  # for that
        self._idle_until_s = 0.0  # by then the idle packets that have come are paid for
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport

    def begin(self, transport: asyncio.Transport) -> None:
        """The line stands."""
        self._transport = transport

    def feed(self, data: bytes) -> None:
        """Bytes have come."""
        self._received.append(data)
        if not self._is_paused:
            self._work()

    def postpone(self, steps: Iterable[Step] = ()) -> None:
        """Keeps these steps and what comes from now on for ``take``: a broker may go on with the session right behind
        its CONNACK.
        """
        if self._postponed is None:
            self._postponed = list(steps)
            self._is_paused = True
            self._transport.pause_reading()

    def take(self, handle: Callable[[Step], None]) -> None:
        """Hands on what was kept, and all that comes, to ``handle``."""
        self._handle = handle
        postponed, self._postponed = self._postponed or [], None
        for packet in postponed:
            handle(packet)
        self._go_on()

    def read_after(self, room: Callable[[], Awaitable[None]]) -> None:
        """Reads more, after this slice, when ``room`` has returned."""
        self._room = room

    def hand_on(self, packet: Step) -> None:
        """Hands on what the client has found, or keeps it."""
        if self._postponed is None:
            self._handle(packet)
        else:
            self._postponed.append(packet)

    def stop(self) -> None:
        """The connection is over."""
        if self._waiting is not None:
            self._waiting.cancel()

    def _work(self) -> None:
        """Handles what has come, for one slice at most."""
        slice_ = Slice()
        for step in self._steps:
            if step is not None:
                self.hand_on(step)
            elif not self._line.handle_events():
                self._note_idle()
            if self._line.ended.done():
                return
            wait_s = self._idle_until_s - self._loop.time()
            if slice_.is_over or wait_s > IDLE_BURST_S:
                self._pause(wait_s - IDLE_BURST_S / 2 if wait_s > IDLE_BURST_S else 0.0)
                break
        else:
            self._steps = self._read()
            if self._room is not None:
                self._pause(0.0)
        self._line.flush()

    def _read(self) -> Iterator[Publishes | Acknowledgements | None]:
        while self._received:
            for piece in self.unpack(self._received.popleft()):
                if piece:
                    yield from self._reader.feed(piece, int(self._loop.time() * 1000), self._may_take)
                else:
                    yield None

    def _may_take(self, topics: Collection[str]) -> bool:
        return self.may_take(topics)

    def _note_idle(self) -> None:
        """A packet, or a piece of the line, answered nothing."""
        costs = IDLE_WITH_BACKLOG if self._line.backlog > BACKLOG_MAX else 1
        self._idle_until_s = max(self._idle_until_s, self._loop.time()) + costs / IDLE_PER_S

    def _pause(self, wait_s: float) -> None:
        """Lets other tasks run, for at least ``wait_s`` seconds."""
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
        if self._line.ended.done() or self._postponed is not None or self._waiting is not None:
            return
        self._is_paused = False
        self._work()
        if not self._is_paused and not self._line.ended.done():
            self._transport.resume_reading()
