"""The way to the broker kept open: a port, the MQTT connection over it, and a new attempt whenever one ends."""

from device.clock import GATEWAY, earliest
from device.ports import Down, Up
from wire.backoff import Backoff
from wire.client import ClientConnection
from wire.codec.acknowledge import Puback
from wire.codec.connack import Connack
from wire.connection import Closed
from wire.reasons import SUCCESS
from wire.time_offer import offered_time

RETRY_SHORTEST_MS, RETRY_LONGEST_MS = 250, 30_000
SILENCE_MS = 5_000  # an attempt that has come to nothing by then is worth a line, though it goes on
KEEP_ALIVE_S = 60
PACKET_SIZE_MAX = 4096  # of what comes in: answers, with a reason


class Session:
    """Owns the port and the connection, and lends the connection to the publisher.

    Args:
        port: see `device.ports`.
        clock: `device.clock.Clock`, which hears the time that the broker offers.
        say: called with each line for people.
    """

    def __init__(self, port, client_id: str, publisher, clock, say) -> None:
        self._port = port
        self._client_id = client_id
        self._publisher = publisher
        self._clock = clock
        self._say = say
        self._connect_ms = 0  # when the last CONNECT was made
        self._connection: ClientConnection | None = None
        self._backoff = Backoff(RETRY_SHORTEST_MS, RETRY_LONGEST_MS)
        self._retry_ms: int | None = 0  # the port is closed until then
        self._silence_ms: int | None = None
        self._complained = False

    def advance(self, ready: int, now_ms: int) -> None:
        """Does what there is to do: `ready` is what the poll said about the port."""
        if self._retry_ms is None:
            self._port.advance(ready, now_ms)
            self._handle_port(now_ms)
        elif now_ms >= self._retry_ms:
            self._open(now_ms)
        if self._connection is not None:
            self._connection.handle_timer(now_ms)
            self._handle_packets(now_ms)
        self._publisher.handle_timer(now_ms)
        self._publisher.fill(now_ms)
        if self._connection is not None:
            self._send(self._connection.data_to_send(), now_ms)
            self._handle_port(now_ms)
        if self._silence_ms is not None and now_ms >= self._silence_ms:
            self._silence_ms = None
            self._complain("nobody answers")

    def close(self, now_ms: int) -> None:
        """Leaves the broker, which keeps the session. Nothing is to be done with this object any more."""
        if self._connection is not None and self._publisher.attached:
            self._connection.disconnect()
            self._send(self._connection.data_to_send(), now_ms)
        self._publisher.detach()
        self._port.close()

    def next_timer_ms(self) -> int | None:
        """When `advance` wants to be called at the latest."""
        timers = [self._retry_ms, self._silence_ms, self._publisher.next_timer_ms()]
        if self._retry_ms is None:
            timers.append(self._port.next_timer_ms())
        if self._connection is not None:
            timers.append(self._connection.next_timer_ms())
        return earliest(timers)

    def _open(self, now_ms: int) -> None:
        self._retry_ms = None
        self._silence_ms = now_ms + SILENCE_MS
        try:
            self._port.open(now_ms)
        except OSError as error:
            self._lose(str(error), now_ms)

    def _handle_port(self, now_ms: int) -> None:
        while (event := self._port.next_event()) is not None:
            if isinstance(event, Down):
                self._lose(event.text, now_ms)
            elif isinstance(event, Up):
                self._connection = ClientConnection(
                    self._client_id, keep_alive_s=KEEP_ALIVE_S, maximum_packet_size=PACKET_SIZE_MAX
                )
                self._connect_ms = now_ms
                self._connection.connect(now_ms)
            elif self._connection is not None:
                self._connection.receive_data(event, now_ms)
                self._handle_packets(now_ms)

    def _handle_packets(self, now_ms: int) -> None:
        while self._connection is not None and (event := self._connection.next_event()) is not None:
            if isinstance(event, Closed):
                self._send(self._connection.data_to_send(), now_ms)
                self._lose(event.text, now_ms)
            elif isinstance(event, Puback):
                self._publisher.handle_puback(event, now_ms)
            elif isinstance(event, Connack) and event.reason_code == SUCCESS:
                self._hear_time(event, now_ms)
                self._begin(event.session_present)

    def _hear_time(self, connack, now_ms: int) -> None:
        unix_ms = offered_time(connack.properties)
        if unix_ms is not None:
            self._clock.offer(GATEWAY, unix_ms, self._connect_ms, now_ms)

    def _begin(self, session_present: bool) -> None:
        self._backoff.reset()
        self._silence_ms = None
        self._complained = False
        self._say(f"connected to {self._port.name}, to {'its old' if session_present else 'a new'} session")
        self._publisher.attach(self._connection, session_present)

    def _send(self, data: bytes, now_ms: int) -> None:
        if data:
            self._port.send(data, now_ms)

    def _lose(self, text: str, now_ms: int) -> None:
        was_connected = self._publisher.attached
        self._publisher.detach()
        self._port.close()
        self._connection = None
        self._silence_ms = None
        self._retry_ms = now_ms + self._backoff.next_wait_ms()
        if was_connected:
            self._say(f"disconnected: {text}")
        else:
            self._complain(text)

    def _complain(self, text: str) -> None:
        """Once for each time without a broker."""
        if not self._complained:
            self._complained = True
            self._say(f"no broker at {self._port.name}: {text}; readings are kept in flash, attempts go on")
