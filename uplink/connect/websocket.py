"""A WebSocket from a route to its broker [section 6 and RFC 6455]."""

import asyncio
import base64
import hashlib
import http.client
import io
import secrets
from collections.abc import Iterator
from struct import unpack_from
from typing import Any, cast

from host.server import Server
from uplink.connect.remote import Remote
from wire.bulk.websocket_frames import CloseCode, FrameError, FrameKind, Frames, encode_frame

ANSWER_SIZE_MAX = 16 * 1024  # bytes of the server's HTTP response
FRAME_MAX = 64 * 1024  # bytes of MQTT in a frame that we send
FRAMES_JOINED = 64  # frames whose bytes are handled as one piece
KEY_SUFFIX = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"  # [RFC 6455 section 1.3]
SUBPROTOCOL = "mqtt"  # [MQTT-6.0.0-4]
SWITCHING_PROTOCOLS = "101"


class WebSocket(asyncio.Transport, asyncio.Protocol):
    """The protocol of a socket, and the transport of the Remote above it.

    The Remote is connected when the server has accepted the WebSocket. It then gets what comes as it came, with the
    frames, and asks `unpack` for what is in them, so that it paces the frames too.

    Args:
        remote: what speaks MQTT above.
        server: where it connects.
    """

    def __init__(self, remote: Remote, server: Server) -> None:
        super().__init__()
        self._remote = remote
        self._server = server
        self._key = base64.b64encode(secrets.token_bytes(16))
        self._socket: asyncio.Transport
        self._answer = b""
        self._is_open = False
        self._frames = Frames(from_client=False)
        remote.reading.unpack = self.unpack

    # The protocol of the socket.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._socket = cast(asyncio.Transport, transport)  # uvloop's class does not derive from it
        lines = (
            f"GET {self._server.path} HTTP/1.1",
            f"Host: {self._server.authority}",
            "Upgrade: websocket",
            "Connection: Upgrade",
            f"Sec-WebSocket-Key: {self._key.decode()}",
            "Sec-WebSocket-Version: 13",
            f"Sec-WebSocket-Protocol: {SUBPROTOCOL}",
        )
        self._socket.write("\r\n".join((*lines, "", "")).encode())

    def data_received(self, data: bytes) -> None:
        if self._is_open:
            self._remote.data_received(data)
        elif not self._socket.is_closing():
            self._answer += data
            self._handle_answer()

    def connection_lost(self, error: Exception | None) -> None:
        self._remote.connection_lost(error)

    def pause_writing(self) -> None:
        self._remote.pause_writing()

    def resume_writing(self) -> None:
        self._remote.resume_writing()

    # The transport of the Remote.

    def write(self, data: bytes | bytearray | memoryview) -> None:
        for start in range(0, len(data), FRAME_MAX):
            self._send(FrameKind.BINARY, bytes(data[start : start + FRAME_MAX]))

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._socket.get_extra_info(name, default)

    def get_write_buffer_size(self) -> int:
        return self._socket.get_write_buffer_size()

    def is_closing(self) -> bool:
        return self._socket.is_closing()

    def pause_reading(self) -> None:
        self._socket.pause_reading()

    def resume_reading(self) -> None:
        self._socket.resume_reading()

    def close(self) -> None:
        self._close(CloseCode.OK)

    def unpack(self, data: bytes) -> Iterator[bytes]:
        """Yields the bytes of MQTT in frames, and an empty piece for each frame that holds none."""
        joined: list[bytes] = []
        try:
            for kind, payload in self._frames.read(data):
                if kind is FrameKind.BINARY and payload:
                    joined.append(payload)
                    if len(joined) < FRAMES_JOINED:
                        continue
                elif kind is FrameKind.PING:
                    self._send(FrameKind.PONG, payload)
                yield b"".join(joined)
                joined.clear()
                if kind is FrameKind.CLOSE:
                    self._remote.close(f"the broker closed the WebSocket{_reason(payload)}")
                    return
        except FrameError as error:
            self._close(error.code)
            self._remote.close(f"the broker sends {error}")
        if joined:
            yield b"".join(joined)

    def _send(self, kind: FrameKind, payload: bytes) -> None:
        self._socket.write(encode_frame(kind, payload, secrets.token_bytes(4)))

    def _close(self, code: CloseCode) -> None:
        if not self._socket.is_closing():
            self._send(FrameKind.CLOSE, code.to_bytes(2, "big"))
            self._socket.close()

    def _handle_answer(self) -> None:
        head, end, frames = self._answer.partition(b"\r\n\r\n")
        if not end and len(head) <= ANSWER_SIZE_MAX:
            return
        refusal = self._refusal(head + end)
        if refusal:
            self._remote.connection_lost(ConnectionError(f"the WebSocket cannot be opened: {refusal}"))
            self._socket.close()
            return
        self._is_open, self._answer = True, b""
        self._remote.connection_made(self)
        if frames:
            self._remote.data_received(frames)

    def _refusal(self, head: bytes) -> str:
        """Returns why the server's answer opens no WebSocket; empty if it does [RFC 6455 section 4.1]."""
        lines = io.BytesIO(head)
        version, _, status = lines.readline(ANSWER_SIZE_MAX).decode("latin-1").strip().partition(" ")
        if not version.startswith("HTTP/1.") or not head.endswith(b"\r\n\r\n"):
            return "the answer is not HTTP"
        if status.partition(" ")[0] != SWITCHING_PROTOCOLS:
            return f"the server answers {status!r}"
        try:
            headers = http.client.parse_headers(lines)
        except http.client.HTTPException as error:
            return f"the answer is not HTTP: {error}"
        accept = base64.b64encode(hashlib.sha1(self._key + KEY_SUFFIX, usedforsecurity=False).digest()).decode()
        if headers.get("Upgrade", "").lower() != "websocket" or headers.get("Sec-WebSocket-Accept") != accept:
            return "the answer is for another request"
        if headers.get("Sec-WebSocket-Protocol") != SUBPROTOCOL:
            return f"the server does not speak the subprotocol {SUBPROTOCOL}"
        return "" if "Sec-WebSocket-Extensions" not in headers else "the server uses an extension that was not offered"


def _reason(payload: bytes) -> str:
    """Returns the code and the text of a Close frame, for the log."""
    if len(payload) < 2:
        return ""
    text = payload[2:].decode("utf-8", "replace")
    return f", code {unpack_from('>H', payload)[0]}" + (f": {text!r}" if text else "")
