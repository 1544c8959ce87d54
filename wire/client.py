"""The client's end of an MQTT 5 connection: the device, and a route to the next broker."""

from wire.connection import (
    AWAIT_CONNACK,
    CLOSED,
    CONNECTED,
    FROM_CLIENT,
    FROM_SERVER,
    QOS_MAX,
    REASON_STRING_MAX,
    RECEIVE_MAXIMUM_DEFAULT,
    Connection,
)
from wire.errors import LocalProtocolError, RemoteProtocolError
from wire.packet_types import CONNACK, DISCONNECT, PINGRESP, PUBACK, PUBLISH, SUBACK, UNSUBACK
from wire.packets import (
    PACKET_SIZE_MAX,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Suback,
    Subscribe,
    Unsuback,
    Unsubscribe,
    Will,
)
from wire.properties import (
    ASSIGNED_CLIENT_IDENTIFIER,
    AUTHENTICATION_METHOD,
    MAXIMUM_PACKET_SIZE,
    MAXIMUM_QOS,
    REASON_STRING,
    RECEIVE_MAXIMUM,
    RETAIN_AVAILABLE,
    SERVER_KEEP_ALIVE,
    SESSION_EXPIRY_INTERVAL,
)
from wire.reasons import KEEP_ALIVE_TIMEOUT, PROTOCOL_ERROR, SERVER_UNAVAILABLE, SUCCESS, describe
from wire.windows import SendWindow

CONNACK_TIMEOUT_MS = 30_000  # a gateway that recovers its store answers late, one that is gone never


class ClientConnection(Connection):
    """One network connection of one client; a new one is made for every attempt.

    `connect(now_ms)` first. Events: Connack, Publish, Puback, Suback, Unsuback, Disconnect, Closed. After a Connack
    of success the connection carries what the server granted: `client_id`, `keep_alive_s`, `session_expiry_s`,
    `send_quota`, `maximum_packet_size_peer`.

    Args:
        session_expiry_s: how long the server keeps the session after the connection; 0xFFFFFFFF is for ever.
        keep_alive_s: after this long without a packet a PINGREQ goes out; without an answer within half of it the
            connection is Closed. 0 turns both off.
    """

    def __init__(
        self,
        client_id: str,
        *,
        clean_start: bool = False,
        session_expiry_s: int = 0xFFFF_FFFF,
        keep_alive_s: int = 60,
        receive_maximum: int = RECEIVE_MAXIMUM_DEFAULT,
        maximum_packet_size: int = PACKET_SIZE_MAX,
        username: str | None = None,
        password: bytes | None = None,
        will: Will | None = None,
    ) -> None:
        super().__init__(FROM_CLIENT, FROM_SERVER, receive_maximum, maximum_packet_size)
        self.client_id = client_id
        self.clean_start = clean_start
        self.session_expiry_s = session_expiry_s
        self.keep_alive_s = keep_alive_s
        self._credentials = (username, password)
        self._will = will
        self._deadline_ms: int | None = None  # of the CONNACK, then of the answer to a PINGREQ
        self._requests: dict = {}  # packet identifier: (type of the answer, number of filters)

    def connect(self, now_ms: int) -> None:
        """Sends the CONNECT."""
        self._now_ms = now_ms
        properties = {}
        if self.session_expiry_s:
            properties[SESSION_EXPIRY_INTERVAL] = self.session_expiry_s
        if self.receive_maximum != RECEIVE_MAXIMUM_DEFAULT:
            properties[RECEIVE_MAXIMUM] = self.receive_maximum
        if self.maximum_packet_size < PACKET_SIZE_MAX:
            properties[MAXIMUM_PACKET_SIZE] = self.maximum_packet_size
        username, password = self._credentials
        keep_alive_s, will = self.keep_alive_s, self._will
        self._send(Connect(self.client_id, self.clean_start, keep_alive_s, username, password, will, properties))
        self._deadline_ms = now_ms + CONNACK_TIMEOUT_MS

    def subscribe(self, filters: list, properties: dict | None = None) -> int:
        """Sends a SUBSCRIBE for [(topic filter, options byte)]; returns the packet identifier of its SUBACK."""
        if any(options & 3 > QOS_MAX for _, options in filters):
            raise LocalProtocolError(f"this client takes QoS {QOS_MAX} at most")
        return self._request(Subscribe(0, filters, properties), SUBACK)

    def unsubscribe(self, filters: list) -> int:
        """Sends an UNSUBSCRIBE; returns the packet identifier of its UNSUBACK."""
        return self._request(Unsubscribe(0, filters), UNSUBACK)

    def disconnect(self, reason_code: int = SUCCESS) -> None:
        """Sends a DISCONNECT and closes."""
        self._send(Disconnect(reason_code))
        self._close(reason_code, "disconnected by this client")

    def next_timer_ms(self) -> int | None:
        """When `handle_timer` wants to be called, in the time of `now_ms`; None: not before something happens."""
        if self.state == CLOSED:
            return None
        if self._deadline_ms is not None:
            return self._deadline_ms
        if self.state != CONNECTED or not self.keep_alive_s:
            return None
        return min(self._last_sent_ms, self._last_received_ms) + 1000 * self.keep_alive_s

    def handle_timer(self, now_ms: int) -> None:
        """Sends a PINGREQ that is due [MQTT-3.1.2-20], or gives up on a server that does not answer."""
        self._now_ms = now_ms
        timer_ms = self.next_timer_ms()
        if timer_ms is None or now_ms < timer_ms:
            return
        if self._deadline_ms is None:
            self._deadline_ms = now_ms + 500 * self.keep_alive_s
            self._send_if_it_fits(Pingreq())
        elif self.state == CONNECTED:
            self._close(KEEP_ALIVE_TIMEOUT, f"no answer to a PINGREQ in {self.keep_alive_s / 2} s")
        else:
            self._close(SERVER_UNAVAILABLE, f"no CONNACK in {CONNACK_TIMEOUT_MS // 1000} s")

    def receive_data(self, data: bytes | bytearray | memoryview, now_ms: int) -> None:
        super().receive_data(data, now_ms)
        if self.state != AWAIT_CONNACK:
            self._deadline_ms = None  # any byte shows that the server lives

    def _request(self, packet: Subscribe | Unsubscribe, answer_type: int) -> int:
        self._check_may_send(packet.TYPE)
        packet.packet_identifier = self._send_window.reserve()
        try:
            self._send(packet)
        except Exception:
            self._send_window.release(packet.packet_identifier)
            raise
        self._requests[packet.packet_identifier] = (answer_type, len(packet.filters))
        return packet.packet_identifier

    def _handle(self, packet) -> Packet | None:
        kind = packet.TYPE
        if kind == PUBACK:
            return self._handle_puback(packet)
        if kind == PUBLISH:
            if packet.qos > QOS_MAX:
                raise RemoteProtocolError(PROTOCOL_ERROR, f"QoS {packet.qos}, which no subscription asked for")
            return self._handle_publish(packet)
        if kind == PINGRESP:
            return None
        if kind == CONNACK:
            self._handle_connack(packet)
        elif kind == DISCONNECT:
            if SESSION_EXPIRY_INTERVAL in packet.properties:
                text = "a server's DISCONNECT has a session expiry [MQTT-3.14.2-2]"
                raise RemoteProtocolError(PROTOCOL_ERROR, text)
            self._close_because(packet)
        else:
            self._handle_answer(packet)
        return packet

    def _handle_connack(self, packet: Connack) -> None:
        self._deadline_ms = None
        if packet.reason_code != SUCCESS:
            self._close_because(packet)
            return
        granted = packet.properties
        self.client_id = granted.get(ASSIGNED_CLIENT_IDENTIFIER, self.client_id)
        if not self.client_id:
            raise RemoteProtocolError(PROTOCOL_ERROR, "a CONNACK assigns no client identifier [MQTT-3.2.2-16]")
        if packet.session_present and self.clean_start:
            raise RemoteProtocolError(PROTOCOL_ERROR, "a session is present after a clean start [MQTT-3.2.2-2]")
        if AUTHENTICATION_METHOD in granted:
            raise RemoteProtocolError(PROTOCOL_ERROR, "authentication that nobody asked for [MQTT-4.12.0-6]")
        self.keep_alive_s = granted.get(SERVER_KEEP_ALIVE, self.keep_alive_s)  # [MQTT-3.2.2-21]
        self.session_expiry_s = granted.get(SESSION_EXPIRY_INTERVAL, self.session_expiry_s)
        self.maximum_packet_size_peer = granted.get(MAXIMUM_PACKET_SIZE, PACKET_SIZE_MAX)
        self._peer_maximum_qos = min(granted.get(MAXIMUM_QOS, QOS_MAX), QOS_MAX)
        self._peer_takes_retain = granted.get(RETAIN_AVAILABLE, 1) == 1
        self._send_window = SendWindow(granted.get(RECEIVE_MAXIMUM, RECEIVE_MAXIMUM_DEFAULT))

    def _handle_answer(self, packet: Suback | Unsuback) -> None:
        expected = self._requests.pop(packet.packet_identifier, None)
        if expected != (packet.TYPE, len(packet.reason_codes)):
            name = type(packet).__name__.upper()
            text = f"{name} {packet.packet_identifier} answers no request of ours [MQTT-3.8.4-6, MQTT-3.11.3-2]"
            raise RemoteProtocolError(PROTOCOL_ERROR, text)
        self._send_window.release(packet.packet_identifier)

    def _close_because(self, packet: Connack | Disconnect) -> None:
        text = packet.properties.get(REASON_STRING) or describe(packet.reason_code)
        self._close(packet.reason_code, f"the server says: {text}")

    def _fail(self, error: RemoteProtocolError) -> None:
        text = str(error)[:REASON_STRING_MAX]
        if self.state in (AWAIT_CONNACK, CONNECTED) and not self._send_if_it_fits(
            Disconnect(error.reason_code, {REASON_STRING: text})
        ):
            self._send_if_it_fits(Disconnect(error.reason_code))
        self._close(error.reason_code, text)
