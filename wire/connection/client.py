"""The client's end of an MQTT connection. Devices use it, and routes from a gateway to the next broker."""

from wire.codec import MQTT_3_1_1, MQTT_5, Packet
from wire.codec.acknowledge import Pubrel
from wire.codec.connack import Connack
from wire.codec.connect import Connect
from wire.codec.control import Disconnect, Pingreq
from wire.codec.decoder import PACKET_SIZE_MAX, TO_CLIENT
from wire.connection import QOS_MAX, REASON_STRING_MAX, RECEIVE_MAXIMUM_DEFAULT, Connection
from wire.connection.states import AWAIT_CONNACK, AWAIT_PUBCOMP, CLOSED, CONNECTED, FROM_CLIENT, FROM_SERVER
from wire.connection.windows import SendWindow
from wire.errors import LocalProtocolError, RemoteProtocolError
from wire.packet_types import AUTH, CONNACK, DISCONNECT, PINGRESP, SUBACK, UNSUBACK
from wire.properties import (
    ASSIGNED_CLIENT_IDENTIFIER,
    AUTHENTICATION_METHOD,
    MAXIMUM_PACKET_SIZE,
    MAXIMUM_QOS,
    REASON_STRING,
    RECEIVE_MAXIMUM,
    RETAIN_AVAILABLE,
    SERVER_KEEP_ALIVE,
    SERVER_REFERENCE,
    SESSION_EXPIRY_INTERVAL,
    TOPIC_ALIAS_MAXIMUM,
)
from wire.reasons import (
    DISCONNECT_WITH_WILL,
    KEEP_ALIVE_TIMEOUT,
    PROTOCOL_ERROR,
    SERVER_UNAVAILABLE,
    SUCCESS,
    UNSPECIFIED_ERROR,
)

CONNACK_TIMEOUT_MS = 30_000  # a gateway that recovers its store after a power cut may need this long
RETRY_INTERVAL_3_1_1_MS = 20_000


class ClientConnection(Connection):
    """One network connection of one client. Make a new object for each attempt to connect.

    Call `connect(now_ms)` first. Events: Connack, Publish, Puback, Pubrec, Pubrel, Pubcomp, Suback, Unsuback, RetryDue,
    Disconnect, Closed. After a Connack with success these attributes have the values that the server granted:
    `client_id`, `keep_alive_s` where the server's is shorter, `session_expiry_s`, `send_quota`,
    `maximum_packet_size_peer`.

    Args:
        connect_packet: what `connect` sends, with the limits of this side in its properties: RECEIVE_MAXIMUM,
            MAXIMUM_PACKET_SIZE, TOPIC_ALIAS_MAXIMUM. The latter two also hold over MQTT 3.1.1, whose CONNECT carries no
            properties: its session lasts for ever, or until the connection ends if `clean_start` is set. After
            `keep_alive_s` without a packet the client sends a PINGREQ. If no byte comes within half of this time after
            it, the connection is Closed. 0 turns both off.
        retry_interval_ms: how long a message may stay unacknowledged; 0: for ever; None: 20 s over 3.1.1, for ever over
            5. After this time 3.1.1 sends the message again (see `wire.connection.retry`). MQTT 5 forbids that, so the
            connection is Closed, and the client may resume its session over a new one.
        authentication: a `wire.connection.authentication.ClientAuthentication`; MQTT 5 only.
        first_identifier: the first packet identifier that this connection chooses. An application that chooses the
            packet identifiers of its messages gives one that is above all that its session uses [MQTT-2.2.1-3].
    """

    _may_send = FROM_CLIENT
    _may_receive = FROM_SERVER

    def __init__(
        self,
        connect_packet: Connect,
        *,
        retry_interval_ms: int | None = None,
        authentication=None,
        first_identifier: int = 1,
    ) -> None:
        limits = connect_packet.properties
        super().__init__(
            TO_CLIENT,
            limits.get(RECEIVE_MAXIMUM, RECEIVE_MAXIMUM_DEFAULT),
            limits.get(MAXIMUM_PACKET_SIZE, PACKET_SIZE_MAX),
            limits.get(TOPIC_ALIAS_MAXIMUM, 0),
        )
        self._speak(connect_packet.protocol_level)
        self._send_window = SendWindow(0, first_identifier)
        self._asked: Connect | None = connect_packet  # until the CONNACK: then its memory is free
        self.client_id = connect_packet.client_id
        self.session_expiry_s = connect_packet.session_expiry_s
        self.keep_alive_s = connect_packet.keep_alive_s
        self._authentication = authentication
        if authentication is not None:
            self._decoder.add_reader(authentication.PACKET)
        self._deadline_ms: int | None = None  # by when the CONNACK, or the answer to a PINGREQ, must come
        self._requests: dict = {}  # packet identifier: (type of the answer, number of filters)
        self._granted: dict = {}
        self._retry_due: list = []
        if retry_interval_ms is None and self.protocol_level == MQTT_3_1_1:
            retry_interval_ms = RETRY_INTERVAL_3_1_1_MS
        self._retry_timer = None
        if retry_interval_ms:
            from wire.connection.retry import RetryTimer  # most devices do not use it

            self._retry_timer = RetryTimer(retry_interval_ms)

    def connect(self, now_ms: int, properties: dict | None = None) -> None:
        """Sends the CONNECT, with `properties` besides its own; MQTT 3.1.1 sends none."""
        self._now_ms = now_ms
        asked = self._asked
        if asked is None:
            raise LocalProtocolError("a connection has one CONNECT [MQTT-3.1.0-2]")
        asked.properties.update(properties or {})
        if self._authentication is not None:
            asked.properties.update(self._authentication.begin())
        self._send(asked)
        self._deadline_ms = now_ms + CONNACK_TIMEOUT_MS

    def subscribe(self, filters: list, properties: dict | None = None) -> int:
        """Sends a SUBSCRIBE for [(topic filter, options byte)]; returns the packet identifier of its SUBACK.

        The options byte is the QoS, or'ed with options of `wire.codec.subscribe`, which only MQTT 5 has. Raises
        LocalProtocolError if the server has announced that it does not serve such a subscription.
        """
        from wire.codec.suback import Suback  # imported here: a device that only publishes does not load it
        from wire.codec.subscribe import Subscribe, not_granted

        request = Subscribe(0, filters, properties)
        ruled_out = not_granted(request, self._granted)
        if ruled_out is not None:
            raise LocalProtocolError(f"the server does not serve {ruled_out[1]} [section 3.2.2.3]")
        return self.request(request, Suback)

    def unsubscribe(self, filters: list, properties: dict | None = None) -> int:
        """Sends an UNSUBSCRIBE; returns the packet identifier of its UNSUBACK."""
        from wire.codec.suback import Unsuback
        from wire.codec.subscribe import Unsubscribe

        return self.request(Unsubscribe(0, filters, properties), Unsuback)

    def request(self, packet, answer) -> int:
        """Sends a SUBSCRIBE or UNSUBSCRIBE, whose answer the class `answer` reads; returns its packet identifier."""
        self._check_may_send(packet.TYPE)
        packet.packet_identifier = self._send_window.reserve()
        try:
            self._send(packet)
        except Exception:
            self._send_window.release(packet.packet_identifier)
            raise
        self._requests[packet.packet_identifier] = (answer.TYPE, len(packet.filters))
        self._decoder.add_reader(answer)
        return packet.packet_identifier

    def disconnect(self, reason_code: int = SUCCESS, properties: dict | None = None) -> None:
        """Sends a DISCONNECT and closes.

        Over MQTT 3.1.1 a DISCONNECT always discards the will. So if the reason is not success, none is sent there.
        """
        self._check_may_send(DISCONNECT)
        if self.protocol_level == MQTT_5 or reason_code == SUCCESS:
            self._send(Disconnect(reason_code, properties))
        self._close(reason_code, "disconnected by this client")

    def reauthenticate(self) -> None:
        """Begins a new exchange of a client with `authentication` while connected [section 4.12.1]."""
        self._check_may_send(AUTH)
        if self.state != CONNECTED or self._authentication is None:
            raise LocalProtocolError("only a connected client with an authentication method may [MQTT-4.12.1-1]")
        self._send(self._authentication.begin_again())

    def next_timer_ms(self) -> int | None:
        """Returns when `handle_timer` must be called, in the time of `now_ms`; None: not before something happens."""
        if self.state == CLOSED:
            return None
        timer_ms = self._deadline_ms
        if timer_ms is None and self.state == CONNECTED and self.keep_alive_s:
            timer_ms = min(self._last_sent_ms, self._last_received_ms) + 1000 * self.keep_alive_s
        retry_ms = None if self._retry_timer is None else self._retry_timer.next_timer_ms()
        if timer_ms is None or retry_ms is None:
            return retry_ms if timer_ms is None else timer_ms
        return min(timer_ms, retry_ms)

    def handle_timer(self, now_ms: int) -> None:
        """Sends a PINGREQ if it is due [MQTT-3.1.2-20], repeats messages, and closes if the server does not answer."""
        self._now_ms = now_ms
        timer_ms = self.next_timer_ms()
        if timer_ms is None or now_ms < timer_ms:
            return
        if self._retry_timer is not None:
            self._retry(self._retry_timer.take_due(now_ms))
        if self._deadline_ms is None:
            quiet_since_ms = min(self._last_sent_ms, self._last_received_ms)
            if self.state == CONNECTED and self.keep_alive_s and now_ms >= quiet_since_ms + 1000 * self.keep_alive_s:
                self._deadline_ms = now_ms + 500 * self.keep_alive_s
                self._send_if_it_fits(Pingreq())
        elif now_ms < self._deadline_ms:
            return
        elif self.state == CONNECTED:
            self._close(KEEP_ALIVE_TIMEOUT, f"no answer to a PINGREQ in {self.keep_alive_s / 2} s")
        else:
            self._close(SERVER_UNAVAILABLE, f"no CONNACK in {CONNACK_TIMEOUT_MS // 1000} s")

    def receive_data(self, data: bytes | bytearray | memoryview, now_ms: int) -> None:
        super().receive_data(data, now_ms)
        if self.state != AWAIT_CONNACK:
            self._deadline_ms = None  # any byte shows that the server is alive

    def next_event(self):
        due = self._retry_due
        if due and self.state == CONNECTED:
            from wire.connection.retry import RetryDue

            self._retry_due = []
            return RetryDue([identifier for identifier in due if identifier in self._send_window])
        return super().next_event()

    def _retry(self, due: list) -> None:
        if not due or self.state != CONNECTED:
            return
        if self.protocol_level == MQTT_5:
            self._close(UNSPECIFIED_ERROR, f"no acknowledgement of message {due[0]} in time [MQTT-4.4.0-1]")
            return
        for packet_identifier in due:
            if self._send_window.state(packet_identifier) == AWAIT_PUBCOMP:
                self._send_if_it_fits(Pubrel(packet_identifier))
            else:
                self._retry_due.append(packet_identifier)

    def _awaits(self, packet_identifier: int) -> None:
        if self._retry_timer is not None:
            self._retry_timer.sent(packet_identifier, self._now_ms)

    def _came(self, packet_identifier: int) -> None:
        if self._retry_timer is not None:
            self._retry_timer.acknowledged(packet_identifier, self._now_ms)

    def _handle(self, packet) -> Packet | None:
        kind = packet.TYPE
        if kind == CONNACK:
            self._handle_connack(packet)
        elif kind == DISCONNECT:
            self._handle_disconnect(packet)
        elif kind in (SUBACK, UNSUBACK):
            self._handle_answer(packet)
        elif kind == PINGRESP:
            return None
        elif kind == AUTH:
            answer = self._authentication.answer(packet, self.state == CONNECTED)
            if answer is not None:
                self._send(answer)
            return None
        else:
            return self._handle_message(packet)
        return packet

    def _handle_connack(self, packet: Connack) -> None:
        self._deadline_ms = None
        asked, self._asked = self._asked, None
        if packet.reason_code != SUCCESS:
            self._close_because(packet)
            return
        granted = self._granted = packet.properties
        self.client_id = granted.get(ASSIGNED_CLIENT_IDENTIFIER, self.client_id)
        if not self.client_id and self.protocol_level == MQTT_5:
            raise RemoteProtocolError(PROTOCOL_ERROR, "a CONNACK assigns no client identifier [MQTT-3.2.2-16]")
        if packet.session_present and asked is not None and asked.clean_start:
            raise RemoteProtocolError(PROTOCOL_ERROR, "a session is present after a clean start [MQTT-3.2.2-2]")
        if self._authentication is not None:
            self._authentication.finish(granted)
        elif AUTHENTICATION_METHOD in granted:
            raise RemoteProtocolError(
                PROTOCOL_ERROR, "a CONNACK with authentication, but our CONNECT had none [MQTT-4.12.0-6]"
            )
        servers_s = granted.get(SERVER_KEEP_ALIVE, 0)
        if servers_s and not 0 < self.keep_alive_s < servers_s:  # a longer one does not end our own tests of the line
            self.keep_alive_s = servers_s  # [MQTT-3.2.2-21]
        self.session_expiry_s = granted.get(SESSION_EXPIRY_INTERVAL, self.session_expiry_s)
        self.maximum_qos_peer = granted.get(MAXIMUM_QOS, QOS_MAX)
        self._peer_takes_retain = granted.get(RETAIN_AVAILABLE, 1) == 1
        self._learn_limits(granted)

    def _handle_answer(self, packet) -> None:
        expected = self._requests.pop(packet.packet_identifier, None)
        if expected is not None and packet.TYPE == UNSUBACK and self.protocol_level == MQTT_3_1_1:
            packet.reason_codes = [SUCCESS] * expected[1]  # the UNSUBACK of 3.1.1 has no reason codes
        if expected != (packet.TYPE, len(packet.reason_codes)):
            name = type(packet).__name__.upper()
            text = f"{name} {packet.packet_identifier} answers no request of ours [MQTT-3.8.4-6, MQTT-3.11.3-2]"
            raise RemoteProtocolError(PROTOCOL_ERROR, text)
        self._send_window.release(packet.packet_identifier)

    def _handle_disconnect(self, packet: Disconnect) -> None:
        if self.protocol_level == MQTT_3_1_1:
            raise RemoteProtocolError(PROTOCOL_ERROR, "a server of MQTT 3.1.1 sends no DISCONNECT [3.1.1 section 3.14]")
        if packet.reason_code == DISCONNECT_WITH_WILL:
            raise RemoteProtocolError(PROTOCOL_ERROR, "only a client has a will [section 3.14.2.1]")
        if SESSION_EXPIRY_INTERVAL in packet.properties:
            text = "a server's DISCONNECT has a session expiry [MQTT-3.14.2-2]"
            raise RemoteProtocolError(PROTOCOL_ERROR, text)
        self._close_because(packet)

    def _close_because(self, packet: Connack | Disconnect) -> None:
        from wire.reasons import describe  # imported here: the names of all reason codes take heap

        text = packet.properties.get(REASON_STRING) or describe(packet.reason_code)
        reference = packet.properties.get(SERVER_REFERENCE, "")
        self._close(packet.reason_code, f"the server says: {text}", reference)

    def _fail(self, error: RemoteProtocolError) -> None:
        text = str(error)[:REASON_STRING_MAX]
        if self.protocol_level == MQTT_5 and self.state in (AWAIT_CONNACK, CONNECTED):
            self._send_answer(Disconnect(error.reason_code, {REASON_STRING: text}))
        self._close(error.reason_code, text)
