"""A broker that refuses one message, for good, and counts what it is sent."""

import contextlib
import socket
import threading
from collections import Counter
from typing import Self

from tools.lab.bench.broker.client import end_of
from wire.identity import IDENTITY_PROPERTY
from wire.reasons import PAYLOAD_FORMAT_INVALID

READ_MOST = 256 * 1024
CONNECT, PUBLISH, PINGREQ = 0x10, 0x30, 0xC0  # the first four bits of a packet
PINGRESP = b"\xd0\0"
MARK = IDENTITY_PROPERTY.encode()


class RefusingBroker:
    """Speaks MQTT 5 at QoS 1 on a port of the loopback address, in a thread of its own, inside a `with`.

    Args:
        refused: of the messages that come first, the number of the one that it refuses (0x99), each time that it comes.

    Attributes:
        port: where it listens.
        came: how often each message came, by its identity.
        connects: how many CONNECTs came.
    """

    def __init__(self, refused: int) -> None:
        self.came: Counter[bytes] = Counter()
        self.connects = 0
        self._number = refused
        self._refused: bytes | None = None
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._server.getsockname()[1]
        self._connection: socket.socket | None = None
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        for one in (self._server, self._connection):
            if one is not None:
                with contextlib.suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._server.close()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):  # its end
            while True:
                self._connection, _ = self._server.accept()
                with self._connection, contextlib.suppress(ConnectionError):
                    self._talk(self._connection)

    def _talk(self, connection: socket.socket) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        data = b""
        while more := connection.recv(READ_MOST):
            data += more
            at, answers = 0, []
            while at < len(data) and (end := end_of(data, at)) <= len(data):
                answers.append(self._answer(data[at:end]))
                at = end
            data = data[at:]
            connection.sendall(b"".join(answers))

    def _answer(self, packet: bytes) -> bytes:
        kind = packet[0] & 0xF0
        if kind == CONNECT:
            self.connects += 1
            return bytes((0x20, 3, self.connects > 1, 0, 0))  # the session is present when it comes again
        if kind == PINGREQ:
            return PINGRESP
        if kind != PUBLISH:
            return b""
        start = 2 if packet[1] < 0x80 else 3
        place = start + 2 + int.from_bytes(packet[start : start + 2], "big")
        at = packet.index(MARK, place) + len(MARK)
        size = int.from_bytes(packet[at : at + 2], "big")
        identity = packet[at + 2 : at + 2 + size]
        self.came[identity] += 1
        if self._refused is None and len(self.came) == self._number:
            self._refused = identity
        identifier = packet[place : place + 2]
        if identity == self._refused:
            return b"\x40\x03" + identifier + bytes((PAYLOAD_FORMAT_INVALID,))
        return b"\x40\x02" + identifier
