"""A TCP connection."""

import errno
import select
import socket

from device.boards import board
from device.ports import Down, Up

CONNECT_TIMEOUT_MS = 10_000  # for all addresses of the broker's name
CONNECT_SHORTEST_MS = 2_000  # for one of them
LOOK_UP_MS = 60_000  # the longest time that a DNS look-up may block: several servers, each asked several times
RECEIVE_BYTES = 512
NOT_NOW = (errno.EAGAIN, errno.EINPROGRESS)


class Tcp:
    """A port (see `device.ports`).

    Args:
        host: the broker's name or address.
        port: its TCP port.
        poller: the `select.poll` object on which the device waits.
        watchdog: see `device.boards`.
    """

    def __init__(self, host: str, port: int, poller, watchdog) -> None:
        self.name = f"{host}:{port}"
        self._address = (host, port)
        self._poller = poller
        self._watchdog = watchdog
        self._socket: socket.socket | None = None
        self._deadline_ms: int | None = None  # of the connection attempt; None: no attempt is under way
        self._addresses: list = []  # those of the broker's name that were not tried yet
        self._patience_ms = CONNECT_TIMEOUT_MS  # with each of them
        self._unsent = b""
        self._events: list = []

    def open(self, now_ms: int) -> None:
        self._watchdog.lengthen(LOOK_UP_MS)
        try:
            self._addresses = list(socket.getaddrinfo(*self._address, 0, socket.SOCK_STREAM))
        finally:
            self._watchdog.shorten()
        self._patience_ms = max(CONNECT_SHORTEST_MS, CONNECT_TIMEOUT_MS // len(self._addresses))
        self._connect(now_ms)

    def advance(self, ready: int, now_ms: int) -> None:
        if self._deadline_ms is not None:
            if ready:
                self._finish_connecting()
            elif now_ms >= self._deadline_ms:
                self._end(f"no answer in {self._patience_ms // 1000} s")
            else:
                return
            if not isinstance(self._events[-1], Down):
                self._addresses = []
            elif self._addresses:
                self._go_on(now_ms)
        elif ready:
            if ready & select.POLLOUT:
                self._write()
            if ready & ~select.POLLOUT:
                self._read()

    def next_event(self) -> Up | Down | bytes | None:
        return self._events.pop(0) if self._events else None

    def send(self, data: bytes, now_ms: int) -> None:
        waiting = bool(self._unsent)
        try:
            self._unsent += data
        except MemoryError as error:  # part of the stream is lost
            self._end(self._why(error))
            return
        if not waiting:
            self._write()

    @property
    def has_room(self) -> bool:
        return not self._unsent

    def next_timer_ms(self) -> int | None:
        return self._deadline_ms

    def pause(self, now_ms: int) -> bool:
        """A network loses nothing meanwhile."""
        return True

    def resume(self, now_ms: int) -> None:
        """There was no pause."""

    def log(self, text: str) -> None:
        """MQTT has no such lines."""

    def close(self) -> None:
        self._shut()
        self._addresses = []
        self._unsent = b""
        self._events = []

    def _connect(self, now_ms: int) -> None:
        """Begins to connect to the next address. Raises OSError if it cannot begin with any of the addresses left."""
        while True:
            family, kind, protocol, _, address = self._addresses.pop(0)
            try:
                self._socket = socket.socket(family, kind, protocol)
                self._socket.setblocking(False)
                board.send_at_once(self._socket)
                self._socket.connect(address)
                break
            except OSError as error:
                if error.errno in NOT_NOW:
                    break
                self._shut()
                if not self._addresses:
                    raise
        self._deadline_ms = now_ms + self._patience_ms
        self._poller.register(self._socket, select.POLLIN | select.POLLOUT)

    def _go_on(self, now_ms: int) -> None:
        """Goes on to the name's next address after an attempt that has ended."""
        self._events = []
        self._shut()
        try:
            self._connect(now_ms)
        except OSError as error:
            self._end(str(error))

    def _shut(self) -> None:
        if self._socket is not None:
            try:
                self._poller.unregister(self._socket)
            except (KeyError, OSError):
                pass  # it never came that far
            self._socket.close()
        self._socket = None
        self._deadline_ms = None

    def _finish_connecting(self) -> None:
        self._deadline_ms = None
        self._events.append(Up())
        self._read()  # tells how the attempt ended
        if isinstance(self._events[-1], Down):
            self._events.pop(0)
        else:
            self._write()

    def _read(self) -> None:
        assert self._socket is not None
        try:
            data = self._receive()
        except (OSError, ValueError, MemoryError) as error:
            if getattr(error, "errno", None) not in NOT_NOW:
                self._end(self._why(error))
            return
        if data:
            self._events.append(data)
        elif data is not None:
            self._end("closed by the broker")

    def _write(self) -> None:
        assert self._socket is not None
        try:
            if self._unsent:
                self._unsent = self._unsent[self._transmit() :]
        except (OSError, ValueError, MemoryError) as error:
            if getattr(error, "errno", None) not in NOT_NOW:
                self._end(self._why(error))
                return
        self._poller.register(self._socket, select.POLLIN | (select.POLLOUT if self._unsent else 0))

    def _receive(self):
        """What has come, empty at the end; None or OSError where nothing has."""
        assert self._socket is not None
        return self._socket.recv(RECEIVE_BYTES)

    def _transmit(self) -> int:
        """Sends as much of what is unsent as goes now; returns how much."""
        assert self._socket is not None
        return self._socket.send(self._unsent)

    def _why(self, error: Exception) -> str:
        return str(error)

    def _end(self, text: str) -> None:
        self._deadline_ms = None
        self._events.append(Down(text))
