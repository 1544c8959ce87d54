"""The lander's connection to the broker: the shell with the IO around the sans-IO client."""

import select
import socket
import ssl
import time
from collections.abc import Iterator

from cloud.landing.connect.reader import PublishReader
from cloud.landing.held import RECEIVE_MAXIMUM
from cloud.landing.publishes import Published
from host.credentials import Credentials
from host.pem import reason_of
from host.server import Server
from wire.bulk.connection import BulkClientConnection
from wire.codec import Packet
from wire.codec.connect import FOR_EVER_S, Connect
from wire.codec.subscribe import RETAIN_AS_PUBLISHED
from wire.errors import Closed
from wire.identity import RECEIVE, USER_PROPERTY, WISH_PROPERTY
from wire.packet_types import PUBACK
from wire.properties import RECEIVE_MAXIMUM as RECEIVE_MAXIMUM_PROPERTY
from wire.properties import SESSION_EXPIRY_INTERVAL

KEEP_ALIVE_S = 60
CONNECT_DEADLINE_S = 10.0
READ_BYTES = 256 << 10
NOT_NOW = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)
QOS_1 = 1
"""At QoS 2 the broker would give custody away at its PUBREL, before a row is on the disk."""


class Subscriber:
    """One connection of a session that stays. It is made with the CONNECT on its way.

    Raises OSError when the server cannot be reached, and ConfigError.
    """

    def __init__(self, server: Server, credentials: Credentials, client_id: str, subscription: str) -> None:
        self._subscription = subscription
        self._unsent = b""
        self._client = BulkClientConnection(
            Connect(
                client_id,
                keep_alive_s=KEEP_ALIVE_S,
                username=credentials.user,
                password=credentials.password(),
                properties={
                    SESSION_EXPIRY_INTERVAL: FOR_EVER_S,
                    RECEIVE_MAXIMUM_PROPERTY: RECEIVE_MAXIMUM,
                    USER_PROPERTY: [(WISH_PROPERTY, RECEIVE)],
                },
            )
        )
        self._reader = PublishReader(self._client, client_id)
        self._socket = _open(server, credentials.context(server))
        self._client.connect(_now_ms())

    def exchange(self, is_reading: bool, wait_s: float) -> Iterator[Packet | Published | Closed]:
        """Writes what waits, and yields the packets that come within this time; Closed is the last one.

        Raises OSError when the connection is lost. Where the caller does not read, the broker's silence is the
        caller's own doing, and does not end the connection. If the broker has ended it, the rest is read in any case:
        no more can come than the socket has.
        """
        if not is_reading:
            self._client.note_received(_now_ms())
        self._client.handle_timer(_now_ms())
        yield from self._events()
        self.flush()
        if self._is_readable(is_reading, wait_s):
            for published in self._reader.feed(self._receive(), _now_ms()):
                if published is None:
                    yield from self._events()
                else:
                    yield published
        self.flush()

    def subscribe(self) -> int:
        """Subscribes, as often as wanted; returns the packet identifier of the SUBACK.

        The broker answers behind all that was sent before.
        """
        return self._client.subscribe([(self._subscription, QOS_1 | RETAIN_AS_PUBLISHED)])

    def acknowledge(self, identifiers: list[int]) -> None:
        """Acknowledges messages of this connection."""
        if identifiers:
            self._client.answer_all(PUBACK, identifiers)

    def flush(self) -> None:
        """Writes as much as the socket takes. Raises OSError."""
        self._unsent += self._client.data_to_send()
        while self._unsent:
            try:
                self._unsent = self._unsent[self._socket.send(self._unsent) :]
            except NOT_NOW:
                return

    def close(self) -> None:
        """Ends the connection, with a DISCONNECT where it still stands."""
        try:
            if self._client.connected:
                self._client.disconnect()
            self.flush()
        except OSError:
            self._client.note_received(_now_ms())
        finally:
            self._socket.close()

    def _is_readable(self, is_reading: bool, wait_s: float) -> bool:
        """Waits until the socket has something to do. Returns whether to read: what came, or how it ended."""
        has_read_ahead = is_reading and self._has_read_ahead()
        poll = select.poll()
        poll.register(
            self._socket, (select.POLLIN if is_reading else select.POLLRDHUP) | (select.POLLOUT if self._unsent else 0)
        )
        events = poll.poll(0 if has_read_ahead else wait_s * 1000)
        return has_read_ahead or any(event & ~select.POLLOUT for _, event in events)

    def _has_read_ahead(self) -> bool:
        """Whether TLS has bytes that the socket no longer shows."""
        return isinstance(self._socket, ssl.SSLSocket) and self._socket.pending() > 0

    def _receive(self) -> bytes:
        try:
            data = self._socket.recv(READ_BYTES)
        except NOT_NOW:  # a part of a TLS record
            return b""
        if not data:
            raise ConnectionResetError("the broker closed the connection")
        return data

    def _events(self) -> Iterator[Packet | Closed]:
        while (event := self._client.next_event()) is not None:
            yield event


def _open(server: Server, context: ssl.SSLContext | None) -> socket.socket:
    opened = socket.create_connection((server.host, server.port), CONNECT_DEADLINE_S)
    try:
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if context is not None:
            opened = context.wrap_socket(opened, server_hostname=server.host)
        opened.setblocking(False)
    except ssl.SSLCertVerificationError as error:
        opened.close()
        raise ConnectionError(f"its certificate is refused: {error.verify_message}") from error
    except ssl.SSLError as error:
        opened.close()
        raise ConnectionError(f"TLS failed: {reason_of(error)}") from error
    except OSError:  # it is over already
        opened.close()
        raise
    return opened


def _now_ms() -> int:
    return int(time.monotonic() * 1000)
