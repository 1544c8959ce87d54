"""Keeps the device connected to its broker: a port, the MQTT connection over it, and a new attempt when one ends.

The states are in `device.mqtt.states`.
"""

from device.clock import GATEWAY, earliest
from device.mqtt.states import (
    ATTACHED,
    BEGUN,
    CONNECTING,
    DOUBTFUL,
    IN_DOUBT,
    NEW,
    OPENING,
    PROBING,
    RESUMED,
    SETTLED,
    WAITING,
)
from device.ports import Down, Up
from flash_store.errors import StoreFull
from wire.backoff import Backoff
from wire.codec import MQTT_5
from wire.codec.connect import FOR_EVER_S, Connect
from wire.connection.client import ClientConnection
from wire.errors import Closed
from wire.packet_types import CONNACK, DISCONNECT, PUBACK, PUBCOMP, PUBLISH, PUBREC, PUBREL, SUBACK, UNSUBACK
from wire.properties import MAXIMUM_PACKET_SIZE, RECEIVE_MAXIMUM, SESSION_EXPIRY_INTERVAL
from wire.reasons import SUCCESS
from wire.time_offer import offered_time

RETRY_SHORTEST_MS, RETRY_LONGEST_MS = 250, 30_000
UNANSWERED_MAX = 4  # the retry interval doubles at most this often
STEADY_MS = 10_000  # a connection that ends sooner counts as a failed attempt: the wait for the next one grows
SILENCE_MS = 5_000  # an attempt that takes longer is logged; it goes on
KEEP_ALIVE_S = 60
MESSAGES_MAX = 20  # messages to the device at once, in RAM; mosquitto 2.0.11 sends 20 whatever value we announce
PACKET_SIZE_MAX = 4096  # of incoming packets: answers with a reason, and commands


class Session:
    """Owns the MQTT connection, and lends it to the publisher and to `inbox`, if there is one.

    Args:
        brokers: `device.mqtt.brokers.Brokers`.
        config: `device.config.Config`.
        publisher: `device.mqtt.publisher.Publisher`.
        clock: `device.clock.Clock`, which gets the time that the broker offers.
        say: called with each line of text for the console and the log.
        inbox: `device.mqtt.inbox.Inbox` of a device that takes messages, else None.
        status: `device.mqtt.status.Status` of a device that publishes its status, else None.
        network: has `is_up`; None if the board has no network to join.
    """

    def __init__(self, brokers, config, publisher, clock, say, inbox=None, status=None, network=None) -> None:
        self._brokers = brokers
        self._config = config
        self._publisher = publisher
        self._clock = clock
        self._say = say
        self.inbox = inbox
        self._status = status
        self._network = network
        self._probe = None if inbox is None else inbox.probe
        self._state = WAITING
        self._timer_ms: int | None = 0
        self._knowledge = BEGUN if self._probe is not None and self._probe.is_granted else SETTLED  # only it knows more
        self.connects = 0  # connections that a broker has accepted since the start
        self._connect_ms = 0  # when the last CONNECT was made
        self._unanswered = 0  # connections in a row that ended because the broker acknowledged nothing over them
        self._connection: ClientConnection | None = None
        self._backoff = Backoff(RETRY_SHORTEST_MS, RETRY_LONGEST_MS)
        self._complained = False  # whether the log already says that there is no broker

    def advance(self, ready: int, now_ms: int) -> None:
        """Does everything that is due. `ready` is the port's event mask from the poll, 0 for none."""
        has_network = self._network is None or self._network.is_up
        if self._state != WAITING:
            if has_network:
                self._brokers.port.advance(ready, now_ms)
                self._handle_port(now_ms)
            else:
                self._lose("the network is gone", now_ms)
        elif self._brokers.is_deriving:
            self._brokers.scram.derive()
        elif has_network and self._is_due(now_ms):
            self._state, self._timer_ms = OPENING, now_ms + SILENCE_MS
            try:
                self._brokers.port.open(now_ms)
            except OSError as error:
                self._lose(str(error), now_ms)
        if self._connection is not None:
            self._connection.handle_timer(now_ms)
            self._handle_packets(now_ms)
        if self.inbox is not None:
            self.inbox.advance(now_ms)
        self._publisher.handle_timer(now_ms)
        self._fill(now_ms)
        if self._connection is not None:
            self._handle_port(now_ms)
        if self._brokers.is_due_home(now_ms) and not self.is_waiting:
            self._say_goodbye(now_ms)
            self._lose("the first broker is tried again", now_ms)
        if self._state != WAITING and self._is_due(now_ms):
            self._timer_ms = None
            self._complain("no answer")
            if self._state == PROBING:
                self._lose("no UNSUBACK", now_ms)

    def close(self, now_ms: int) -> None:
        """Disconnects from the broker, which keeps the session. This object must not be used afterwards."""
        if self._state == ATTACHED:
            self._say_goodbye(now_ms)
        self._publisher.detach()
        self._brokers.port.close()

    @property
    def attached(self) -> bool:
        """Whether a broker has accepted the connection."""
        return self._state == ATTACHED

    @property
    def is_settled(self) -> bool:
        """Whether every message to the device is answered, or its answer is not known yet."""
        return self.inbox is None or self.inbox.is_settled

    @property
    def is_waiting(self) -> bool:
        """Whether the device or the broker still has an answer outstanding."""
        return not self.is_settled or self._publisher.is_waiting

    def pause(self, now_ms: int) -> bool:
        """Asks the peer for silence, on a line that loses bytes while flash is erased.

        Returns True once the erase may begin; until then it is to be called again.
        """
        return self._state == WAITING or self._brokers.port.pause(now_ms)

    def resume(self, now_ms: int) -> None:
        if self._state != WAITING:
            self._brokers.port.resume(now_ms)

    def log(self, text: str) -> None:
        """Sends a line of text for the log of the gateway at the other end of a serial link; it may be lost."""
        if self._state != WAITING:
            self._brokers.port.log(text)

    def next_timer_ms(self) -> int | None:
        """When `advance` wants to be called at the latest."""
        timers = [self._publisher.next_timer_ms()]
        if not self.is_waiting:  # otherwise the port or another timer wakes the loop when the answer comes
            timers.append(self._brokers.next_timer_ms())
        if self._brokers.is_deriving:
            timers.append(0)
        if self._state != WAITING:
            timers += [self._timer_ms, self._brokers.port.next_timer_ms()]
        elif self._network is None or self._network.is_up:  # otherwise the network's own timer wakes the loop
            timers.append(self._timer_ms)
        if self.inbox is not None:
            timers.append(self.inbox.next_timer_ms())
        if self._connection is not None:
            timers.append(self._connection.next_timer_ms())
        return earliest(timers)

    def _is_due(self, now_ms: int) -> bool:
        return self._timer_ms is not None and now_ms >= self._timer_ms

    def _fill(self, now_ms: int) -> None:
        while self._connection is not None:
            has_room = self._brokers.port.has_room
            is_filling = has_room and (self._publisher.fill(now_ms) or self._publisher.send_qos_0())
            self._send(now_ms)
            if not is_filling:
                return

    def _handle_port(self, now_ms: int) -> None:
        while (event := self._brokers.port.next_event()) is not None:
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
        username, password = self._brokers.login
        packet = Connect(
            config.client_id,
            self._brokers.is_other,
            KEEP_ALIVE_S,
            username,
            password,
            None if self._status is None else self._status.will(),
            {SESSION_EXPIRY_INTERVAL: FOR_EVER_S, RECEIVE_MAXIMUM: MESSAGES_MAX, MAXIMUM_PACKET_SIZE: PACKET_SIZE_MAX},
            config.protocol_level,
        )
        self._connection = ClientConnection(
            packet,
            authentication=self._brokers.authentication(),
            retry_interval_ms=self._retry_interval_ms(),
            first_identifier=self._publisher.first_request,
        )
        self._connect_ms = now_ms
        self._state = CONNECTING
        if not self._brokers.is_other:  # a CONNECT to another broker does not touch this one's session
            self._knowledge = min(self._knowledge + 1, DOUBTFUL)
        self._connection.connect(now_ms)

    def _retry_interval_ms(self) -> int | None:
        """Returns the retry interval, doubled for each connection in a row that ended without any acknowledgement."""
        interval_ms = self._config.retry_interval_ms
        return interval_ms and interval_ms << min(self._unanswered, UNANSWERED_MAX)

    def _handle_packets(self, now_ms: int) -> None:
        try:
            while self._connection is not None and (event := self._connection.next_event()) is not None:
                if isinstance(event, Closed):
                    interval_ms = self._retry_interval_ms()
                    self._unanswered += bool(interval_ms and now_ms - self._connect_ms >= interval_ms)
                    self._send(now_ms)
                    self._lose(event.text, now_ms)
                else:
                    self._handle(event, now_ms)
        except StoreFull as error:  # a note must be durable before the packet is sent: the session goes on later
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
            if self.inbox is not None and self.attached:  # in PROBING ignored: it comes again over the next connection
                self.inbox.handle_packet(event)
        elif kind in (SUBACK, UNSUBACK):
            if self._probe is not None and self._probe.hear(event, self._connection):
                self._open_anew(now_ms)
            elif self._state != PROBING and self.inbox is not None:
                self.inbox.handle_answer(event)
        elif kind == DISCONNECT:
            from wire.reasons import describe

            self._publisher.handle_close(event.reason_code, describe(event.reason_code), now_ms)
        elif kind == CONNACK and event.reason_code == SUCCESS:
            self._handle_welcome(event, now_ms)
        elif kind is None:
            self._publisher.handle_retry(event, now_ms)

    def _handle_welcome(self, connack, now_ms: int) -> None:
        scram = self._brokers.scram
        if scram is not None and not scram.is_proven:
            self._lose("the broker does not prove that it knows the password", now_ms)
            return
        unix_ms = offered_time(connack.properties)
        if unix_ms is not None:
            self._clock.offer(GATEWAY, unix_ms, self._connect_ms, now_ms)
        self._look_at_session(connack.session_present, now_ms)

    def _look_at_session(self, session_present: bool, now_ms: int) -> None:
        """Begins to work in the broker's session, or first asks whether it is the one that the device knows."""
        probe = self._probe
        if not session_present:
            self._begin(NEW, now_ms)
        elif self._knowledge != DOUBTFUL:
            self._begin(RESUMED, now_ms)
        elif probe is None:
            self._begin(IN_DOUBT, now_ms)
        elif probe.can_ask and (self._publisher.custody.taken or self.inbox.incoming.identifiers):
            self._state, self._timer_ms = PROBING, now_ms + SILENCE_MS
            self.inbox.resume(self._connection)
            probe.ask(self._connection)
        else:
            self._begin(probe.verdict, now_ms)

    def _begin(self, session: int, now_ms: int) -> None:
        self._complained = False
        self.connects += 1
        goes_on = session in (RESUMED, IN_DOUBT)
        self._say(f"connected to {self._brokers.port.name}, to {'its old' if goes_on else 'a new'} session")
        self._brokers.accept(now_ms)
        if self._status is not None:
            self._status.say_online(self._connection)
        is_clean = self._brokers.is_other
        self._publisher.attach(self._connection, session, is_clean)
        self._state, self._timer_ms = ATTACHED, None
        is_noted = self._publisher.custody.is_noted
        self._knowledge = SETTLED if is_noted else max(self._knowledge, BEGUN)
        if is_noted:
            self._brokers.note()
            if is_clean and self._config.protocol_level != MQTT_5:  # a clean session ends with its connection
                self._publisher.detach()
                self._open_anew(now_ms)
                return
        if self.inbox is not None:
            self.inbox.attach(self._connection, goes_on, is_noted)

    def _open_anew(self, now_ms: int) -> None:
        """Connects to the same broker again at once, because the session has to begin differently."""
        assert self._connection is not None
        self._connection.disconnect()
        self._send(now_ms)
        self._brokers.port.close()
        self._connection = None
        self._state, self._timer_ms = WAITING, now_ms

    def _say_goodbye(self, now_ms: int) -> None:
        assert self._connection is not None
        if self._status is not None:
            self._status.say_offline(self._connection)
        self._connection.disconnect()
        self._send(now_ms)

    def _send(self, now_ms: int) -> None:
        assert self._connection is not None
        data = self._connection.data_to_send()
        if data:
            self._brokers.port.send(data, now_ms)

    def _lose(self, text: str, now_ms: int) -> None:
        was_connected = self._state == ATTACHED
        if was_connected and now_ms - self._connect_ms >= STEADY_MS:
            self._backoff.reset()
        self._publisher.detach()
        if self.inbox is not None:
            self.inbox.detach()
        self._brokers.port.close()
        self._connection = None
        self._state, self._timer_ms = WAITING, now_ms + self._backoff.next_wait_ms()
        if was_connected:
            self._say(f"disconnected: {text}")
        elif self._brokers.is_deriving:
            return  # the derivation is logged already, and the next attempt is for the same broker
        else:
            self._complain(text)
        self._brokers.lose(was_connected)

    def _complain(self, text: str) -> None:
        """Logs that there is no broker, once until the next connection."""
        if not self._complained:
            self._complained = True
            self._say(f"no broker at {self._brokers.port.name}: {text}; readings are kept in flash, attempts go on")
