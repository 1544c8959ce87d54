"""The base class of both ends of an MQTT connection. It does no IO and has no clock: the caller passes bytes and times
in, and takes bytes and events out.

The tables in `wire.connection.states` list the packets that each side may send in each state. Any other packet is a
protocol error. If the peer sends one, the connection answers it and closes (RemoteProtocolError). If the application
asks for one, nothing is sent (LocalProtocolError).

The connection acknowledges a message only when the application calls for it, after it has stored the message. Each
packet of a message's flow is an event, and the application answers it with a call:

    in,  QoS 1: Publish → puback            out, QoS 1: publish → Puback
    in,  QoS 2: Publish → pubrec            out, QoS 2: publish → Pubrec → pubrel → Pubcomp
                Pubrel  → pubcomp

The connection answers three packets without the application: a repeated QoS 2 PUBLISH after our PUBREC, a repeated
PUBREC after our PUBREL, and a PUBREC or PUBREL with a packet identifier that is not in use. These answers acknowledge
nothing new.
"""

from wire.codec import MQTT_3_1_1, MQTT_5, Packet
from wire.codec.acknowledge import Puback, Pubcomp, Pubrec, Pubrel
from wire.codec.decoder import PACKET_SIZE_MAX, PacketDecoder
from wire.codec.publish import Publish
from wire.connection.states import (
    AWAIT_CONNECT,
    AWAIT_PUBACK,
    AWAIT_PUBCOMP,
    AWAIT_PUBREC,
    AWAIT_PUBREL,
    CLOSED,
    CONNECTED,
    DONE,
)
from wire.connection.windows import ReceiveWindow, SendWindow
from wire.errors import Closed, LocalProtocolError, PacketTooLargeError, RemoteProtocolError
from wire.packet_types import PUBCOMP, PUBLISH, PUBREC, PUBREL
from wire.properties import MAXIMUM_PACKET_SIZE, REASON_STRING, RECEIVE_MAXIMUM, TOPIC_ALIAS, TOPIC_ALIAS_MAXIMUM
from wire.reasons import PACKET_IDENTIFIER_NOT_FOUND, PROTOCOL_ERROR, SUCCESS, TOPIC_ALIAS_INVALID, UNSPECIFIED_ERROR
from wire.topics import check_topic_name

RECEIVE_MAXIMUM_DEFAULT = 65_535  # the standard's value if a peer announces none
QOS_MAX = 2
REASON_STRING_MAX = 256  # characters; a Reason String may quote a long topic of the peer, so it is cut


class Connection:
    """Base class of ClientConnection and ServerConnection, which handle the packets of their side.

    `_may_send` and `_may_receive` are the tables of the packets that this side and the peer may send.

    Args:
        readers: the decoding function of each packet type that the peer may send.
        receive_maximum: the most QoS 1 and 2 messages of the peer that may be unacknowledged; MQTT 3.1.1 has no limit.
        maximum_packet_size: bytes of the largest packet that this side accepts.
        topic_alias_maximum: the most topic aliases that the peer may use.
    """

    _may_send: dict
    _may_receive: dict

    # What most connections never change stands here: an object of more than 29 attributes takes 1.3 kB more in CPython.
    _closed: Closed | None = None
    maximum_qos_peer = QOS_MAX
    _peer_takes_retain = True
    _peer_takes_reasons = True
    _aliases: tuple = ()  # (incoming, outgoing); empty until either is used

    def __init__(
        self,
        readers: dict,
        receive_maximum: int,
        maximum_packet_size: int,
        topic_alias_maximum: int,
    ) -> None:
        self.state = AWAIT_CONNECT
        self.protocol_level = MQTT_5
        self.maximum_packet_size_peer = PACKET_SIZE_MAX
        self.receive_maximum = receive_maximum
        self.maximum_packet_size = maximum_packet_size
        self.topic_alias_maximum = topic_alias_maximum
        self._decoder = PacketDecoder(readers, maximum_packet_size)
        self._out: list = []
        self._now_ms = 0
        self._last_sent_ms = 0
        self._last_received_ms = 0
        self._send_window = SendWindow(0)
        self._receive_window = ReceiveWindow(receive_maximum)

    @property
    def connected(self) -> bool:
        """Whether a CONNACK with success was sent or received, and the connection is not closed yet."""
        return self.state == CONNECTED

    @property
    def send_quota(self) -> int:
        """How many more QoS 1 and 2 messages may be sent now; 0 unless connected."""
        return self._send_window.quota if self.state == CONNECTED else 0

    @property
    def takes_retain(self) -> bool:
        """Whether the peer takes retained messages."""
        return self._peer_takes_retain

    def is_in_use(self, packet_identifier: int) -> bool:
        """Returns whether an unacknowledged message or request of our side has this packet identifier."""
        return packet_identifier in self._send_window

    def receive_data(self, data: bytes | bytearray | memoryview, now_ms: int) -> None:
        """Takes bytes from the transport. It never raises, whatever they are; `next_event` reports errors."""
        self._now_ms = now_ms
        if self.state != CLOSED:
            self._decoder.feed(data)
            self._last_received_ms = now_ms

    def next_event(self):
        """Returns the next packet for the application, None until more bytes come, or Closed as the last event."""
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
        """Returns all bytes that wait to be written to the transport; b"" if there are none."""
        out = self._out
        if not out:
            return b""
        self._out = []
        return out[0] if len(out) == 1 else b"".join(out)  # usually there is one piece, which is not copied

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

        In a resumed session, publish the unacknowledged messages again with `dup` and their packet identifiers, in
        their first order and before any new message [MQTT-4.4.0-1, MQTT-4.6.0-1]. MQTT 3.1.1 carries no `properties`.

        Raises LocalProtocolError if the connection is not connected, the window is full, the packet identifier is in
        use, or the peer has announced that it does not accept such a message; WireError for a bad topic; MemoryError.
        After an error, nothing was sent.
        """
        check_topic_name(topic)
        if qos > self.maximum_qos_peer:
            raise LocalProtocolError(f"QoS {qos}; {self.maximum_qos_peer} is the most here [MQTT-3.2.2-11]")
        if retain and not self._peer_takes_retain:
            raise LocalProtocolError("the peer takes no retained messages [MQTT-3.2.2-14]")
        if properties and TOPIC_ALIAS in properties:
            raise LocalProtocolError("the connection gives the topic aliases")
        self._check_may_send(PUBLISH)
        acquired = None
        if qos and not (dup and self._may_resend(packet_identifier, qos)):
            acquired = packet_identifier = self._send_window.acquire(packet_identifier, qos)
        try:
            packet = Publish(topic, payload, qos, retain, dup, packet_identifier, properties)
            if self._aliases:
                self._aliases[1].send(packet, self._send)
            else:
                self._send(packet)
        except (LocalProtocolError, MemoryError):
            if acquired is not None:
                self._send_window.release(acquired)
            raise
        if acquired is not None:
            self._awaits(acquired)
        return packet_identifier

    def pubrel(self, packet_identifier: int) -> None:
        """Sends PUBREL for a QoS 2 message, once the application has stored its PUBREC.

        In a resumed session, release the messages of earlier connections first, in the order of their PUBRECs
        [MQTT-4.4.0-1, MQTT-4.6.0-4]. Raises LocalProtocolError if the message's PUBREC has not come.
        """
        self._check_may_send(PUBREL)
        self._send_window.free(packet_identifier)
        self._send_if_it_fits(Pubrel(packet_identifier))
        self._awaits(packet_identifier)

    def puback(self, packet_identifier: int, reason_code: int = SUCCESS, reason_string: str = "") -> None:
        """Acknowledges a QoS 1 message, or refuses it with a code of 0x80 or more.

        Raises LocalProtocolError if no message with this identifier waits, and for a refusal over MQTT 3.1.1: there a
        server can only accept the message or close the connection [3.1.1 MQTT-3.3.5-2].
        """
        self._acknowledge(Puback(packet_identifier, reason_code), reason_string)

    def pubrec(self, packet_identifier: int, reason_code: int = SUCCESS, reason_string: str = "") -> None:
        """Acknowledges a stored QoS 2 message, or refuses it; raises the same errors as `puback`."""
        self._acknowledge(Pubrec(packet_identifier, reason_code), reason_string)

    def pubcomp(self, packet_identifier: int) -> None:
        """Ends the flow of a released QoS 2 message; raises LocalProtocolError unless its PUBREL has come."""
        self._acknowledge(Pubcomp(packet_identifier), "")

    def resume(self, packet_identifiers: list) -> None:
        """Tells the connection which QoS 2 messages of earlier connections wait for their PUBREL.

        Call this after a CONNACK with Session Present and before the next `next_event`. The connection then answers a
        repeated PUBLISH of these messages with PUBREC, and it is no event [MQTT-4.3.3-10].
        """
        for packet_identifier in packet_identifiers:
            self._receive_window.resume(packet_identifier)

    # Methods for the two subclasses.

    def _ready_to_read(self) -> bool:
        return True

    def _handle(self, packet) -> Packet | None:
        """Handles a packet that the table allows in this state; returns an event for the application, or None."""
        raise NotImplementedError

    def _fail(self, error: RemoteProtocolError) -> None:
        """Answers a protocol violation of the peer, and closes the connection."""
        raise NotImplementedError

    def _awaits(self, packet_identifier: int) -> None:
        """Called when a packet was sent that the peer must acknowledge."""

    def _came(self, packet_identifier: int) -> None:
        """Called when that acknowledgement has come."""

    def _speak(self, level: int) -> None:
        self.protocol_level = self._decoder.level = level
        if level == MQTT_3_1_1:
            self._receive_window.limit = RECEIVE_MAXIMUM_DEFAULT

    def _learn_limits(self, properties: dict) -> None:
        """Takes over the limits that the peer announces in CONNECT or CONNACK."""
        self.maximum_packet_size_peer = properties.get(MAXIMUM_PACKET_SIZE, PACKET_SIZE_MAX)
        self._send_window.limit = properties.get(RECEIVE_MAXIMUM, RECEIVE_MAXIMUM_DEFAULT)
        aliases_peer = properties.get(TOPIC_ALIAS_MAXIMUM, 0)
        if aliases_peer:
            self._use_aliases(aliases_peer)

    def _use_aliases(self, maximum_peer: int) -> None:
        # Imported here, because most devices use no aliases and need not load the module.
        from wire.connection.topic_aliases import IncomingAliases, OutgoingAliases

        self._aliases = (IncomingAliases(self.topic_alias_maximum), OutgoingAliases(maximum_peer))

    def _handle_message(self, packet) -> Packet | None:
        kind = packet.TYPE
        if kind == PUBLISH:
            return self._handle_publish(packet)
        if kind == PUBREL:
            return self._handle_pubrel(packet)
        identifier = packet.packet_identifier
        refused = packet.reason_code >= UNSPECIFIED_ERROR and kind != PUBCOMP
        state = self._send_window.acknowledge(identifier, kind, refused)
        self._came(identifier)
        if kind == PUBREC and not refused:
            if state == DONE:
                self._send_if_it_fits(Pubrel(identifier, PACKET_IDENTIFIER_NOT_FOUND))
            elif state == AWAIT_PUBCOMP:
                self._send_if_it_fits(Pubrel(identifier))
                self._awaits(identifier)
            return packet if state == AWAIT_PUBREC else None
        # An unexpected acknowledgement is ignored: a client may acknowledge late, after its session was taken over.
        return None if state == DONE else packet

    def _handle_publish(self, packet: Publish) -> Publish | None:
        if TOPIC_ALIAS in packet.properties:
            self._resolve_alias(packet)
        identifier = packet.packet_identifier
        if identifier is None:
            return packet
        again = packet.dup and self.protocol_level == MQTT_3_1_1
        if self._receive_window.open(identifier, packet.qos, again):
            return packet
        if self._receive_window.state(identifier) == AWAIT_PUBREL:
            self._send_if_it_fits(Pubrec(identifier))
        return None

    def _resolve_alias(self, packet: Publish) -> None:
        if not self.topic_alias_maximum:
            raise RemoteProtocolError(TOPIC_ALIAS_INVALID, "a topic alias, but none was offered [MQTT-3.3.2-9]")
        if not self._aliases:
            self._use_aliases(0)
        self._aliases[0].resolve(packet)

    def _handle_pubrel(self, packet: Pubrel) -> Pubrel | None:
        state = self._receive_window.release(packet.packet_identifier)
        if state == DONE:
            self._send_if_it_fits(Pubcomp(packet.packet_identifier, PACKET_IDENTIFIER_NOT_FOUND))
        return packet if state == AWAIT_PUBREL else None

    def _acknowledge(self, packet, reason_string: str) -> None:
        self._check_may_send(packet.TYPE)
        refused = packet.reason_code >= UNSPECIFIED_ERROR
        if refused and self.protocol_level == MQTT_3_1_1:
            raise LocalProtocolError("MQTT 3.1.1 cannot refuse a message [3.1.1 MQTT-3.3.5-2]")
        self._receive_window.acknowledge(packet.packet_identifier, packet.TYPE, refused)
        if reason_string:
            packet.properties = {REASON_STRING: reason_string}
        self._send_answer(packet)

    def _may_resend(self, packet_identifier: int | None, qos: int) -> bool:
        """Returns whether the message may be resent over the same connection: only in MQTT 3.1.1 [MQTT-4.4.0-1]."""
        wanted = AWAIT_PUBACK if qos == 1 else AWAIT_PUBREC
        return self.protocol_level == MQTT_3_1_1 and self._send_window.state(packet_identifier) == wanted

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
        encoded = packet.encode(self.protocol_level)
        if len(encoded) > self.maximum_packet_size_peer:
            text = f"{len(encoded)} bytes; the peer takes {self.maximum_packet_size_peer} [MQTT-3.1.2-24]"
            raise PacketTooLargeError(text)
        self._out.append(encoded)
        self.state = state
        self._last_sent_ms = self._now_ms

    def _send_answer(self, packet) -> None:
        """Sends an answer, without its properties if the peer wants none or they are too long for it.

        See MQTT-3.1.2-29 and MQTT-3.4.2-2.
        """
        if packet.properties:
            if self._peer_takes_reasons and self._send_if_it_fits(packet):
                return
            packet.properties = {}
        self._send_if_it_fits(packet)

    def _send_if_it_fits(self, packet: Packet) -> bool:
        """Sends an answer and returns True; returns False if it exceeds the peer's Maximum Packet Size.

        The caller then goes on as if the answer had been sent [MQTT-3.1.2-25].
        """
        try:
            self._send(packet)
        except PacketTooLargeError:
            return False
        return True

    def _close(self, reason_code: int, text: str, server_reference: str = "") -> None:
        self.state = CLOSED
        self._closed = Closed(reason_code, text[:REASON_STRING_MAX], server_reference)
