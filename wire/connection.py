"""What both ends of an MQTT connection share. No IO and no clock: bytes and times come in, bytes and events go out.

A connection is in one of four states. Which packet may come when is one table a direction, the same table for both
ends: what a client may send is what a server may receive. A pair that is absent is a protocol error: the peer's
(RemoteProtocolError, answered and closed) or our own (LocalProtocolError, nothing happens).

    AWAIT_CONNECT --CONNECT--> AWAIT_CONNACK --CONNACK--> CONNECTED --DISCONNECT or an error--> CLOSED
"""

from wire.errors import LocalProtocolError, PacketTooLargeError, RemoteProtocolError
from wire.packet_types import (
    CONNACK,
    CONNECT,
    DISCONNECT,
    PINGREQ,
    PINGRESP,
    PUBACK,
    PUBLISH,
    SUBACK,
    SUBSCRIBE,
    UNSUBACK,
    UNSUBSCRIBE,
)
from wire.packets import PACKET_SIZE_MAX, Decoder, Packet, Puback, Publish
from wire.properties import TOPIC_ALIAS
from wire.reasons import (
    PROTOCOL_ERROR,
    SUCCESS,
    TOPIC_ALIAS_INVALID,
    describe,
)
from wire.topics import check_topic_name
from wire.windows import ReceiveWindow, SendWindow

AWAIT_CONNECT, AWAIT_CONNACK, CONNECTED, CLOSED = range(4)

# {state: {packet type: next state}}
FROM_CLIENT: dict = {
    AWAIT_CONNECT: {CONNECT: AWAIT_CONNACK},
    AWAIT_CONNACK: {DISCONNECT: CLOSED},
    CONNECTED: {
        PUBLISH: CONNECTED,
        PUBACK: CONNECTED,
        SUBSCRIBE: CONNECTED,
        UNSUBSCRIBE: CONNECTED,
        PINGREQ: CONNECTED,
        DISCONNECT: CLOSED,
    },
    CLOSED: {},
}
FROM_SERVER: dict = {
    AWAIT_CONNECT: {},
    AWAIT_CONNACK: {CONNACK: CONNECTED},
    CONNECTED: {
        PUBLISH: CONNECTED,
        PUBACK: CONNECTED,
        SUBACK: CONNECTED,
        UNSUBACK: CONNECTED,
        PINGRESP: CONNECTED,
        DISCONNECT: CLOSED,
    },
    CLOSED: {},
}

RECEIVE_MAXIMUM_DEFAULT = 65_535  # what the standard takes where nothing is said
QOS_MAX = 1  # these connections carry QoS 0 and 1
REASON_STRING_MAX = 256  # characters: enough to say what and where, whatever the peer put into a topic


class Closed:
    """The last event: write `data_to_send()`, then close the transport. `text` says why."""

    def __init__(self, reason_code: int, text: str) -> None:
        self.reason_code = reason_code
        self.text = text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Closed) and self.reason_code == other.reason_code and self.text == other.text

    def __repr__(self) -> str:
        return f"Closed({describe(self.reason_code)}: {self.text})"


class Connection:
    """Base of ClientConnection and ServerConnection, which say what each packet means to them.

    Args:
        sent, received: the tables of what we and what the peer may send.
        receive_maximum: QoS 1 messages we let the peer have unacknowledged.
        maximum_packet_size: bytes of the largest packet we take.
    """

    def __init__(self, sent: dict, received: dict, receive_maximum: int, maximum_packet_size: int) -> None:
        self.state = AWAIT_CONNECT
        self.maximum_packet_size_peer = PACKET_SIZE_MAX
        self.receive_maximum = receive_maximum
        self.maximum_packet_size = maximum_packet_size
        self._may_send = sent
        self._may_receive = received
        self._decoder = Decoder(maximum_packet_size)
        self._out: list = []
        self._closed: Closed | None = None
        self._now_ms = 0
        self._last_sent_ms = 0
        self._last_received_ms = 0
        self._send_window = SendWindow(0)
        self._receive_window = ReceiveWindow(receive_maximum)
        self._peer_maximum_qos = QOS_MAX
        self._peer_takes_retain = True

    @property
    def connected(self) -> bool:
        """Between a CONNACK of success and the end."""
        return self.state == CONNECTED

    @property
    def send_quota(self) -> int:
        """QoS 1 messages that may be sent now; 0 unless connected."""
        return self._send_window.quota if self.state == CONNECTED else 0

    def receive_data(self, data: bytes | bytearray | memoryview, now_ms: int) -> None:
        """Takes bytes from the transport. Never raises for what is in them: `next_event` tells."""
        self._now_ms = now_ms
        if self.state != CLOSED:
            self._decoder.feed(data)
            self._last_received_ms = now_ms

    def next_event(self) -> Packet | Closed | None:
        """The next packet for the application, None until more bytes come, or Closed, once and last."""
        while self.state != CLOSED and self._ready_to_read():
            try:
                packet = self._decoder.next_packet()
                if packet is None:
                    return None
                next_state = self._next_state(packet)
                event = self._handle(packet)
            except RemoteProtocolError as error:
                self._fail(error)
                break
            if self.state != CLOSED:
                self.state = next_state
            if event is not None:
                return event
        closed = self._closed
        self._closed = None
        return closed

    def data_to_send(self) -> bytes:
        """All bytes that wait for the transport; b"" when none do."""
        if not self._out:
            return b""
        data = b"".join(self._out)
        self._out = []
        return data

    def publish(
        self,
        topic: str,
        payload: bytes,
        *,
        qos: int = 1,
        retain: bool = False,
        dup: bool = False,
        properties: dict | None = None,
        packet_identifier: int | None = None,
    ) -> int | None:
        """Sends a message; returns its packet identifier, None at QoS 0.

        Raises LocalProtocolError when not connected, when the window is full, when the packet identifier is in
        use, or for what the peer said it does not take; WireError for a bad topic.
        """
        check_topic_name(topic)
        if qos > self._peer_maximum_qos:
            raise LocalProtocolError(f"QoS {qos}; {self._peer_maximum_qos} is the most here [MQTT-3.2.2-11]")
        if retain and not self._peer_takes_retain:
            raise LocalProtocolError("the peer takes no retained messages [MQTT-3.2.2-14]")
        self._check_may_send(PUBLISH)
        acquired = None
        if qos:
            acquired = packet_identifier = self._send_window.acquire(packet_identifier)
        try:
            self._send(Publish(topic, payload, qos, retain, dup, packet_identifier, properties))
        except LocalProtocolError:
            if acquired is not None:
                self._send_window.release(acquired)
            raise
        return packet_identifier

    def puback(self, packet_identifier: int, reason_code: int = SUCCESS) -> None:
        """Acknowledges a QoS 1 message. Raises LocalProtocolError unless one with this identifier waits."""
        self._check_may_send(PUBACK)
        self._receive_window.close(packet_identifier)
        self._send_if_it_fits(Puback(packet_identifier, reason_code))

    # For the two ends.

    def _ready_to_read(self) -> bool:
        return True

    def _handle(self, packet: Packet) -> Packet | None:
        """Acts on a packet that the table allows, in the state in which it came; returns it for the application."""
        raise NotImplementedError

    def _fail(self, error: RemoteProtocolError) -> None:
        """Answers a protocol violation of the peer and closes."""
        raise NotImplementedError

    def _handle_publish(self, packet: Publish) -> Publish:
        if TOPIC_ALIAS in packet.properties:
            raise RemoteProtocolError(TOPIC_ALIAS_INVALID, "a topic alias, but none was offered [MQTT-3.3.2-9]")
        if packet.packet_identifier is not None:
            self._receive_window.open(packet.packet_identifier)
        return packet

    def _handle_puback(self, packet: Puback) -> Puback | None:
        # One that nothing waits for frees nothing: clients acknowledge late, after a session went on elsewhere.
        return packet if self._send_window.release(packet.packet_identifier) else None

    def _next_state(self, packet: Packet) -> int:
        state = self._may_receive[self.state].get(packet.TYPE)
        if state is None:
            raise RemoteProtocolError(PROTOCOL_ERROR, f"a {type(packet).__name__.upper()} may not come now")
        return state

    def _check_may_send(self, packet_type: int) -> int:
        state = self._may_send[self.state].get(packet_type)
        if state is None:
            raise LocalProtocolError(f"packet type {packet_type} may not be sent in state {self.state}")
        return state

    def _send(self, packet: Packet) -> None:
        state = self._check_may_send(packet.TYPE)
        encoded = packet.encode()
        if len(encoded) > self.maximum_packet_size_peer:
            text = f"{len(encoded)} bytes; the peer takes {self.maximum_packet_size_peer} [MQTT-3.1.2-24]"
            raise PacketTooLargeError(text)
        self._out.append(encoded)
        self.state = state
        self._last_sent_ms = self._now_ms

    def _send_if_it_fits(self, packet: Packet) -> bool:
        """For answers: one that the peer says it does not take is as good as sent [MQTT-3.1.2-25]."""
        try:
            self._send(packet)
        except PacketTooLargeError:
            return False
        return True

    def _close(self, reason_code: int, text: str) -> None:
        self.state = CLOSED
        self._closed = Closed(reason_code, text[:REASON_STRING_MAX])
