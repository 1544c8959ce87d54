"""Computes the answers that the standards demand for a client's bytes, with our protocol core."""

from dataclasses import dataclass, field
from typing import Any

from wire import properties as p
from wire.codec.decoder import TO_CLIENT, PacketDecoder
from wire.codec.packets import (
    MQTT_5,
    Auth,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Publish,
    Pubrel,
    Suback,
    Subscribe,
    Unsuback,
    Unsubscribe,
)
from wire.connection.server import ServerConnection
from wire.errors import Closed, RemoteProtocolError
from wire.packet_types import PINGRESP, PUBACK, PUBCOMP, PUBLISH, PUBREC, SUBACK, UNSUBACK
from wire.reasons import (
    CONNECTION_RATE_EXCEEDED,
    NOT_AUTHORIZED,
    PAYLOAD_FORMAT_INVALID,
    PROTOCOL_ERROR,
    RECEIVE_MAXIMUM_EXCEEDED,
    SERVER_BUSY,
    SESSION_TAKEN_OVER,
)

RECEIVE_MAXIMUM, MAXIMUM_PACKET_SIZE, TOPIC_ALIAS_MAXIMUM = 2000, 1024 * 1024, 32  # as the gateway has them
SESSION_EXPIRY_MAX_S = 14 * 24 * 3600  # the gateway's default
METHOD = "SCRAM-SHA-256"
LOGINS_REFUSED = {NOT_AUTHORIZED, 0x86, 0x8C, SERVER_BUSY, CONNECTION_RATE_EXCEEDED, PROTOCOL_ERROR}
ACKNOWLEDGEMENTS = (PUBACK, PUBREC, PUBCOMP, SUBACK, UNSUBACK, PINGRESP)
NEVER_OURS = range(20_000, 45_000)  # a broker's own packet identifiers begin at both ends
ASSIGNED = "hf-0123456789abcdef"


@dataclass
class Heard:
    """A broker's answers: reason codes of CONNACK and DISCONNECT, acknowledgements as (packet type, identifier)."""

    connack: int | None = None
    session_present: bool = False
    disconnect: int | None = None
    answers: set[tuple[int, int]] = field(default_factory=set)
    nonsense: str = ""


@dataclass
class Expected(Heard):
    """The answers that a broker must give. ``closes``: it ends the connection, for an error or after a DISCONNECT.

    ``logs_in``: a client without an account wants to log in. ``depends``: a packet identifier comes twice, or
    acknowledges
    what the broker may have sent, so that its meaning depends on timing. ``is_whole``: the bytes end with a
    packet.
    """

    level: int = MQTT_5
    closes: bool = False
    logs_in: bool = False
    depends: bool = False
    is_whole: bool = True
    maximum_packet_size: int = MAXIMUM_PACKET_SIZE


class Ear:
    """Decodes a broker's packets."""

    def __init__(self, heard: Heard, level: int, maximum_packet_size: int) -> None:
        self.heard = heard
        self._decoder = PacketDecoder(TO_CLIENT, maximum_packet_size, level)
        for kind in (Suback, Unsuback, Auth):
            self._decoder.add_reader(kind)

    def hear(self, data: bytes) -> list[Packet]:
        """Returns the packets that need an answer."""
        self._decoder.feed(data)
        asked = []
        try:
            while (packet := self._decoder.next_packet()) is not None:
                if self._note(packet):
                    asked.append(packet)
        except RemoteProtocolError as error:
            self.heard.nonsense = str(error)
        return asked

    def _note(self, packet: Packet) -> bool:
        kind, heard = packet.TYPE, self.heard
        if kind in ACKNOWLEDGEMENTS:
            heard.answers.add((kind, getattr(packet, "packet_identifier", 0)))
        elif isinstance(packet, Connack):
            heard.connack, heard.session_present = packet.reason_code, packet.session_present
        elif isinstance(packet, Disconnect):
            heard.disconnect = packet.reason_code
        return kind in (PUBLISH, PUBREC) or isinstance(packet, Pubrel)


class _Server(ServerConnection):
    """A server connection that notes messages whose packet identifiers may have another meaning when they arrive."""

    def __init__(self, expected: Expected) -> None:
        super().__init__(
            receive_maximum=RECEIVE_MAXIMUM,
            maximum_packet_size=MAXIMUM_PACKET_SIZE,
            topic_alias_maximum=TOPIC_ALIAS_MAXIMUM,
            authentication_methods=(METHOD,),
        )
        self._expected = expected
        self._used: set[int] = set()

    def _handle_message(self, packet: Packet) -> Packet | None:
        identifier = getattr(packet, "packet_identifier", None)
        if isinstance(packet, (Publish, Pubrel)):
            self._expected.depends |= identifier in self._used
        else:
            self._expected.depends |= identifier not in NEVER_OURS
        if identifier is not None:
            self._used.add(identifier)
        return super()._handle_message(packet)

    @property
    def is_within_a_packet(self) -> bool:
        return self._decoder._offset < len(self._decoder._buffer)


def expect(data: bytes) -> Expected:
    """Returns the answers that all bytes of a client must get."""
    expected = Expected()
    server = _Server(expected)
    server.receive_data(data, 0)
    while (event := server.next_event()) is not None:
        if isinstance(event, Closed):
            expected.closes = True
            break
        _serve(server, event, expected)
    expected.level = server.protocol_level
    expected.is_whole = not server.is_within_a_packet
    expected.maximum_packet_size = server.maximum_packet_size_peer
    Ear(expected, expected.level, expected.maximum_packet_size).hear(server.data_to_send())
    return expected


def _serve(server: ServerConnection, event: Packet, expected: Expected) -> None:
    if isinstance(event, Connect):
        _let_in(server, event, expected)
    elif isinstance(event, Auth):
        server.refuse(NOT_AUTHORIZED)
    elif isinstance(event, Publish):
        _take(server, event)
    elif isinstance(event, Pubrel):
        server.pubcomp(event.packet_identifier)
    elif isinstance(event, Subscribe):
        server.suback(event.packet_identifier, [1] * len(event.filters))
    elif isinstance(event, Unsubscribe):
        server.unsuback(event.packet_identifier, [0] * len(event.filters))


def _let_in(server: ServerConnection, packet: Connect, expected: Expected) -> None:
    if p.AUTHENTICATION_METHOD in packet.properties:
        expected.logs_in = True
        server.authenticate(b"?")
        return
    expected.logs_in = packet.username is not None or packet.password is not None
    if packet.will is not None and _is_forbidden(packet.will.topic):
        server.refuse(NOT_AUTHORIZED)
        return
    announced: dict[int, Any] = {} if packet.client_id else {p.ASSIGNED_CLIENT_IDENTIFIER: ASSIGNED}
    if packet.session_expiry_s > SESSION_EXPIRY_MAX_S:  # absent, it says that the client's own holds [3.2.2.3.2]
        announced[p.SESSION_EXPIRY_INTERVAL] = SESSION_EXPIRY_MAX_S
    server.accept(False, announced)


def _take(server: ServerConnection, message: Publish) -> None:
    code = _fault(message)
    identifier = message.packet_identifier
    if identifier is not None and (server.protocol_level == MQTT_5 or not code):
        acknowledge = server.puback if message.qos == 1 else server.pubrec
        acknowledge(identifier, code)
    elif code and (identifier is not None or code != NOT_AUTHORIZED):
        server.disconnect(code)


def _fault(message: Publish) -> int:
    """The reason code with which a broker refuses a message; 0 if it accepts it."""
    if _is_forbidden(message.topic):
        return NOT_AUTHORIZED
    if message.properties.get(p.PAYLOAD_FORMAT_INDICATOR):
        try:
            bytes(message.payload).decode()
        except UnicodeDecodeError:
            return PAYLOAD_FORMAT_INVALID
    return 0


def _is_forbidden(topic: str) -> bool:
    """Returns whether the topic is reserved for the gateway's own messages."""
    return topic.split("/")[0] == "$SYS"


def faults(expected: Expected, heard: Heard, is_closed: bool, is_shared: bool) -> list[str]:
    """Returns sentences about faults in a broker's answers. `is_closed`: the broker has closed the connection in time.
    `is_shared`: other sessions use the client identifier too, and may take the session over."""
    if heard.nonsense:
        return [f"the broker sent nonsense: {heard.nonsense}"]
    connack, disconnect = {expected.connack}, {expected.disconnect}
    depends = expected.depends or heard.session_present  # an earlier session has identifiers in use
    if expected.logs_in:
        connack |= LOGINS_REFUSED
    if depends and expected.level == MQTT_5:
        disconnect |= {PROTOCOL_ERROR, RECEIVE_MAXIMUM_EXCEEDED}
    if is_shared:
        disconnect |= {SESSION_TAKEN_OVER, None}
        connack |= {None}
    found = []
    if heard.connack not in connack:
        found.append(f"CONNACK {_code(heard.connack)}, expected {_codes(connack)}")
    elif heard.connack == expected.connack and heard.disconnect not in disconnect:
        found.append(f"DISCONNECT {_code(heard.disconnect)}, expected {_codes(disconnect)}")
    if expected.closes and not is_closed:
        found.append("the connection was not closed")
    is_exact = not (expected.closes or expected.logs_in or depends or is_shared)
    if is_exact and (missing := expected.answers - heard.answers):
        found.append(f"unanswered, as (packet type, packet identifier): {sorted(missing)[:5]}")
    return found


def _codes(codes: set[int | None]) -> str:
    return " or ".join(sorted(_code(code) for code in codes))


def _code(code: int | None) -> str:
    return "none" if code is None else f"0x{code:02x}"
