"""The server's end of an MQTT connection. The gateway uses it for its clients: devices and subscribers."""

from wire.codec import MQTT_5, Packet
from wire.codec.connack import Connack
from wire.codec.connect import Connect
from wire.codec.control import Disconnect, Pingresp
from wire.codec.decoder import PACKET_SIZE_MAX
from wire.codec.publish import Publish
from wire.codec.requests import BRIDGE, MQTT_3_1, TO_SERVER
from wire.codec.suback import Suback, Unsuback
from wire.codec.subscribe import NO_LOCAL, RETAIN_AS_PUBLISHED, Subscribe, Unsubscribe, not_granted
from wire.connection import QOS_MAX, REASON_STRING_MAX, RECEIVE_MAXIMUM_DEFAULT, Connection
from wire.connection.server_authentication import ServerAuthentication
from wire.connection.states import AWAIT_CONNACK, AWAIT_CONNECT, CONNECTED, FROM_CLIENT, FROM_SERVER
from wire.errors import LocalProtocolError, RemoteProtocolError, WireError
from wire.packet_types import AUTH, CONNECT, DISCONNECT, PINGREQ, SUBSCRIBE, UNSUBSCRIBE
from wire.properties import (
    AUTHENTICATION_METHOD,
    MAXIMUM_PACKET_SIZE,
    MAXIMUM_QOS,
    REASON_STRING,
    RECEIVE_MAXIMUM,
    REQUEST_PROBLEM_INFORMATION,
    RETAIN_AVAILABLE,
    SERVER_KEEP_ALIVE,
    SESSION_EXPIRY_INTERVAL,
    SHARED_SUBSCRIPTION_AVAILABLE,
    SUBSCRIPTION_IDENTIFIER,
    SUBSCRIPTION_IDENTIFIERS_AVAILABLE,
    TOPIC_ALIAS_MAXIMUM,
    USER_PROPERTY,
    WILDCARD_SUBSCRIPTION_AVAILABLE,
)
from wire.reasons import (
    BAD_AUTHENTICATION_METHOD,
    CONTINUE_AUTHENTICATION,
    KEEP_ALIVE_TIMEOUT,
    PACKET_TOO_LARGE,
    PROTOCOL_ERROR,
    QOS_NOT_SUPPORTED,
    QUOTA_EXCEEDED,
    RETAIN_NOT_SUPPORTED,
    SHARED_SUBSCRIPTIONS_NOT_SUPPORTED,
    SUBSCRIPTION_IDENTIFIERS_NOT_SUPPORTED,
    SUCCESS,
    TOPIC_FILTER_INVALID,
    UNSPECIFIED_ERROR,
    WILDCARD_SUBSCRIPTIONS_NOT_SUPPORTED,
    describe,
)
from wire.topics import check_topic_filter

PROGRESS = 1024  # bytes; a client that sends so much of a large packet is alive, even if its line is slow
USER_PROPERTIES_MAX = 1_000  # in a PUBLISH, or in a CONNECT with its will; one takes 5 bytes of a packet, 160 in memory
CLIENT_REASONS = b"\x00\x04\x80\x81\x82\x83\x90\x93\x94\x95\x96\x97\x98\x99"  # in a DISCONNECT, section 3.14.2.1

NOT_SERVED = {
    SUBSCRIPTION_IDENTIFIERS_AVAILABLE: SUBSCRIPTION_IDENTIFIERS_NOT_SUPPORTED,
    SHARED_SUBSCRIPTION_AVAILABLE: SHARED_SUBSCRIPTIONS_NOT_SUPPORTED,
    WILDCARD_SUBSCRIPTION_AVAILABLE: WILDCARD_SUBSCRIPTIONS_NOT_SUPPORTED,
}
"""The reason code for a subscription that a CONNACK has ruled out, by the property that did."""
OFFERS = (MAXIMUM_QOS, RETAIN_AVAILABLE) + tuple(NOT_SERVED)
"""The properties of a CONNACK that say what the client may ask for."""
_NO_LIMITS: dict = {}  # of what most clients may ask for


class ServerConnection(Connection):
    """One client's network connection; the client's CONNECT decides on the version of MQTT.

    Events: Connect (answer it with `accept` or `refuse`; until then no later packet is read), Publish, Puback, Pubrec,
    Pubrel, Pubcomp, Subscribe, Unsubscribe, Auth, Disconnect, Closed. The first timer is due at once: its call gives
    the connection the time at which `connect_timeout_ms` begins.

    If a client makes a protocol error, the connection sends a DISCONNECT or CONNACK with the reason code and closes;
    MQTT 3.1.1 has no such DISCONNECT, so there it only closes.

    A client of MQTT 3.1 is served like one of 3.1.1, but gets only answers that MQTT 3.1 has: a CONNACK without Session
    Present, and a SUBACK without failures. A bridge of mosquitto always gets the options No Local and Retain As
    Published, because it relies on them and MQTT 3.1.1 cannot ask for them.

    Args:
        inflight_maximum: the most unacknowledged QoS 1 and 2 messages to a client that announces no Receive Maximum.
        authentication_methods: the methods of enhanced authentication that the application knows. A CONNECT with
            another method is refused. The application answers a CONNECT with one of these by `authenticate`, once or
            more, and then by `accept` or `refuse`.
    """

    _may_send = FROM_SERVER
    _may_receive = FROM_CLIENT

    _is_bridge = False
    _authentication: ServerAuthentication | None = None

    def __init__(
        self,
        *,
        receive_maximum: int = RECEIVE_MAXIMUM_DEFAULT,
        maximum_packet_size: int = PACKET_SIZE_MAX,
        topic_alias_maximum: int = 0,
        connect_timeout_ms: int = 10_000,
        inflight_maximum: int = RECEIVE_MAXIMUM_DEFAULT,
        authentication_methods: tuple = (),
    ) -> None:
        super().__init__(TO_SERVER, receive_maximum, maximum_packet_size, topic_alias_maximum)
        self.connect_packet: Connect | None = None
        self.keep_alive_s = 0
        self._progress = 0
        self._connect_timeout_ms = connect_timeout_ms
        self._connect_deadline_ms: int | None = None
        self._inflight_maximum = inflight_maximum
        self._is_3_1 = False
        self._authentication_methods = authentication_methods
        self._announced = _NO_LIMITS
        self._requests: dict = {}
        # packet identifier: (type of the request, whether each filter is well-formed, QoS of each filter in MQTT 3.1)

    def receive_data(self, data: bytes | bytearray | memoryview, now_ms: int) -> None:
        """Takes bytes from the transport. A whole packet restarts the keep alive [MQTT-3.1.2-22], as do 1,024 bytes."""
        heard_ms = self._last_received_ms
        super().receive_data(data, now_ms)
        self._last_received_ms = heard_ms
        self._note_progress(len(data))

    def may_accept(self, properties: dict | None = None) -> bool:
        """Returns whether a CONNACK with success and `properties` can answer the CONNECT; call it before `accept`.

        If not, the CONNECT is refused, and Closed follows. The reasons: the will has a QoS or a RETAIN flag that
        `properties` does not offer [MQTT-3.2.2-12, MQTT-3.2.2-13], or the client's Maximum Packet Size is smaller than
        the CONNACK.
        """
        connect = self._connect_to_answer()
        announced = self._announcement(properties or {})
        if connect.will is not None:
            if connect.will.qos > announced.get(MAXIMUM_QOS, QOS_MAX):
                self._refuse(QOS_NOT_SUPPORTED, f"a will of QoS {connect.will.qos}")
                return False
            if connect.will.retain and not announced.get(RETAIN_AVAILABLE, 1):
                self._refuse(RETAIN_NOT_SUPPORTED, "a retained will")
                return False
        if len(Connack(False, SUCCESS, announced).encode(self.protocol_level)) > self.maximum_packet_size_peer:
            self._refuse(PACKET_TOO_LARGE, f"no CONNACK fits {self.maximum_packet_size_peer} bytes")
            return False
        return True

    def accept(self, session_present: bool, properties: dict | None = None) -> None:
        """Answers the CONNECT with success. The limits in `properties` hold from now on, over MQTT 3.1.1 too.

        The connection itself adds its Receive Maximum, Maximum Packet Size, Topic Alias Maximum and the authentication
        method. If `may_accept` returns False, the CONNECT is refused instead.
        """
        connect = self._connect_to_answer()
        if session_present and connect.clean_start:
            raise LocalProtocolError("no session is present after a clean start [MQTT-3.2.2-2]")
        if not self.may_accept(properties):
            return
        announced = self._announcement(properties or {})
        self._send(Connack(session_present and not self._is_3_1, SUCCESS, announced))
        if limited := [key for key in OFFERS if key in announced]:
            self._announced = {key: announced[key] for key in limited}
        if self.protocol_level == MQTT_5:
            self.keep_alive_s = announced.get(SERVER_KEEP_ALIVE, connect.keep_alive_s)

    def refuse(self, reason_code: int, reason_string: str = "") -> None:
        """Answers the CONNECT with a reason code of 0x80 or more, and closes.

        Over MQTT 3.1.1 the CONNACK has the nearest return code; if there is none, no CONNACK is sent.
        """
        self._connect_to_answer()
        self._refuse(reason_code, reason_string or describe(reason_code))

    def authenticate(self, data: bytes | None = None, reason_code: int = CONTINUE_AUTHENTICATION) -> None:
        """Sends an AUTH: the answer to a Connect with an authentication method, or to an Auth.

        The first exchange does not end with an AUTH, but with `accept`, whose properties may hold AUTHENTICATION_DATA,
        or with `refuse`.

        Args:
            data: the Authentication Data, None for none.
            reason_code: 0x18 if the exchange goes on, 0x00 at the end of a re-authentication.
        """
        if self._authentication is None:
            raise LocalProtocolError("the CONNECT names no authentication method [MQTT-4.12.0-6]")
        self._send(self._authentication.ask(data, reason_code))
        self._connect_deadline_ms = self._now_ms + self._connect_timeout_ms

    def suback(
        self, packet_identifier: int, reason_codes: list, reason_string: str = "", user_properties: list | None = None
    ) -> None:
        """Answers a SUBSCRIBE with one reason code for each filter of the event [MQTT-3.8.4-6]."""
        properties = {USER_PROPERTY: user_properties} if user_properties else {}
        packet = Suback(packet_identifier, reason_codes, properties)
        self._answer(packet, SUBSCRIBE, reason_string[:REASON_STRING_MAX])

    def unsuback(self, packet_identifier: int, reason_codes: list) -> None:
        """Answers an UNSUBSCRIBE with one reason code for each filter of the event [MQTT-3.11.3-2]."""
        self._answer(Unsuback(packet_identifier, reason_codes), UNSUBSCRIBE)

    def disconnect(self, reason_code: int, reason_string: str = "") -> None:
        """Sends a DISCONNECT and closes; over MQTT 3.1.1, where a server sends no DISCONNECT, it only closes."""
        self._check_may_send(DISCONNECT)
        text = reason_string[:REASON_STRING_MAX] or describe(reason_code)
        if self.protocol_level == MQTT_5:
            self._send_reason(Disconnect(reason_code), text)
        self._close(reason_code, text)

    def next_timer_ms(self) -> int | None:
        """Returns when `handle_timer` must be called, in the time of `now_ms`; None: not before something happens."""
        if self.state in (AWAIT_CONNECT, AWAIT_CONNACK) and self._ready_to_read():
            return self._connect_deadline_ms or 0
        if self.state == CONNECTED and self.keep_alive_s:
            return self._last_received_ms + 1500 * self.keep_alive_s
        return None

    def handle_timer(self, now_ms: int) -> None:
        """Closes if CONNECT or AUTH is late, or no packet came for 1.5 times the keep alive [MQTT-3.1.2-22]."""
        self._now_ms = now_ms
        timer_ms = self.next_timer_ms()
        if self.state == AWAIT_CONNECT and self._connect_deadline_ms is None:
            self._connect_deadline_ms = now_ms + self._connect_timeout_ms
        elif timer_ms is None or now_ms < timer_ms:
            return
        elif self.state == CONNECTED:
            self.disconnect(KEEP_ALIVE_TIMEOUT, f"nothing came for {self.keep_alive_s * 1.5} s")
        else:
            what = "CONNECT" if self.state == AWAIT_CONNECT else "AUTH"
            self._close(UNSPECIFIED_ERROR, f"no {what} in {self._connect_timeout_ms} ms")

    def _announcement(self, properties: dict) -> dict:
        announced: dict = {}
        if self.receive_maximum != RECEIVE_MAXIMUM_DEFAULT:
            announced[RECEIVE_MAXIMUM] = self.receive_maximum
        if self.maximum_packet_size < PACKET_SIZE_MAX:
            announced[MAXIMUM_PACKET_SIZE] = self.maximum_packet_size
        if self.topic_alias_maximum:
            announced[TOPIC_ALIAS_MAXIMUM] = self.topic_alias_maximum
        if self._authentication is not None:
            announced[AUTHENTICATION_METHOD] = self._authentication.method
        announced.update(properties)
        return announced

    def _connect_to_answer(self) -> Connect:
        if self.state != AWAIT_CONNACK or self.connect_packet is None:
            raise LocalProtocolError("there is no CONNECT to answer")
        if self._ready_to_read():
            raise LocalProtocolError("the client has not answered our AUTH yet")
        return self.connect_packet

    def _answer(self, packet: Suback | Unsuback, request_type: int, reason_string: str = "") -> None:
        self._check_may_send(packet.TYPE)
        kind, well_formed, asked = self._requests.get(packet.packet_identifier, (0, [], []))
        if kind != request_type or len(packet.reason_codes) != sum(well_formed):
            text = f"no request {packet.packet_identifier} with {len(packet.reason_codes)} filters waits"
            raise LocalProtocolError(text)
        del self._requests[packet.packet_identifier]
        codes = iter(packet.reason_codes)
        packet.reason_codes = [next(codes) if good else TOPIC_FILTER_INVALID for good in well_formed]
        if asked:
            answers = zip(packet.reason_codes, asked)
            packet.reason_codes = [qos if code >= UNSPECIFIED_ERROR else code for code, qos in answers]
        if reason_string:
            packet.properties[REASON_STRING] = reason_string
        self._send_answer(packet)

    def _note_progress(self, size: int) -> None:
        """Counts received bytes; enough of them restart the keep alive, even without a whole packet."""
        self._progress += size
        if self._progress >= PROGRESS:
            self._note_packet()

    def _note_packet(self) -> None:
        self._last_received_ms = self._now_ms
        self._progress = 0

    def _ready_to_read(self) -> bool:
        is_authenticating = self._authentication is not None and self._authentication.is_waiting
        return self.state != AWAIT_CONNACK or is_authenticating

    def _handle(self, packet) -> Packet | None:
        self._note_packet()
        kind = packet.TYPE
        if kind == PINGREQ:
            self._send_if_it_fits(Pingresp())  # [MQTT-3.12.4-1]
            return None
        if kind == CONNECT:
            self._handle_connect(packet)
        elif kind == DISCONNECT:
            self._handle_disconnect(packet)
        elif kind == AUTH:
            if self._authentication is None:
                raise RemoteProtocolError(PROTOCOL_ERROR, "an AUTH, and the CONNECT names no method [MQTT-4.12.0-6]")
            self._authentication.hear(packet)
        elif kind in (SUBSCRIBE, UNSUBSCRIBE):
            return self._handle_request(packet)
        else:
            return self._handle_message(packet)
        return packet

    def _handle_connect(self, packet: Connect) -> None:
        self._speak(packet.protocol_level)
        if (count := _user_properties(packet)) > USER_PROPERTIES_MAX:
            raise RemoteProtocolError(QUOTA_EXCEEDED, f"{count} user properties; {USER_PROPERTIES_MAX} are the most")
        self._is_3_1 = self._decoder.ignores_flags = packet.level_byte & ~BRIDGE == MQTT_3_1
        if packet.level_byte & BRIDGE:
            self._is_bridge = True
        self._learn_limits(packet.properties)
        if RECEIVE_MAXIMUM not in packet.properties:
            self._send_window.limit = self._inflight_maximum
        method = packet.properties.get(AUTHENTICATION_METHOD)
        if method is not None and method not in self._authentication_methods:
            text = "this server does not offer the authentication method [MQTT-4.12.0-1]"
            raise RemoteProtocolError(BAD_AUTHENTICATION_METHOD, text)
        if method is not None:
            self._authentication = ServerAuthentication(method)
        if packet.properties.get(REQUEST_PROBLEM_INFORMATION, 1) != 1:
            self._peer_takes_reasons = False
        self.connect_packet = packet
        self.keep_alive_s = packet.keep_alive_s

    def _handle_publish(self, packet: Publish) -> Publish | None:
        if packet.qos > self._announced.get(MAXIMUM_QOS, QOS_MAX):
            raise RemoteProtocolError(QOS_NOT_SUPPORTED, f"QoS {packet.qos} [MQTT-3.2.2-11]")
        if packet.retain and not self._announced.get(RETAIN_AVAILABLE, 1):
            raise RemoteProtocolError(RETAIN_NOT_SUPPORTED, "a retained message [MQTT-3.2.2-14]")
        if SUBSCRIPTION_IDENTIFIER in packet.properties:
            text = "a client's PUBLISH has a subscription identifier [MQTT-3.3.4-6]"
            raise RemoteProtocolError(PROTOCOL_ERROR, text)
        return super()._handle_publish(packet)

    def _handle_request(self, packet: Subscribe | Unsubscribe) -> Packet | None:
        """Returns the request with its well-formed filters; the answer will refuse the other filters.

        A request without a well-formed filter is answered at once, and is no event.
        """
        if packet.packet_identifier in self._requests:
            text = f"packet identifier {packet.packet_identifier} is in use [MQTT-2.2.1-3]"
            raise RemoteProtocolError(PROTOCOL_ERROR, text)
        asked = []
        if isinstance(packet, Subscribe):
            ruled_out = not_granted(packet, self._announced)
            if ruled_out is not None:
                raise RemoteProtocolError(NOT_SERVED[ruled_out[0]], ruled_out[1])
            if self._is_3_1:
                asked = [options & 3 for _, options in packet.filters]
            if self._is_bridge:
                packet.filters = [(wanted, options | _bridge_options(wanted)) for wanted, options in packet.filters]
            well_formed = [_is_well_formed(topic_filter) for topic_filter, _ in packet.filters]
        else:
            well_formed = [_is_well_formed(topic_filter) for topic_filter in packet.filters]
        self._requests[packet.packet_identifier] = (packet.TYPE, well_formed, asked)
        if not all(well_formed):
            packet.filters = [wanted for wanted, good in zip(packet.filters, well_formed) if good]
        if packet.filters:
            return packet
        answer = Suback if packet.TYPE == SUBSCRIBE else Unsuback
        self._answer(answer(packet.packet_identifier, []), packet.TYPE, "no filter is well-formed [section 4.7]")
        return None

    def _handle_disconnect(self, packet: Disconnect) -> None:
        if packet.reason_code not in CLIENT_REASONS:
            text = f"a DISCONNECT with 0x{packet.reason_code:02x}, which only a server may send [section 3.14.2.1]"
            raise RemoteProtocolError(PROTOCOL_ERROR, text)
        connect_properties = self.connect_packet.properties if self.connect_packet else {}
        if packet.properties.get(SESSION_EXPIRY_INTERVAL) and not connect_properties.get(SESSION_EXPIRY_INTERVAL):
            text = "a DISCONNECT gives a session an expiry that its CONNECT did not [section 3.14.2.2.2]"
            raise RemoteProtocolError(PROTOCOL_ERROR, text)
        reason = packet.properties.get(REASON_STRING)
        if reason or packet.reason_code:
            self._close(packet.reason_code, f"the client says: {reason or describe(packet.reason_code)}")
        else:
            self._close(packet.reason_code, "the client disconnected")

    def _fail(self, error: RemoteProtocolError) -> None:
        if self.state == CONNECTED:
            # The decoder's error for a second CONNECT may have a reason code that only a CONNACK may carry.
            is_allowed = error.reason_code in Disconnect.ALLOWED
            self.disconnect(error.reason_code if is_allowed else PROTOCOL_ERROR, str(error))
            return
        if self.state == AWAIT_CONNECT:
            self.state = AWAIT_CONNACK
            self.protocol_level = error.protocol_level
        self._refuse(error.reason_code, str(error))

    def _refuse(self, reason_code: int, text: str) -> None:
        text = text[:REASON_STRING_MAX]
        try:
            self._send_reason(Connack(False, reason_code), text)
        except LocalProtocolError:
            pass  # MQTT 3.1.1 has no return code for this reason, so no CONNACK is sent [3.1.1 MQTT-3.2.2-6]
        self._close(reason_code, text)

    def _send_reason(self, packet: Connack | Disconnect, text: str) -> None:
        """Sends a CONNACK or DISCONNECT with a Reason String, which these two may always carry [MQTT-3.1.2-29]."""
        packet.properties = {REASON_STRING: text}
        if not self._send_if_it_fits(packet):
            packet.properties = {}
            self._send_if_it_fits(packet)  # [MQTT-3.14.2-3]


def _user_properties(packet: Connect) -> int:
    """Returns the number of user properties in a CONNECT and its will."""
    will = packet.will.properties if packet.will else {}
    return len(packet.properties.get(USER_PROPERTY, ())) + len(will.get(USER_PROPERTY, ()))


def _bridge_options(topic_filter: str) -> int:
    return RETAIN_AS_PUBLISHED if topic_filter.startswith("$share/") else RETAIN_AS_PUBLISHED | NO_LOCAL


def _is_well_formed(topic_filter: str) -> bool:
    try:
        check_topic_filter(topic_filter)
    except WireError:
        return False
    return True
