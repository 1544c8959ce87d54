"""One client's line over WebSocket, as the broker sees it: MQTT's bytes in binary frames [section 6]."""

import asyncio

from aiohttp import WSCloseCode, WSMsgType, web

from gateway.listeners.entrance import Guest
from gateway.listeners.stream_port import CLOSE_GRACE_S
from gateway.port import Visitor

FRAME_MAX = 64 * 1024  # bytes of a frame that we send
BACKLOG_DRAINED = 64 * 1024  # bytes


class WebSocketPort:
    """One WebSocket, from its handshake on.

    A frame may hold several packets or a part of one [MQTT-6.0.0-3]: to the broker they are a stream of bytes. aiohttp
    puts fragments together, answers pings, and stops reading the socket while nobody takes what came.

    Args:
        guest: the connection, for the limits.
        visitor: who it is.
        websocket: the WebSocket, prepared.
        transport: what it goes over.
    """

    def __init__(
        self, guest: Guest, visitor: Visitor, websocket: web.WebSocketResponse, transport: asyncio.Transport
    ) -> None:
        self.peer = guest.peer
        self.visitor = visitor
        self._guest = guest
        self._websocket = websocket
        self._transport = transport
        self._outgoing = bytearray()
        self._changed = asyncio.Event()
        self._closing = False
        self._ended = False
        self._code = WSCloseCode.OK

    async def receive(self) -> bytes:
        while not self._closing:
            message = await self._websocket.receive()
            if message.type is WSMsgType.ERROR:
                raise ConnectionResetError(str(message.data))
            if message.type is WSMsgType.TEXT:  # [MQTT-6.0.0-1]
                self._code = WSCloseCode.UNSUPPORTED_DATA
                self.close()
            elif message.type is not WSMsgType.BINARY:
                return b""
            elif message.data:
                return bytes(message.data)
        return b""

    def send(self, data: bytes) -> None:
        if not self._closing:
            self._outgoing += data
            self._changed.set()

    @property
    def backlog(self) -> int:
        return len(self._outgoing) + self._transport.get_write_buffer_size()

    async def drain(self) -> None:
        while len(self._outgoing) > BACKLOG_DRAINED and not self._ended:
            self._changed.clear()
            await self._changed.wait()
        if self._closing:
            raise ConnectionResetError("the line has ended")

    def note_admitted(self) -> None:
        self._guest.note_admitted()

    def close(self) -> None:
        if not self._closing:
            self._closing = True
            self._changed.set()
            asyncio.get_running_loop().call_later(CLOSE_GRACE_S, self._transport.abort)

    async def carry(self) -> None:
        """Sends what ``send`` takes, until the line has ended."""
        try:
            while self._outgoing or not self._closing:
                if not self._outgoing:
                    self._changed.clear()
                    await self._changed.wait()
                    continue
                frame = bytes(self._outgoing[:FRAME_MAX])
                del self._outgoing[:FRAME_MAX]
                await self._websocket.send_bytes(frame)  # waits while the client takes nothing
                self._changed.set()
            await self._websocket.close(code=self._code)
        except ConnectionError:
            pass  # the broker learns it from its own reading
        finally:
            self._closing = self._ended = True
            self._changed.set()
