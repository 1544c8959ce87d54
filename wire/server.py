"""The server's end of an MQTT 5 connection: the gateway towards devices and subscribers."""

from wire.connection import (
    AWAIT_CONNACK,
    AWAIT_CONNECT,
    CONNECTED,
    FROM_CLIENT,
    FROM_SERVER,
    QOS_MAX,
    REASON_STRING_MAX,
    RECEIVE_MAXIMUM_DEFAULT,
    Connection,
)
from wire.errors import LocalProtocolError, RemoteProtocolError, UnsupportedVersionError
from wire.packet_types import CONNECT, DISCONNECT, PINGREQ, PUBACK, PUBLISH, SUBSCRIBE, UNSUBSCRIBE
from wire.packets import (
    PACKET_SIZE_MAX,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingresp,
    Publish,
    Suback,
    Subscribe,
    Unsuback,
    Unsubscribe,
)
from wire.properties import (
    AUTHENTICATION_METHOD,
    MAXIMUM_PACKET_SIZE,
    MAXIMUM_QOS,
    REASON_STRING,
    RECEIVE_MAXIMUM,
    RETAIN_AVAILABLE,
    SERVER_KEEP_ALIVE,
    SESSION_EXPIRY_INTERVAL,
    SHARED_SUBSCRIPTION_AVAILABLE,
    SUBSCRIPTION_IDENTIFIER,
    SUBSCRIPTION_IDENTIFIERS_AVAILABLE,
    WILDCARD_SUBSCRIPTION_AVAILABLE,
)
from wire.reasons import (
    BAD_AUTHENTICATION_METHOD,
    KEEP_ALIVE_TIMEOUT,
    PACKET_TOO_LARGE,
    PROTOCOL_ERROR,
    QOS_NOT_SUPPORTED,
    RETAIN_NOT_SUPPORTED,
    SHARED_SUBSCRIPTIONS_NOT_SUPPORTED,
    SUBSCRIPTION_IDENTIFIERS_NOT_SUPPORTED,
    SUCCESS,
    UNSPECIFIED_ERROR,
    WILDCARD_SUBSCRIPTIONS_NOT_SUPPORTED,
    describe,
)
from wire.windows import SendWindow

CONNACK_3_1_1_BAD_VERSION = b"\x20\x02\x00\x01"  # in the form that MQTT 3.1 and 3.1.1 clients read


class ServerConnection(Connection):
    """One client's network connection.

    Events: Connect (answer it with `accept` or `refuse`; what the client sends meanwhile waits), Publish, Puback,
    Subscribe, Unsubscribe, Disconnect, Closed. The first timer is due at once: it tells the connection the time
    from which `connect_timeout_ms` counts.
    """

    def __init__(
        self,
        *,
        receive_maximum: int = RECEIVE_MAXIMUM_DEFAULT,
        maximum_packet_size: int = PACKET_SIZE_MAX,
        connect_timeout_ms: int = 10_000,
    ) -> None:
        super().__init__(FROM_SERVER, FROM_CLIENT, receive_maximum, maximum_packet_size)
        self.connect_packet: Connect | None = None
        self.keep_alive_s = 0
        self._connect_timeout_ms = connect_timeout_ms
        self._connect_deadline_ms: int | None = None
        self._announced: dict = {}
        self._requests: dict = {}  # packet identifier: (type of the request, number of filters)

    def accept(self, session_present: bool, properties: dict | None = None) -> None:
        """Answers the CONNECT with success. What `properties` announces is enforced from now on.

        Announced without being asked: Maximum QoS 1, our Receive Maximum and Maximum Packet Size. A will that goes
        beyond what is announced is refused instead, and Closed follows [MQTT-3.2.2-12, MQTT-3.2.2-13]; the same
        where the client's Maximum Packet Size leaves no room for a CONNACK.
        """
        connect = self._connect_to_answer()
        announced = {MAXIMUM_QOS: QOS_MAX}
        if self.receive_maximum != RECEIVE_MAXIMUM_DEFAULT:
            announced[RECEIVE_MAXIMUM] = self.receive_maximum
        if self.maximum_packet_size < PACKET_SIZE_MAX:
            announced[MAXIMUM_PACKET_SIZE] = self.maximum_packet_size
        announced.update(properties or {})
        if connect.will is not None:
            if connect.will.qos > announced[MAXIMUM_QOS]:
                self._refuse(QOS_NOT_SUPPORTED, f"a will of QoS {connect.will.qos}")
                return
            if connect.will.retain and not announced.get(RETAIN_AVAILABLE, 1):
                self._refuse(RETAIN_NOT_SUPPORTED, "a retained will")
                return
        if not self._send_if_it_fits(Connack(session_present, SUCCESS, announced)):
            self._refuse(PACKET_TOO_LARGE, f"no CONNACK fits {self.maximum_packet_size_peer} bytes")
            return
        self._announced = announced
        self.keep_alive_s = announced.get(SERVER_KEEP_ALIVE, connect.keep_alive_s)

    def refuse(self, reason_code: int, reason_string: str = "") -> None:
        """Answers the CONNECT with a reason code of 0x80 or more, and closes."""
        self._connect_to_answer()
        self._refuse(reason_code, reason_string or describe(reason_code))

    def suback(self, packet_identifier: int, reason_codes: list) -> None:
        """Answers a SUBSCRIBE, one reason code a filter [MQTT-3.8.4-6]."""
        self._answer(Suback(packet_identifier, reason_codes), SUBSCRIBE)

    def unsuback(self, packet_identifier: int, reason_codes: list) -> None:
        """Answers an UNSUBSCRIBE, one reason code a filter [MQTT-3.11.3-2]."""
        self._answer(Unsuback(packet_identifier, reason_codes), UNSUBSCRIBE)

    def disconnect(self, reason_code: int, reason_string: str = "") -> None:
        """Sends a DISCONNECT and closes."""
        self._check_may_send(DISCONNECT)
        text = reason_string[:REASON_STRING_MAX] or describe(reason_code)
        if not self._send_if_it_fits(Disconnect(reason_code, {REASON_STRING: text})):
            self._send_if_it_fits(Disconnect(reason_code))  # [MQTT-3.14.2-3]
        self._close(reason_code, text)

    def next_timer_ms(self) -> int | None:
        """When `handle_timer` wants to be called, in the time of `now_ms`; None: not before something happens."""
        if self.state == AWAIT_CONNECT:
            return self._connect_deadline_ms or 0
        if self.state == CONNECTED and self.keep_alive_s:
            return self._last_received_ms + 1500 * self.keep_alive_s
        return None

    def handle_timer(self, now_ms: int) -> None:
        """Closes on a client that sends no CONNECT, or nothing for 1.5 times its keep alive [MQTT-3.1.2-22]."""
        self._now_ms = now_ms
        timer_ms = self.next_timer_ms()
        if self.state == AWAIT_CONNECT and self._connect_deadline_ms is None:
            self._connect_deadline_ms = now_ms + self._connect_timeout_ms
        elif timer_ms is None or now_ms < timer_ms:
            return
        elif self.state == AWAIT_CONNECT:
            self._close(UNSPECIFIED_ERROR, f"no CONNECT in {self._connect_timeout_ms} ms")
        else:
            self.disconnect(KEEP_ALIVE_TIMEOUT, f"nothing came for {self.keep_alive_s * 1.5} s")

    def _connect_to_answer(self) -> Connect:
        if self.state != AWAIT_CONNACK or self.connect_packet is None:
            raise LocalProtocolError("there is no CONNECT to answer")
        return self.connect_packet

    def _answer(self, packet: Suback | Unsuback, request_type: int) -> None:
        self._check_may_send(packet.TYPE)
        if self._requests.get(packet.packet_identifier) != (request_type, len(packet.reason_codes)):
            text = f"no request {packet.packet_identifier} with {len(packet.reason_codes)} filters waits"
            raise LocalProtocolError(text)
        del self._requests[packet.packet_identifier]
        self._send_if_it_fits(packet)

    def _ready_to_read(self) -> bool:
        return self.state != AWAIT_CONNACK

    def _handle(self, packet) -> Packet | None:
        kind = packet.TYPE
        if kind == PUBLISH:
            return self._handle_publish(packet)
        if kind == PUBACK:
            return self._handle_puback(packet)
        if kind == PINGREQ:
            self._send_if_it_fits(Pingresp())  # [MQTT-3.12.4-1]
            return None
        if kind == CONNECT:
            self._handle_connect(packet)
        elif kind == DISCONNECT:
            self._handle_disconnect(packet)
        else:
            self._handle_request(packet)
        return packet

    def _handle_connect(self, packet: Connect) -> None:
        if AUTHENTICATION_METHOD in packet.properties:
            text = "no enhanced authentication is offered [MQTT-4.12.0-1]"
            raise RemoteProtocolError(BAD_AUTHENTICATION_METHOD, text)
        self.connect_packet = packet
        self.keep_alive_s = packet.keep_alive_s
        self.maximum_packet_size_peer = packet.properties.get(MAXIMUM_PACKET_SIZE, PACKET_SIZE_MAX)
        self._send_window = SendWindow(packet.properties.get(RECEIVE_MAXIMUM, RECEIVE_MAXIMUM_DEFAULT))

    def _handle_publish(self, packet: Publish) -> Publish:
        if packet.qos > self._announced[MAXIMUM_QOS]:
            raise RemoteProtocolError(QOS_NOT_SUPPORTED, f"QoS {packet.qos} [MQTT-3.2.2-11]")
        if packet.retain and not self._announced.get(RETAIN_AVAILABLE, 1):
            raise RemoteProtocolError(RETAIN_NOT_SUPPORTED, "a retained message [MQTT-3.2.2-14]")
        if SUBSCRIPTION_IDENTIFIER in packet.properties:
            text = "a client's PUBLISH has a subscription identifier [MQTT-3.3.4-6]"
            raise RemoteProtocolError(PROTOCOL_ERROR, text)
        return super()._handle_publish(packet)

    def _handle_request(self, packet: Subscribe | Unsubscribe) -> None:
        if packet.packet_identifier in self._requests:
            text = f"packet identifier {packet.packet_identifier} is in use [MQTT-2.2.1-3]"
            raise RemoteProtocolError(PROTOCOL_ERROR, text)
        if packet.TYPE == SUBSCRIBE:
            self._check_subscribe(packet)
        self._requests[packet.packet_identifier] = (packet.TYPE, len(packet.filters))

    def _check_subscribe(self, packet) -> None:
        offers = self._announced
        if SUBSCRIPTION_IDENTIFIER in packet.properties and not offers.get(SUBSCRIPTION_IDENTIFIERS_AVAILABLE, 1):
            raise RemoteProtocolError(SUBSCRIPTION_IDENTIFIERS_NOT_SUPPORTED, "a subscription identifier")
        for topic_filter, _ in packet.filters:
            if topic_filter.startswith("$share/") and not offers.get(SHARED_SUBSCRIPTION_AVAILABLE, 1):
                raise RemoteProtocolError(SHARED_SUBSCRIPTIONS_NOT_SUPPORTED, f"{topic_filter!r}")
            if ("+" in topic_filter or "#" in topic_filter) and not offers.get(WILDCARD_SUBSCRIPTION_AVAILABLE, 1):
                raise RemoteProtocolError(WILDCARD_SUBSCRIPTIONS_NOT_SUPPORTED, f"{topic_filter!r}")

    def _handle_disconnect(self, packet: Disconnect) -> None:
        connect_properties = self.connect_packet.properties if self.connect_packet else {}
        if packet.properties.get(SESSION_EXPIRY_INTERVAL) and not connect_properties.get(SESSION_EXPIRY_INTERVAL):
            text = "a DISCONNECT gives a session an expiry that its CONNECT did not [section 3.14.2.2.2]"
            raise RemoteProtocolError(PROTOCOL_ERROR, text)
        text = packet.properties.get(REASON_STRING) or describe(packet.reason_code)
        self._close(packet.reason_code, f"the client says: {text}")

    def _fail(self, error: RemoteProtocolError) -> None:
        if self.state == CONNECTED:
            self.disconnect(error.reason_code, str(error))
            return
        self.state = AWAIT_CONNACK
        if isinstance(error, UnsupportedVersionError) and error.level in (3, 4):
            self._out.append(CONNACK_3_1_1_BAD_VERSION)
            self._close(error.reason_code, str(error))
        else:
            self._refuse(error.reason_code, str(error))

    def _refuse(self, reason_code: int, text: str) -> None:
        text = text[:REASON_STRING_MAX]
        if not self._send_if_it_fits(Connack(False, reason_code, {REASON_STRING: text})):
            self._send_if_it_fits(Connack(False, reason_code))
        self._close(reason_code, text)
