"""A listener for WebSocket, with TLS or without."""

import asyncio
import logging
import struct
from collections.abc import Callable, Iterator
from typing import cast
from urllib.parse import urlsplit

from aiohttp import WSMsgType, web

from gateway.config.schema import WebSocketConfig
from gateway.listeners.accept import describe_client, is_own_name, listen_tcp
from gateway.listeners.connection_limits import AcceptedConnection, ConnectionLimits
from gateway.listeners.http import HttpConnection, HttpServer
from gateway.listeners.newest_lists import NewestLists
from gateway.listeners.proxies import Proxies, forwarded_for
from gateway.listeners.stream import CLOSE_GRACE_S, RECEIVED_MAX
from gateway.listeners.tls import Tls, Visitors
from gateway.log_fields import about
from gateway.port import Port, Visitor, host_of
from wire.bulk.websocket_frames import CloseCode, FrameError, FrameKind, Frames

SUBPROTOCOL = "mqtt"  # [MQTT-6.0.0-4]
UPGRADE_REQUIRED = 426
FRAME_MAX = 64 * 1024  # bytes of a frame that we send
BACKLOG_DRAINED = 64 * 1024  # bytes
FRAMES_JOINED = 64  # frames read at a time, whose bytes are handled as one piece
IDLE_FRAMES_MAX = 100  # pings, pongs and empty frames in a row in one piece of data from the socket

logger = logging.getLogger(__name__)


class WebSocketListener:
    """Listens on one TCP address.

    Args:
        config: the address.
        anonymous: whether clients without an account may log in here.
        limits: counts the connections of all listeners.
        connect: called with each client's port.

    Raises:
        ConfigError: a file of TLS cannot be used.
    """

    def __init__(
        self,
        config: WebSocketConfig,
        *,
        anonymous: bool,
        limits: ConnectionLimits,
        connect: Callable[[Port], None],
        newest: NewestLists | None = None,
    ) -> None:
        self.port = config.port
        self._config = config
        self._connect = connect
        self.tls = tls = Tls(config.tls, newest) if config.tls else None
        self._visitors = Visitors(tls, anonymous, config.realtime)
        self._server = HttpServer(limits, tls, self._answer, Proxies(config.proxy_from), CLOSE_GRACE_S)
        self._forwarders = Proxies(config.forwarded_from)

    async def open(self) -> None:
        """Begins to listen; ``port`` is the port's number then. Raises ListenError."""
        sockets = listen_tcp("websocket", self._config.host, self.port)
        self.port = sockets[0].getsockname()[1]
        self._server.open(sockets)

    async def close(self) -> None:
        """Stops accepting, and lets the clients of closed ports read what was sent last."""
        await self._server.close()

    def reload(self) -> None:
        """Reads the certificates again. Raises ConfigError."""
        self._server.reload()

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        connection = cast(HttpConnection, request.protocol)
        accepted, transport = connection.accepted, connection.transport
        try:
            if not self._follow_proxy(request, accepted):
                return _close_after(web.Response(status=503))
        except ValueError:
            reason = "its X-Forwarded-For has no IP address of a client"
            logger.warning("connection refused", extra=about(peer=accepted.peer, path=request.path, reason=reason))
            return _close_after(web.Response(status=400, text=f"{reason}\n"))
        refusal = _refusal(request, self._config)
        if refusal is not None:
            status, text = refusal
            origin = {"origin": request.headers["Origin"]} if "Origin" in request.headers else {}
            logger.warning(
                "connection refused", extra=about(peer=accepted.peer, path=request.path, **origin, reason=text)
            )
            upgrade = {"Upgrade": "websocket"} if status == UPGRADE_REQUIRED else None
            return _close_after(web.Response(status=status, text=f"{text}\n", headers=upgrade))
        if transport is None:
            return _close_after(web.Response(status=400))
        visitor = self._visitors.identify(accepted, transport)
        if visitor is None:
            return _close_after(web.Response(status=403, text="the certificate names no user\n"))
        websocket = web.WebSocketResponse(protocols=(SUBPROTOCOL,), compress=False)
        port = connection.port = WebSocketPort(accepted, visitor, websocket, connection, transport)
        await websocket.prepare(request)
        try:
            self._connect(port)
            await port.carry()
        finally:
            connection.port = None  # without the reference to each other both are freed at once
        return websocket

    def _follow_proxy(self, request: web.BaseRequest, accepted: AcceptedConnection) -> bool:
        """Counts a proxy's request for the client that it names; False if there is no room. Raises ValueError."""
        if host_of(accepted.peer) not in self._forwarders:
            return True
        client = forwarded_for(request.headers.getall("X-Forwarded-For", []), self._forwarders)
        return client is None or accepted.move(*describe_client(client, None))


def _refusal(request: web.BaseRequest, config: WebSocketConfig) -> tuple[int, str] | None:
    """Returns status and text of the answer to a request that is refused; None if it may become a WebSocket."""
    if request.path not in config.paths:
        return 404, f"MQTT is at {' and '.join(config.paths)}"
    if not web.WebSocketResponse(protocols=(SUBPROTOCOL,)).can_prepare(request).ok:
        return UPGRADE_REQUIRED, "only WebSocket is spoken here"
    offered = request.headers.get("Sec-WebSocket-Protocol")
    # Clients have to offer it [MQTT-6.0.0-3]; some do not, and brokers let them in.
    if offered is not None and SUBPROTOCOL not in map(str.strip, offered.split(",")):
        return 400, f"the subprotocol has to be {SUBPROTOCOL}"
    origin = request.headers.get("Origin")
    if origin is not None and not _is_ours(origin, request, config.origins):
        return 403, "pages of this origin may not connect"
    return None


def _is_ours(origin: str, request: web.BaseRequest, origins: tuple[str, ...]) -> bool:
    """Whether a web page may connect: one from the same host, with any port, or one of the list."""
    try:
        host = urlsplit(f"//{request.host}").hostname
        same = urlsplit(origin).hostname == host
    except ValueError:
        return False
    # Over TLS any name will do: another owner's name would not match the certificate.
    return (same and (request.secure or is_own_name(host or ""))) or origin in origins or "*" in origins


def _close_after(response: web.Response) -> web.Response:
    response.force_close()
    return response


class WebSocketPort:
    """One WebSocket, from its handshake on.

    A frame may hold several packets or a part of one [MQTT-6.0.0-3]: the broker sees a stream of bytes. aiohttp makes
    the handshake and writes our frames. It passes the bytes that come to ``feed_data`` and ``feed_eof``.

    Args:
        accepted: the connection, for the limits.
        visitor: what is known of the client.
        websocket: the WebSocket, not prepared yet.
        connection: aiohttp's protocol, which stops and resumes reading.
        transport: its transport.
    """

    def __init__(
        self,
        accepted: AcceptedConnection,
        visitor: Visitor,
        websocket: web.WebSocketResponse,
        connection: web.RequestHandler,
        transport: asyncio.Transport,
    ) -> None:
        self.peer = accepted.peer
        self.visitor = visitor
        self._accepted = accepted
        self._websocket = websocket
        self._connection = connection
        self._transport = transport
        self._frames = Frames()
        self._received: list[bytes] = []  # raw bytes of the socket
        self._received_size = 0
        self._paused = False
        self._outgoing = bytearray()
        self._pong: bytes | None = None  # the payload of the last ping
        self._changed = asyncio.Event()
        self._closing = False
        self._over = False  # no more frames are read
        self._ended = False
        self._code = CloseCode.OK

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
                if payload and kind is FrameKind.BINARY:
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
        self._accepted.note_admitted()

    def close(self) -> None:
        if not self._closing:
            self._closing = True
            self._changed.set()
            asyncio.get_running_loop().call_later(CLOSE_GRACE_S, self._transport.abort)

    def feed_data(self, data: bytes) -> tuple[bool, bytes]:
        """Takes bytes of the socket. Returns as aiohttp's own reader: it takes more, and no bytes are left."""
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
                    await self._websocket.send_bytes(frame)  # waits while the client reads nothing
                    self._changed.set()
                else:
                    await self._change()
            await self._websocket.send_frame(struct.pack(">H", self._code), WSMsgType.CLOSE)
            await self._read_to_the_end()
        except ConnectionError:
            pass  # ``receive`` tells the broker
        finally:
            self._closing = self._ended = True
            self._changed.set()
            self._transport.close()

    async def _read_to_the_end(self) -> None:
        """Reads until the client has answered our Close; unread bytes would make the system reset the connection."""
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

    def _note_idle(self, kind: FrameKind, payload: bytes, idle: int) -> None:
        """Handles a frame without bytes of MQTT."""
        if idle > IDLE_FRAMES_MAX:
            raise FrameError(CloseCode.POLICY_VIOLATION, "a flood of frames without data")
        if kind is FrameKind.CLOSE:
            self._end_reading()
        elif kind is FrameKind.PING:  # only the last ping has to be answered [RFC 6455 section 5.5.3]
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
