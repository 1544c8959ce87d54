"""The way to the broker kept open: a port, the MQTT connection over it, and a new attempt whenever one ends."""

from device.clock import GATEWAY, earliest
from device.ports import Down, Up
from flash_store.errors import StoreFull
from wire.backoff import Backoff
from wire.client import ClientConnection
from wire.codec.packet import MQTT_5
from wire.errors import Closed
from wire.packet_types import CONNACK, DISCONNECT, PUBACK, PUBCOMP, PUBLISH, PUBREC, PUBREL, SUBACK, UNSUBACK
from wire.reasons import SUCCESS
from wire.time_offer import offered_time

RETRY_SHORTEST_MS, RETRY_LONGEST_MS = 250, 30_000
UNANSWERED_MAX = 4  # doublings
STEADY_MS = 10_000  # a connection that broke earlier is tried again less and less often, as one that did not come about
SILENCE_MS = 5_000  # an attempt that has come to nothing by then is worth a line, though it goes on
KEEP_ALIVE_S = 60
RECEIVE_MAXIMUM = 20  # messages to the device at once, in RAM; mosquitto 2.0.11 sends so many whatever we say
PACKET_SIZE_MAX = 4096  # of what comes in: answers, with a reason


class Session:
    """Owns the connection, and lends it to the publisher.

    Args:
        brokers: `device.brokers.Brokers`.
        config: `device.config.Config`.
        clock: `device.clock.Clock`, which hears the time that the broker offers.
        say: called with each line for people.
        inbox: `device.inbox.Inbox` of a device that takes messages, else None.
        status: `device.status.Status` of a device that tells its broker whether it is there, else None.
        network: has `is_up`; a board that has to join none gives None.
        mark: `device.session_mark.SessionMark` of a device that subscribes over MQTT 5, else None.
    """

    def __init__(
        self, brokers, config, publisher, clock, say, inbox=None, status=None, network=None, mark=None
    ) -> None:
        self._brokers = brokers
        self._port = brokers.port
        self._scram = brokers.make_scram(say)  # None: it logs in by a password, or not at all
        self._config = config
        self._publisher = publisher
        self._clock = clock
        self._say = say
        self._inbox = inbox
        self._status = status
        self._network = network
        self._mark = mark
        self._is_known = mark is None or not mark.is_granted  # the broker's session; at a start only a mark could tell
        self._is_in_doubt = False
        self.connects = 0  # connections that a broker has accepted since the start
        self._connect_ms = 0  # when the last CONNECT was made
        self._unanswered = 0  # connections in a row that ended because the broker acknowledged nothing over them
        self._connection: ClientConnection | None = None
        self._backoff = Backoff(RETRY_SHORTEST_MS, RETRY_LONGEST_MS)
        self._retry_ms: int | None = 0  # the port is closed until then
        self._silence_ms: int | None = None
        self._complained = False

    def advance(self, ready: int, now_ms: int) -> None:
        """Does what there is to do: `ready` is what the poll said about the port."""
        has_network = self._network is None or self._network.is_up
        if self._retry_ms is None and not has_network:
            self._lose("the network is gone", now_ms)
        elif self._retry_ms is None:
            self._port.advance(ready, now_ms)
            self._handle_port(now_ms)
        elif self._scram is not None and self._scram.is_deriving:
            self._scram.derive()
        elif has_network and now_ms >= self._retry_ms:
            self._open(now_ms)
        if self._connection is not None:
            self._connection.handle_timer(now_ms)
            self._handle_packets(now_ms)
        if self._inbox is not None:
            self._inbox.advance(now_ms)
        self._publisher.handle_timer(now_ms)
        self._fill(now_ms)
        if self._connection is not None:
            self._handle_port(now_ms)
        if self._brokers.is_due_home(now_ms) and not self.is_waiting:
            self._leave("the first broker is tried again", now_ms)
        if self._silence_ms is not None and now_ms >= self._silence_ms:
            self._silence_ms = None
            self._complain("nobody answers")
            if self._mark is not None and self._mark.is_asking:
                self._lose("no UNSUBACK", now_ms)

    def close(self, now_ms: int) -> None:
        """Leaves the broker, which keeps the session. Nothing is to be done with this object any more."""
        if self._connection is not None and self._publisher.attached:
            if self._status is not None:
                self._status.say_offline(self._connection)
            self._connection.disconnect()
            self._send(self._connection.data_to_send(), now_ms)
        self._publisher.detach()
        self._port.close()

    @property
    def attached(self) -> bool:
        """Whether a broker has accepted the connection."""
        return self._publisher.attached

    @property
    def is_settled(self) -> bool:
        """Whether everything that the device was told to do is answered."""
        return self._inbox is None or self._inbox.is_settled

    @property
    def is_waiting(self) -> bool:
        """Whether one end has something to answer to the other."""
        return not self.is_settled or self._publisher.is_waiting

    def pause(self, now_ms: int) -> bool:
        """Asks for silence on a line that loses bytes while flash is erased; True once that may begin."""
        return self._retry_ms is not None or self._port.pause(now_ms)

    def resume(self, now_ms: int) -> None:
        if self._retry_ms is None:
            self._port.resume(now_ms)

    def log(self, text: str) -> None:
        """A line for people at the far end of a serial link; it may be lost."""
        if self._retry_ms is None:
            self._port.log(text)

    def next_timer_ms(self) -> int | None:
        """When `advance` wants to be called at the latest."""
        timers = [self._silence_ms, self._publisher.next_timer_ms()]
        if not self.is_waiting:  # else what answers is what comes next
            timers.append(self._brokers.next_timer_ms())
        if self._scram is not None and self._scram.is_deriving:
            timers.append(0)
        if self._network is None or self._network.is_up:  # else the network's own look at it is what comes next
            timers.append(self._retry_ms)
        if self._inbox is not None:
            timers.append(self._inbox.next_timer_ms())
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

    def _fill(self, now_ms: int) -> None:
        while self._connection is not None:
            is_filling = self._port.has_room and (self._publisher.fill(now_ms) or self._publisher.send_unstored())
            self._send(self._connection.data_to_send(), now_ms)
            if not is_filling:
                return

    def _handle_port(self, now_ms: int) -> None:
        while (event := self._port.next_event()) is not None:
            if isinstance(event, Down):
                self._publisher.handle_close(None, event.text, now_ms)
                self._lose(event.text, now_ms)
            elif isinstance(event, Up):
                self._connect(now_ms)
            elif self._connection is not None:
                self._connection.receive_data(event, now_ms)
                self._handle_packets(now_ms)

    def _connect(self, now_ms: int) -> None:
        config = self._config
        login = (None, None) if self._scram is not None else self._brokers.login
        self._connection = ClientConnection(
            config.client_id,
            protocol_level=config.protocol_level,
            keep_alive_s=KEEP_ALIVE_S,
            receive_maximum=RECEIVE_MAXIMUM,
            maximum_packet_size=PACKET_SIZE_MAX,
            clean_start=self._brokers.is_other,
            username=login[0],
            password=login[1],
            authentication=self._authentication(),
            will=None if self._status is None else self._status.will(),
            retry_interval_ms=self._retry_interval_ms(),
            first_identifier=self._publisher.first_request,
        )
        self._connect_ms = now_ms
        if not self._brokers.is_other:  # a CONNECT to another broker does not touch this one's session
            self._is_in_doubt = not self._is_known
            self._is_known = False
        self._connection.connect(now_ms)

    def _retry_interval_ms(self) -> int | None:
        """Over MQTT 5 each connection that was given up for want of answers makes the next wait longer."""
        interval_ms = self._config.retry_interval_ms
        return interval_ms and interval_ms << min(self._unanswered, UNANSWERED_MAX)

    def _handle_packets(self, now_ms: int) -> None:
        try:
            while self._connection is not None and (event := self._connection.next_event()) is not None:
                if isinstance(event, Closed):
                    interval_ms = self._retry_interval_ms()
                    self._unanswered += bool(interval_ms and now_ms - self._connect_ms >= interval_ms)
                    self._send(self._connection.data_to_send(), now_ms)
                    self._lose(event.text, now_ms)
                else:
                    self._handle(event, now_ms)
        except StoreFull as error:  # nothing goes out that would have to be noted first; the session goes on later
            self._lose(f"the store has no room for a note: {error}", now_ms)

    def _handle(self, event, now_ms: int) -> None:
        kind = getattr(event, "TYPE", None)
        if kind in (PUBACK, PUBREC, PUBCOMP):
            self._unanswered = 0
        if kind == PUBACK:
            self._publisher.handle_puback(event, now_ms)
        elif kind == PUBREC:
            self._publisher.handle_pubrec(event, now_ms)
        elif kind == PUBCOMP:
            self._publisher.handle_pubcomp(event, now_ms)
        elif kind in (PUBLISH, PUBREL):
            if self._inbox is not None and self.attached:  # else it comes again once the session is known
                self._inbox.handle_packet(event)
        elif kind in (SUBACK, UNSUBACK):
            self._handle_answer(event, now_ms)
        elif kind == DISCONNECT:
            from wire.reasons import describe

            self._publisher.handle_close(event.reason_code, describe(event.reason_code), now_ms)
        elif kind == CONNACK and event.reason_code == SUCCESS and self._scram is not None and not self._scram.is_proven:
            self._lose("the broker does not prove that it knows the password", now_ms)
        elif kind == CONNACK and event.reason_code == SUCCESS:
            self._hear_time(event, now_ms)
            self._look_at_session(event.session_present, now_ms)
        elif kind is None:
            self._publisher.handle_retry(event, now_ms)

    def _hear_time(self, connack, now_ms: int) -> None:
        unix_ms = offered_time(connack.properties)
        if unix_ms is not None:
            self._clock.offer(GATEWAY, unix_ms, self._connect_ms, now_ms)

    def _handle_answer(self, answer, now_ms: int) -> None:
        was_asking = self._mark is not None and self._mark.is_asking
        if self._mark is not None and self._mark.hear(answer, self._connection):
            self._open_anew(now_ms)
        elif not was_asking and self._inbox is not None:
            self._inbox.handle_answer(answer)

    def _look_at_session(self, session_present: bool, now_ms: int) -> None:
        """It is in doubt where the answer to an earlier CONNECT, which may have made it, did not come to be noted."""
        mark = self._mark
        if mark is None or not (session_present and self._is_in_doubt and self._publisher.has_promises):
            self._begin(session_present, False, now_ms)
        elif mark.verdict is None and mark.is_of_use and mark.is_granted:
            self._inbox.resume(self._connection)
            mark.ask(self._connection)
            self._silence_ms = now_ms + SILENCE_MS
        else:
            self._begin(session_present, mark.verdict is False, now_ms)

    def _begin(self, session_present: bool, is_other: bool, now_ms: int) -> None:
        self._silence_ms = None
        self._complained = False
        self.connects += 1
        goes_on = session_present and not is_other
        self._say(f"connected to {self._port.name}, to {'its old' if goes_on else 'a new'} session")
        self._brokers.accept(now_ms)
        is_in_doubt = self._is_in_doubt and (self._mark is None or self._mark.verdict is None)
        if self._status is not None:
            self._status.say_online(self._connection)
        is_clean = self._brokers.is_other
        if is_clean:
            self._publisher.forget()
        self._publisher.attach(self._connection, session_present, is_in_doubt, is_other)
        self._is_known = self._publisher.is_noted
        if self._is_known:
            self._brokers.note()
            if is_clean and self._config.protocol_level != MQTT_5:  # such a session ends with the connection
                self._publisher.detach()
                self._open_anew(now_ms)
                return
        if self._inbox is not None:
            is_marked = self._mark is not None and self._is_known
            self._inbox.attach(self._connection, goes_on, self._mark.take_filters() if is_marked else [])

    def _open_anew(self, now_ms: int) -> None:
        """The same broker at once: what this connection has been told of its session does not hold."""
        assert self._connection is not None
        self._connection.disconnect()
        self._send(self._connection.data_to_send(), now_ms)
        self._port.close()
        self._connection = None
        self._retry_ms = now_ms

    def _leave(self, text: str, now_ms: int) -> None:
        assert self._connection is not None
        if self._status is not None:
            self._status.say_offline(self._connection)
        self._connection.disconnect()
        self._send(self._connection.data_to_send(), now_ms)
        self._lose(text, now_ms)

    def _take_port(self) -> None:
        """Of the broker whose turn it is."""
        if self._port is not self._brokers.port:
            self._port = self._brokers.port
            self._scram = self._brokers.make_scram(self._say)

    def _authentication(self):
        if self._scram is None:
            return None
        from device.scram import METHOD
        from wire.authentication import ClientAuthentication

        return ClientAuthentication(METHOD, self._scram.respond)

    def _send(self, data: bytes, now_ms: int) -> None:
        if data:
            self._port.send(data, now_ms)

    def _lose(self, text: str, now_ms: int) -> None:
        was_connected = self._publisher.attached
        if was_connected and now_ms - self._connect_ms >= STEADY_MS:
            self._backoff.reset()
        self._publisher.detach()
        if self._inbox is not None:
            self._inbox.detach()
        if self._mark is not None:
            self._mark.detach()
        self._port.close()
        self._connection = None
        self._silence_ms = None
        self._retry_ms = now_ms + self._backoff.next_wait_ms()
        if was_connected:
            self._say(f"disconnected: {text}")
        elif self._scram is not None and self._scram.is_deriving:
            return  # it has said so, and the same broker's turn is next
        else:
            self._complain(text)
        self._brokers.lose(was_connected)
        self._take_port()

    def _complain(self, text: str) -> None:
        """Once for each time without a broker."""
        if not self._complained:
            self._complained = True
            self._say(f"no broker at {self._port.name}: {text}; readings are kept in flash, attempts go on")
