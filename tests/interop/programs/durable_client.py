"""A client on the real VM: wire's ClientConnection over a socket, its messages in a flash store.

What a device has to do around a connection to keep QoS 1 and 2 over cuts of power and line, and nothing else. It waits
for the network where it must: a test has nothing else to do meanwhile.
"""
# mypy: ignore-errors
# Its sockets and clock are MicroPython's.

import select
import socket
import time

from flash_store.devices.file import FileFlash
from flash_store.errors import StoreCorrupt
from flash_store.log import Log, packet_identifier
from wire.client import ClientConnection
from wire.codec.acknowledge import Puback, Pubcomp, Pubrec, Pubrel
from wire.codec.connack import Connack
from wire.codec.publish import Publish
from wire.codec.suback import Suback
from wire.connection import Closed
from wire.reasons import SUCCESS

TURN_MS = 100
RETRY_MS = 50
WINDOW = 8


def open_log(path: str) -> Log:
    """The store in this file, made where there is none."""
    flash = FileFlash(path)
    try:
        return Log(flash)
    except StoreCorrupt:
        Log.format(flash, 1)
        return Log(flash)


class DurableClient:
    """`received` are the messages that came, each once, `releases` says of each PUBREL how many had come before it, and
    `sessions` of each connection if its session went on.

    Args:
        options: of the ClientConnection.
        tls: makes a TLS stream of a socket, None for none.
    """

    def __init__(self, port: int, client_id: str, log, options: dict, tls=None) -> None:
        self.received: list = []
        self.releases: list = []  # (packet identifier, number of messages received)
        self.sessions: list = []
        self.subscribed = False
        self.connection: ClientConnection | None = None
        self._port = port
        self._client_id = client_id
        self._log = log
        self._options = options
        self._tls = tls
        self._stream = None
        self._maybe_sent = log.last_id
        self._sent = 0
        self._on_the_way: dict = {}

    def run_until(self, done) -> None:
        """Connects, as often as it takes, and goes on until `done()` says so."""
        while not done():
            if self.connection is None:
                try:
                    self._open()
                except OSError:
                    time.sleep(RETRY_MS / 1000)
                    continue
            try:
                self._turn()
            except OSError:
                self._lose()

    def everything_is_delivered(self) -> bool:
        return len(self._log) == 0

    def connected(self) -> bool:
        return self.connection is not None and self.connection.connected

    def subscribe(self, topic_filter: str, qos: int) -> None:
        """Returns when the server has granted it."""
        self.run_until(self.connected)
        assert self.connection is not None
        self.subscribed = False
        self.connection.subscribe([(topic_filter, qos)])
        self.run_until(lambda: self.subscribed)

    def leave(self) -> None:
        """DISCONNECT, where the line is still there to say it on; the session stays."""
        if self.connection is None:
            return
        self.connection.disconnect()
        try:  # noqa: SIM105 - no contextlib on a board
            self._flush()
        except OSError:
            pass  # the broker left first
        self._lose()

    def _open(self) -> None:
        self._socket = socket.socket()
        self._socket.connect(socket.getaddrinfo("127.0.0.1", self._port)[0][-1])
        self._stream = self._socket if self._tls is None else self._tls(self._socket)
        self._poller = select.poll()
        self._poller.register(self._stream, select.POLLIN)
        self._stream.setblocking(False)
        self.connection = ClientConnection(self._client_id, **self._options)
        self.connection.connect(time.ticks_ms())
        self._sent = 0
        self._on_the_way = {}

    def _lose(self) -> None:
        self.connection = None
        self._stream.close()

    def _turn(self) -> None:
        now_ms = time.ticks_ms()
        self.connection.handle_timer(now_ms)
        self._fill()
        self._flush()
        if self._poller.poll(TURN_MS):
            data = self._stream.read(4096)
            if data == b"":
                raise OSError("closed by the server")
            if data:
                self.connection.receive_data(data, now_ms)
        while self.connection is not None and (event := self.connection.next_event()) is not None:
            self._handle(event)
        if self.connection is not None:
            self._flush()

    def _flush(self) -> None:
        """Writes all, waiting where the line is slow; on the way it takes nothing in."""
        data = self.connection.data_to_send()
        at = 0
        while at < len(data):
            at += self._stream.write(data[at:]) or 0

    def _fill(self) -> None:
        while self.connection.send_quota > 0 and len(self._on_the_way) < WINDOW:
            message = next(self._log.messages(self._sent), None)
            if message is None:
                return
            message_id, qos, retain, topic, payload = message
            self._sent = message_id
            identifier = packet_identifier(message_id)
            if identifier in self._on_the_way:
                continue  # its PUBREL went out when the session went on
            dup = bool(qos) and self.sessions[-1] and message_id <= self._maybe_sent
            self._maybe_sent = max(self._maybe_sent, message_id)
            self.connection.publish(
                topic, payload, qos=qos, retain=retain, dup=dup, packet_identifier=identifier if qos else None
            )
            if qos:
                self._on_the_way[identifier] = message_id
            else:
                self._log.acknowledge(message_id)

    def _handle(self, event) -> None:
        if isinstance(event, Closed):
            self._flush()
            self._lose()
        elif isinstance(event, Connack) and event.reason_code == SUCCESS:
            self._begin(event.session_present)
        elif isinstance(event, Publish):
            self._take(event)
        elif isinstance(event, Pubrel):
            self.releases.append((event.packet_identifier, len(self.received)))
            self._log.release(event.packet_identifier)
            self.connection.pubcomp(event.packet_identifier)
        elif isinstance(event, Pubrec):
            self._log.note_pubrec(self._on_the_way[event.packet_identifier])
            self.connection.pubrel(event.packet_identifier)
        elif isinstance(event, (Puback, Pubcomp)):
            self._log.acknowledge(self._on_the_way.pop(event.packet_identifier))
        elif isinstance(event, Suback):
            self.subscribed = True

    def _begin(self, session_present: bool) -> None:
        self.sessions.append(session_present)
        if session_present:
            self.connection.resume(self._log.remembered())
        for message in self._log.messages():
            if self._log.has_pubrec(message[0]):
                if session_present:
                    identifier = packet_identifier(message[0])
                    self._on_the_way[identifier] = message[0]
                    self.connection.pubrel(identifier)
                else:
                    self._log.acknowledge(message[0])  # the server had it, and would get it twice

    def _take(self, event) -> None:
        self.received.append(event)
        if event.qos == 2:
            self._log.remember(event.packet_identifier)
            self.connection.pubrec(event.packet_identifier)
        elif event.qos == 1:
            self.connection.puback(event.packet_identifier)
