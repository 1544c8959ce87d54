"""The client's end of an MQTT connection: the device, and a route to the next broker."""

from wire.codec.acknowledge import Pubrel
from wire.codec.connack import Connack
from wire.codec.connect import Connect, Will
from wire.codec.control import Disconnect, Pingreq
from wire.codec.decoder import PACKET_SIZE_MAX
from wire.codec.packet import MQTT_3_1_1, MQTT_5, Packet
from wire.codec.to_client import READERS
from wire.connection import QOS_MAX, REASON_STRING_MAX, RECEIVE_MAXIMUM_DEFAULT, Connection
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
from wire.states import AWAIT_CONNACK, AWAIT_PUBCOMP, CLOSED, CONNECTED, FROM_CLIENT, FROM_SERVER
from wire.windows import SendWindow

CONNACK_TIMEOUT_MS = 30_000  # a gateway that recovers its store answers late, one that is gone never
RETRY_INTERVAL_3_1_1_MS = 20_000


class ClientConnection(Connection):
    """One network connection of one client; a new one is made for every attempt.

    `connect(now_ms)` first. Events: Connack, Publish, Puback, Pubrec, Pubrel, Pubcomp, Suback, Unsuback, RetryDue,
    Disconnect, Closed. After a Connack of success the connection carries what the server granted: `client_id`,
    `keep_alive_s`, `session_expiry_s`, `send_quota`, `maximum_packet_size_peer`.

    Args:
        protocol_level: MQTT_5 or MQTT_3_1_1. Over 3.1.1 a session lasts for ever, or with `clean_start` no longer than
            the connection; `session_expiry_s`, `receive_maximum` and properties are not said.
        session_expiry_s: how long the server keeps the session after the connection; 0xFFFFFFFF is for ever.
        keep_alive_s: after this long without a packet a PINGREQ goes out; without an answer within half of it the
            connection is Closed. 0 turns both off.
        retry_interval_ms: how long a message may stay unacknowledged; None: 20 s over 3.1.1, no limit over 5; 0: no
            limit. Then over 3.1.1 it goes out again (see `wire.retry`); over 5, which forbids that, the connection
            is Closed, and the session may be resumed over a new one.
        authentication: a `wire.authentication.ClientAuthentication`, MQTT 5 only.
        first_identifier: of the packet identifiers that this connection chooses itself. Whoever chooses those of its
            messages says here from where on none of a session that may go on is in use [MQTT-2.2.1-3].
    """

    _may_send = FROM_CLIENT
    _may_receive = FROM_SERVER

    def __init__(
        self,
        client_id: str,
        *,
        protocol_level: int = MQTT_5,
        clean_start: bool = False,
        session_expiry_s: int = 0xFFFF_FFFF,
        keep_alive_s: int = 60,
        receive_maximum: int = RECEIVE_MAXIMUM_DEFAULT,
        maximum_packet_size: int = PACKET_SIZE_MAX,
        topic_alias_maximum: int = 0,
        username: str | None = None,
        password: bytes | None = None,
        will: Will | None = None,
        retry_interval_ms: int | None = None,
        authentication=None,
        first_identifier: int = 1,
    ) -> None:
        super().__init__(READERS, receive_maximum, maximum_packet_size, topic_alias_maximum)
        self._speak(protocol_level)
        self._send_window = SendWindow(0, first_identifier)
        self.client_id = client_id
        self.clean_start = clean_start
        self.session_expiry_s = session_expiry_s
        self.keep_alive_s = keep_alive_s
        self._credentials = (username, password)
        self._will = will
        self._authentication = authentication
        if authentication is not None:
            self._decoder.add_reader(authentication.PACKET)
        self._deadline_ms: int | None = None  # of the CONNACK, then of the answer to a PINGREQ
        self._requests: dict = {}  # packet identifier: (type of the answer, number of filters)
        self._granted: dict = {}
        self._retry_due: list = []
        if retry_interval_ms is None and protocol_level == MQTT_3_1_1:
            retry_interval_ms = RETRY_INTERVAL_3_1_1_MS
        self._retry_timer = _retry_timer(retry_interval_ms)

    def connect(self, now_ms: int, properties: dict | None = None) -> None:
        """Sends the CONNECT, over MQTT 5 with more properties where some are given."""
        self._now_ms = now_ms
        properties = {} if properties is None else dict(properties)
        if self.session_expiry_s:
            properties[SESSION_EXPIRY_INTERVAL] = self.session_expiry_s
        if self.receive_maximum != RECEIVE_MAXIMUM_DEFAULT:
            properties[RECEIVE_MAXIMUM] = self.receive_maximum
        if self.maximum_packet_size < PACKET_SIZE_MAX:
            properties[MAXIMUM_PACKET_SIZE] = self.maximum_packet_size
        if self.topic_alias_maximum:
            properties[TOPIC_ALIAS_MAXIMUM] = self.topic_alias_maximum
        if self._authentication is not None:
            properties.update(self._authentication.begin())
        username, password = self._credentials
        self._send(
            Connect(
                self.client_id,
                self.clean_start,
                self.keep_alive_s,
                username,
                password,
                self._will,
                properties,
                self.protocol_level,
            )
        )
        self._deadline_ms = now_ms + CONNACK_TIMEOUT_MS

    def subscribe(self, filters: list, properties: dict | None = None) -> int:
        """Sends a SUBSCRIBE for [(topic filter, options byte)]; returns the packet identifier of its SUBACK.

        The options byte is the QoS, or'ed with the options of `wire.codec.subscribe`, which are MQTT 5's. Raises
        LocalProtocolError for what the server said it does not serve.
        """
        from wire.codec.suback import Suback  # as in `unsubscribe`: a device that only publishes needs neither
        from wire.codec.subscribe import Subscribe, check_granted

        request = Subscribe(0, filters, properties)
        check_granted(request, self._granted)
        return self._request(request, Suback)

    def unsubscribe(self, filters: list) -> int:
        """Sends an UNSUBSCRIBE; returns the packet identifier of its UNSUBACK."""
        from wire.codec.suback import Unsuback
        from wire.codec.subscribe import Unsubscribe

        return self._request(Unsubscribe(0, filters), Unsuback)

    def disconnect(self, reason_code: int = SUCCESS, properties: dict | None = None) -> None:
        """Sends a DISCONNECT and closes.

        Over MQTT 3.1.1 a DISCONNECT takes the will back, so that with any other reason than success none is sent.
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
        """When `handle_timer` wants to be called, in the time of `now_ms`; None: not before something happens."""
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
        """Sends a PINGREQ that is due [MQTT-3.1.2-20], retries, or gives up on a server that does not answer."""
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
            self._deadline_ms = None  # any byte shows that the server lives

    def next_event(self):
        due = self._retry_due
        if due and self.state == CONNECTED:
            from wire.retry import RetryDue

            self._retry_due = []
            return RetryDue([one for one in due if one in self._send_window])
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

    def _request(self, packet, answer) -> int:
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
        if packet.reason_code != SUCCESS:
            self._close_because(packet)
            return
        granted = self._granted = packet.properties
        self.client_id = granted.get(ASSIGNED_CLIENT_IDENTIFIER, self.client_id)
        if not self.client_id and self.protocol_level == MQTT_5:
            raise RemoteProtocolError(PROTOCOL_ERROR, "a CONNACK assigns no client identifier [MQTT-3.2.2-16]")
        if packet.session_present and self.clean_start:
            raise RemoteProtocolError(PROTOCOL_ERROR, "a session is present after a clean start [MQTT-3.2.2-2]")
        if self._authentication is not None:
            self._authentication.finish(granted)
        elif AUTHENTICATION_METHOD in granted:
            raise RemoteProtocolError(PROTOCOL_ERROR, "authentication that nobody asked for [MQTT-4.12.0-6]")
        self.keep_alive_s = granted.get(SERVER_KEEP_ALIVE, self.keep_alive_s)  # [MQTT-3.2.2-21]
        self.session_expiry_s = granted.get(SESSION_EXPIRY_INTERVAL, self.session_expiry_s)
        self.maximum_qos_peer = granted.get(MAXIMUM_QOS, QOS_MAX)
        self._peer_takes_retain = granted.get(RETAIN_AVAILABLE, 1) == 1
        self._learn_limits(granted)

    def _handle_answer(self, packet) -> None:
        expected = self._requests.pop(packet.packet_identifier, None)
        if expected is not None and packet.TYPE == UNSUBACK and self.protocol_level == MQTT_3_1_1:
            packet.reason_codes = [SUCCESS] * expected[1]  # it says no more than that
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
        from wire.reasons import describe  # the names of all codes take room in a heap

        text = packet.properties.get(REASON_STRING) or describe(packet.reason_code)
        reference = packet.properties.get(SERVER_REFERENCE, "")
        self._close(packet.reason_code, f"the server says: {text}", reference)

    def _fail(self, error: RemoteProtocolError) -> None:
        text = str(error)[:REASON_STRING_MAX]
        if self.protocol_level == MQTT_5 and self.state in (AWAIT_CONNACK, CONNECTED):
            self._send_answer(Disconnect(error.reason_code, {REASON_STRING: text}))
        self._close(error.reason_code, text)


def _retry_timer(interval_ms):
    if not interval_ms:
        return None
    from wire.retry import RetryTimer  # most devices need none

    return RetryTimer(interval_ms)
