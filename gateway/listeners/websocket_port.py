"""One client's line over WebSocket, as the broker sees it: MQTT's bytes in binary frames [section 6]."""

import asyncio
import logging
import struct
from collections.abc import Iterator

from aiohttp import WSCloseCode, WSMsgType, web

from gateway.listeners.entrance import Guest
from gateway.listeners.stream_port import CLOSE_GRACE_S, RECEIVED_MAX
from gateway.listeners.websocket_frames import FrameError, Frames
from gateway.logs import about
from gateway.port import Visitor

FRAME_MAX = 64 * 1024  # bytes of a frame that we send
BACKLOG_DRAINED = 64 * 1024  # bytes
FRAMES_JOINED = 64  # frames read at a time, whose bytes are handled as one piece
IDLE_FRAMES_MAX = 100  # pings, pongs and empty frames in a row that one reading of the socket may bring

logger = logging.getLogger(__name__)


class WebSocketPort:
    """One WebSocket, from its handshake on.

    A frame may hold several packets or a part of one [MQTT-6.0.0-3]: to the broker they are a stream of bytes. aiohttp
    makes the handshake and writes our frames. It hands on what comes, by ``feed_data`` and ``feed_eof``.

    Args:
        guest: the connection, for the limits.
        visitor: who it is.
        websocket: the WebSocket, not prepared yet.
        connection: aiohttp's protocol, which stops and resumes reading.
        transport: what it goes over.
    """

    def __init__(
        self,
        guest: Guest,
        visitor: Visitor,
        websocket: web.WebSocketResponse,
        connection: web.RequestHandler,
        transport: asyncio.Transport,
    ) -> None:
        self.peer = guest.peer
        self.visitor = visitor
        self._guest = guest
        self._websocket = websocket
        self._connection = connection
        self._transport = transport
        self._frames = Frames()
        self._received: list[bytes] = []  # as it came from the socket
        self._received_size = 0
        self._paused = False
        self._outgoing = bytearray()
        self._pong: bytes | None = None  # what the last ping asks for
        self._changed = asyncio.Event()
        self._closing = False
        self._over = False  # no more frames are read
        self._ended = False
        self._code = WSCloseCode.OK

    async def receive(self) -> bytes:
        while not self._received and not self._closing and not self._over:
            await self._change()
        return b"" if self._closing else self._take_received()

    def unpack(self, data: bytes) -> Iterator[bytes]:
        joined: list[bytes] = []
        frames = idle = 0
        error: FrameError | None = None
        try:
            for kind, payload in self._frames.read(data):
                frames += 1
                if payload and kind is WSMsgType.BINARY:
                    joined.append(payload)
                    idle = 0
                else:
                    idle += 1
                    self._note_idle(kind, payload, idle)
                if self._over:
                    break
                if frames % FRAMES_JOINED == 0:
                    yield b"".join(joined)
                    joined.clear()
        except FrameError as broken:
            error = broken
        if joined:
            yield b"".join(joined)
        if error is not None:
            self._fail(error)

    def send(self, data: bytes) -> None:
        if not self._closing:
            self._outgoing += data
            self._changed.set()

    @property
    def backlog(self) -> int:
        return len(self._outgoing) + self._transport.get_write_buffer_size()

    async def drain(self) -> None:
        while len(self._outgoing) > BACKLOG_DRAINED and not self._ended:
            await self._change()
        if self._closing:
            raise ConnectionResetError("the line has ended")

    def note_admitted(self) -> None:
        self._guest.note_admitted()

    def close(self) -> None:
        if not self._closing:
            self._closing = True
            self._changed.set()
            asyncio.get_running_loop().call_later(CLOSE_GRACE_S, self._transport.abort)

    def feed_data(self, data: bytes) -> tuple[bool, bytes]:
        """Takes bytes from the socket; returns what aiohttp's own reader does: it goes on, and nothing is left."""
        if not self._over:
            self._received.append(data)
            self._received_size += len(data)
            if self._received_size >= RECEIVED_MAX and not self._paused:
                self._paused = True
                self._connection.pause_reading()
            self._changed.set()
        return False, b""

    def feed_eof(self) -> None:
        """The line has ended."""
        self._over = True
        self._changed.set()

    async def carry(self) -> None:
        """Sends what ``send`` takes, until the line has ended."""
        try:
            while self._outgoing or not self._closing:
                if self._pong is not None:
                    pong, self._pong = self._pong, None
                    await self._websocket.pong(pong)
                elif self._outgoing:
                    frame = bytes(self._outgoing[:FRAME_MAX])
                    del self._outgoing[:FRAME_MAX]
                    await self._websocket.send_bytes(frame)  # waits while the client takes nothing
                    self._changed.set()
                else:
                    await self._change()
            await self._websocket.send_frame(struct.pack(">H", self._code), WSMsgType.CLOSE)
            await self._read_to_the_end()
        except ConnectionError:
            pass  # the broker learns it from its own reading
        finally:
            self._closing = self._ended = True
            self._changed.set()
            self._transport.close()

    async def _read_to_the_end(self) -> None:
        """Reads on until the client has answered our Close; unread bytes would have the system reset the line."""
        while not self._over:
            for _ in self.unpack(self._take_received()):
                await asyncio.sleep(0)
            if not self._received and not self._over:
                await self._change()

    def _take_received(self) -> bytes:
        data = b"".join(self._received)
        self._received.clear()
        self._received_size = 0
        if self._paused:
            self._paused = False
            self._connection.resume_reading()
        return data

    def _note_idle(self, kind: WSMsgType, payload: bytes, idle: int) -> None:
        """A frame brings no bytes of MQTT."""
        if idle > IDLE_FRAMES_MAX:
            raise FrameError(WSCloseCode.POLICY_VIOLATION, "a flood of frames without data")
        if kind is WSMsgType.CLOSE:
            self._end_reading()
        elif kind is WSMsgType.PING:  # only the last one has to be answered [RFC 6455 section 5.5.3]
            self._pong = payload
            self._changed.set()

    def _fail(self, error: FrameError) -> None:
        logger.warning("connection dropped", extra=about(peer=self.peer, reason=str(error)))
        self._code = error.code
        self._end_reading()
        self.close()

    def _end_reading(self) -> None:
        self._over = True
        self._received.clear()

    async def _change(self) -> None:
        self._changed.clear()
        await self._changed.wait()
