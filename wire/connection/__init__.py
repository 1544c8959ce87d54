"""What both ends of an MQTT connection share. No IO and no clock: bytes and times come in, bytes and events go out.

What may come when is in `wire.states`. What breaks the tables is a protocol error: the peer's (RemoteProtocolError,
answered and closed) or our own (LocalProtocolError, nothing happens).

Nothing is acknowledged that the application has not stored. For every message it is told each step and answers it
when its store has it:

    in,  QoS 1: Publish → puback            out, QoS 1: publish → Puback
    in,  QoS 2: Publish → pubrec            out, QoS 2: publish → Pubrec → pubrel → Pubcomp
                Pubrel  → pubcomp

Only what the application has confirmed already is confirmed again without it: a QoS 2 PUBLISH after our PUBREC, a
PUBREC after our PUBREL, and a PUBREC or PUBREL for an identifier that stands for nothing.
"""

from wire.codec.acknowledge import Puback, Pubcomp, Pubrec, Pubrel
from wire.codec.decoder import PACKET_SIZE_MAX, PacketDecoder
from wire.codec.packet import MQTT_3_1_1, MQTT_5, Packet
from wire.codec.publish import Publish
from wire.errors import Closed, LocalProtocolError, PacketTooLargeError, RemoteProtocolError
from wire.packet_types import PUBCOMP, PUBLISH, PUBREC, PUBREL
from wire.properties import MAXIMUM_PACKET_SIZE, REASON_STRING, RECEIVE_MAXIMUM, TOPIC_ALIAS, TOPIC_ALIAS_MAXIMUM
from wire.reasons import PACKET_IDENTIFIER_NOT_FOUND, PROTOCOL_ERROR, SUCCESS, TOPIC_ALIAS_INVALID, UNSPECIFIED_ERROR
from wire.states import (
    AWAIT_CONNECT,
    AWAIT_PUBACK,
    AWAIT_PUBCOMP,
    AWAIT_PUBREC,
    AWAIT_PUBREL,
    CLOSED,
    CONNECTED,
    DONE,
)
from wire.topics import check_topic_name
from wire.windows import ReceiveWindow, SendWindow

RECEIVE_MAXIMUM_DEFAULT = 65_535  # what the standard takes where nothing is said
QOS_MAX = 2
REASON_STRING_MAX = 256  # characters: enough to say what and where, whatever the peer put into a topic


class Connection:
    """Base of ClientConnection and ServerConnection, which say what each packet means to them.

    `_may_send` and `_may_receive` are the tables of what we and what the peer may send.

    Args:
        readers: how to read what the peer may send.
        receive_maximum: QoS 1 and 2 messages we let the peer have unacknowledged; MQTT 3.1.1 knows no such limit.
        maximum_packet_size: bytes of the largest packet we take.
        topic_alias_maximum: topic aliases we let the peer give.
    """

    _may_send: dict
    _may_receive: dict

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
        self._closed: Closed | None = None
        self._now_ms = 0
        self._last_sent_ms = 0
        self._last_received_ms = 0
        self._send_window = SendWindow(0)
        self._receive_window = ReceiveWindow(receive_maximum)
        self.maximum_qos_peer = QOS_MAX
        self._peer_takes_retain = True
        self._peer_takes_reasons = True
        self._aliases: tuple = ()  # incoming, outgoing, where either is in use

    @property
    def connected(self) -> bool:
        """Between a CONNACK of success and the end."""
        return self.state == CONNECTED

    @property
    def send_quota(self) -> int:
        """QoS 1 and 2 messages that may be sent now; 0 unless connected."""
        return self._send_window.quota if self.state == CONNECTED else 0

    def is_in_use(self, packet_identifier: int) -> bool:
        """Whether a message or request of ours that is not acknowledged has it."""
        return packet_identifier in self._send_window

    def receive_data(self, data: bytes | bytearray | memoryview, now_ms: int) -> None:
        """Takes bytes from the transport. Never raises for what is in them: `next_event` tells."""
        self._now_ms = now_ms
        if self.state != CLOSED:
            self._decoder.feed(data)
            self._last_received_ms = now_ms

    def next_event(self):
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
        out = self._out
        self._out = []
        return out[0] if len(out) == 1 else b"".join(out)  # the usual one is not copied

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

        In a session that goes on, what was unacknowledged is published again with `dup` and its packet identifier, in
        its first order and before anything new [MQTT-4.4.0-1, MQTT-4.6.0-1]. MQTT 3.1.1 carries no `properties`.

        Raises LocalProtocolError when not connected, when the window is full, when the packet identifier is in
        use, or for what the peer said it does not take; WireError for a bad topic; MemoryError, and nothing is sent.
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
        """Goes on with a QoS 2 message once its PUBREC is noted durably.

        In a session that goes on, those noted on an earlier connection come first, in the order of their PUBRECs
        [MQTT-4.4.0-1, MQTT-4.6.0-4]. Raises LocalProtocolError for a message whose PUBREC has not come.
        """
        self._check_may_send(PUBREL)
        self._send_window.free(packet_identifier)
        self._send_if_it_fits(Pubrel(packet_identifier))
        self._awaits(packet_identifier)

    def puback(self, packet_identifier: int, reason_code: int = SUCCESS, reason_string: str = "") -> None:
        """Acknowledges a QoS 1 message, or refuses it with a code of 0x80 or more.

        Raises LocalProtocolError unless one with this identifier waits, and for a refusal over MQTT 3.1.1, which has
        none: there a server takes the message or ends the connection [3.1.1 MQTT-3.3.5-2].
        """
        self._acknowledge(Puback(packet_identifier, reason_code), reason_string)

    def pubrec(self, packet_identifier: int, reason_code: int = SUCCESS, reason_string: str = "") -> None:
        """Says that a QoS 2 message is stored, or refuses it; raises as `puback` does."""
        self._acknowledge(Pubrec(packet_identifier, reason_code), reason_string)

    def pubcomp(self, packet_identifier: int) -> None:
        """Says that a QoS 2 message is released; raises LocalProtocolError unless its PUBREL has come."""
        self._acknowledge(Pubcomp(packet_identifier), "")

    def resume(self, packet_identifiers: list) -> None:
        """Names the QoS 2 messages that we have from earlier connections and that are not released.

        To be called after a CONNACK with Session Present, before the next `next_event`: a PUBLISH that brings one of
        them again is answered with PUBREC and not shown [MQTT-4.3.3-10].
        """
        for packet_identifier in packet_identifiers:
            self._receive_window.resume(packet_identifier)

    # For the two ends.

    def _ready_to_read(self) -> bool:
        return True

    def _handle(self, packet: Packet) -> Packet | None:
        """Acts on a packet that the table allows, in the state in which it came; returns it for the application."""
        raise NotImplementedError

    def _fail(self, error: RemoteProtocolError) -> None:
        """Answers a protocol violation of the peer and closes."""
        raise NotImplementedError

    def _awaits(self, packet_identifier: int) -> None:
        """An acknowledgement of this is expected from now on."""

    def _came(self, packet_identifier: int) -> None:
        """It has come."""

    def _speak(self, level: int) -> None:
        self.protocol_level = self._decoder.level = level
        if level == MQTT_3_1_1:
            self._receive_window.limit = RECEIVE_MAXIMUM_DEFAULT

    def _learn_limits(self, properties: dict) -> None:
        """Takes over what the peer says of itself in CONNECT or CONNACK."""
        self.maximum_packet_size_peer = properties.get(MAXIMUM_PACKET_SIZE, PACKET_SIZE_MAX)
        self._send_window.limit = properties.get(RECEIVE_MAXIMUM, RECEIVE_MAXIMUM_DEFAULT)
        aliases_peer = properties.get(TOPIC_ALIAS_MAXIMUM, 0)
        if aliases_peer:
            self._use_aliases(aliases_peer)

    def _use_aliases(self, maximum_peer: int) -> None:
        from wire.topic_aliases import IncomingAliases, OutgoingAliases  # most devices need neither

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
        # One that nothing waits for frees nothing: clients acknowledge late, after a session went on elsewhere.
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
        """Over one connection only MQTT 3.1.1 sends again [MQTT-4.4.0-1]."""
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
        """Without properties where the peer does not want them [MQTT-3.1.2-29] or they do not fit [MQTT-3.4.2-2]."""
        if packet.properties:
            if self._peer_takes_reasons and self._send_if_it_fits(packet):
                return
            packet.properties = {}
        self._send_if_it_fits(packet)

    def _send_if_it_fits(self, packet: Packet) -> bool:
        """For answers: one that the peer says it does not take is as good as sent [MQTT-3.1.2-25]."""
        try:
            self._send(packet)
        except PacketTooLargeError:
            return False
        return True

    def _close(self, reason_code: int, text: str, server_reference: str = "") -> None:
        self.state = CLOSED
        self._closed = Closed(reason_code, text[:REASON_STRING_MAX], server_reference)
