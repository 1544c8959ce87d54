"""Where clients knock: listening sockets, whose connections go through the entrance and TLS to a protocol."""

import asyncio
import logging
import socket
import struct
from collections.abc import Callable

from gateway.failures import network_of
from gateway.listeners.entrance import Entrance, Guest
from gateway.listeners.stream_port import CLOSE_GRACE_S
from gateway.listeners.tls import Tls
from gateway.logs import about

ACCEPT_MOST = 64  # connections between two looks at those who are here already
ACCEPT_PAUSE_S = 0.2  # where the system gives no more descriptors or memory
HANDSHAKE_S = 60.0  # the entrance's own limit comes first

logger = logging.getLogger(__name__)


class Door:
    """Accepts connections and brings each to a protocol of its own.

    Args:
        entrance: which decides whether there is room.
        tls: through which they go, if any.
        receive: makes the protocol of a guest.
    """

    def __init__(self, entrance: Entrance, tls: Tls | None, receive: Callable[[Guest], asyncio.BaseProtocol]) -> None:
        self._entrance = entrance
        self._tls = tls
        self._receive = receive
        self._sockets: list[socket.socket] = []
        self._coming: set[asyncio.Task[None]] = set()
        self._pauses: set[asyncio.TimerHandle] = set()

    def open(self, sockets: list[socket.socket]) -> None:
        """Accepts whoever comes to these listening sockets, which are its own from now on."""
        self._sockets = sockets
        for listening in sockets:
            listening.setblocking(False)
            asyncio.get_running_loop().add_reader(listening, self._accept, listening)

    async def close(self) -> None:
        """Accepts nobody any more; who is in stays, who is just coming in has to go."""
        for pause in self._pauses:
            pause.cancel()
        for listening in self._sockets:
            asyncio.get_running_loop().remove_reader(listening)
            listening.close()
        self._sockets = []
        for task in self._coming:
            task.cancel()
        if self._coming:
            await asyncio.wait(self._coming)

    def reload(self) -> None:
        """Reads the certificates again, for those who come from now on. Raises ConfigError."""
        if self._tls is not None:
            self._tls.reload()

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(ACCEPT_MOST):
            try:
                connection, address = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                logger.error("nobody can be accepted", extra=about(reason=error.strerror))
                self._pause(listening)
                return
            self._take(connection, address)

    def _take(self, connection: socket.socket, address: object) -> None:
        connection.setblocking(False)
        who, peer = describe(connection, address)
        guest = self._entrance.admit(connection, who, peer)
        if guest is None:
            connection.close()
            return
        task = asyncio.get_running_loop().create_task(self._bring_in(connection, guest))
        self._coming.add(task)
        # Also where the task is cancelled before it has begun.
        task.add_done_callback(lambda task: self._note_brought_in(task, connection, guest))

    async def _bring_in(self, connection: socket.socket, guest: Guest) -> None:
        secured = {"ssl_handshake_timeout": HANDSHAKE_S, "ssl_shutdown_timeout": CLOSE_GRACE_S} if self._tls else {}
        await asyncio.get_running_loop().connect_accepted_socket(
            lambda: self._receive(guest), connection, ssl=self._tls.context if self._tls else None, **secured
        )

    def _note_brought_in(self, task: asyncio.Task[None], connection: socket.socket, guest: Guest) -> None:
        self._coming.discard(task)
        if not task.cancelled():
            error = task.exception()
            if error is None:
                return
            reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or type(error).__name__
            logger.warning("connection failed", extra=about(peer=guest.peer, reason=str(reason)))
        guest.leave()
        connection.close()

    def _pause(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        loop.remove_reader(listening)

        def go_on() -> None:
            self._pauses.discard(pause)
            loop.add_reader(listening, self._accept, listening)

        pause = loop.call_later(ACCEPT_PAUSE_S, go_on)
        self._pauses.add(pause)


def describe(connection: socket.socket, address: object) -> tuple[str, str]:
    """Returns who a connection is from, as the limits count them, and the same for the log."""
    if connection.family == socket.AF_UNIX:
        credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        who = f"unix user {struct.unpack('3i', credentials)[1]}"
        return who, who
    assert isinstance(address, tuple)
    host, port = address[0].removeprefix("::ffff:"), address[1]
    return network_of(host), f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
