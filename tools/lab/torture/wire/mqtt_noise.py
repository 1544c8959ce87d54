"""Random and corrupt bytes for MQTT's decoders and connections; runs on CPython and on MicroPython.

For any bytes they may only return what is documented: packets, then perhaps one protocol error, and the same however
the bytes are split.
"""

from tools.lab.sim.virtual_line import Dice
from wire import properties as p
from wire.codec import decoder, requests
from wire.codec.packets import (
    MQTT_3_1_1,
    MQTT_5,
    Auth,
    Connack,
    Connect,
    Decoder,
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    Unsuback,
    Unsubscribe,
    Will,
    encode,
)
from wire.connection import Connection
from wire.connection.authentication import ClientAuthentication
from wire.connection.client import ClientConnection
from wire.connection.server import ServerConnection
from wire.errors import Closed, RemoteProtocolError, WireError
from wire.packet_types import AUTH, CONNACK, CONNECT, SUBACK, UNSUBACK

LEVELS = (MQTT_3_1_1, MQTT_5)
NOW_MS = 1000
METHOD = "M"
PACKET_SIZE_MAX = 4096
_LIMITS = {p.RECEIVE_MAXIMUM: 4, p.MAXIMUM_PACKET_SIZE: PACKET_SIZE_MAX, p.TOPIC_ALIAS_MAXIMUM: 2}
TO_SERVER = list(requests.TO_SERVER)
TO_CLIENT = list(decoder.TO_CLIENT) + [SUBACK, UNSUBACK, AUTH]  # noqa: RUF005 - MicroPython unpacks nothing into a list

_MESSAGE = {
    p.PAYLOAD_FORMAT_INDICATOR: 1,
    p.MESSAGE_EXPIRY_INTERVAL: 9,
    p.RESPONSE_TOPIC: "r",
    p.CORRELATION_DATA: b"c",
    p.USER_PROPERTY: [("a", "b"), ("a", "é")],
}
_WILL = Will("w", b"gone", 2, True, {p.WILL_DELAY_INTERVAL: 5})
_WHY = {p.REASON_STRING: "why"}
_METHOD = {p.AUTHENTICATION_METHOD: METHOD, p.AUTHENTICATION_DATA: b"d"}


def _packets() -> list:
    """One of each packet type at least, with packet identifiers that meet each other."""
    packets = [
        Connack(False),
        Connack(True, 0, {p.RECEIVE_MAXIMUM: 2, p.TOPIC_ALIAS_MAXIMUM: 3, p.ASSIGNED_CLIENT_IDENTIFIER: "x"}),
        Connack(False, 0x88, {p.SERVER_REFERENCE: "other"}),
        Publish("a/b", b"x"),
        Publish("t", b"x", 1, True, False, 3, _MESSAGE),
        Publish("t", b"x", properties={p.TOPIC_ALIAS: 1}),
        Publish("", b"x", properties={p.TOPIC_ALIAS: 1}),
        Publish("t", b"x", 1, packet_identifier=9, properties={p.SUBSCRIPTION_IDENTIFIER: [1, 300]}),
        Puback(2, 0x10),
        Pubrec(3, 0x97, _WHY),
        Subscribe(4, [("a/#", 1), ("$share/g/+", 0)], {p.SUBSCRIPTION_IDENTIFIER: [7]}),
        Subscribe(5, [("b", 2)]),
        Suback(3, [1]),
        Suback(4, [0x87]),
        Unsubscribe(6, ["a/#", "b"]),
        Unsuback(5, [0x11]),
        Pingreq(),
        Pingresp(),
        Disconnect(),
        Disconnect(0x9D, {p.SERVER_REFERENCE: "other"}),
        Auth(0x18, _METHOD),
        Auth(0x19, _METHOD),
    ]
    for identifier in (1, 2, 3):
        packets.append(Publish("q", b"2", 2, packet_identifier=identifier))
        packets.append(Publish("q", b"2", 2, False, True, identifier))
        packets.append(Pubrel(identifier))
    packets += 3 * [Puback(1), Pubrec(2), Pubcomp(2)]  # what both ends below wait for
    packets += [Pubrec(1), Puback(2), Pubcomp(3)]
    return packets


def _connects(level: int) -> list:
    return [
        Connect("fuzz", True, 60, None, None, None, {}, level),
        Connect("fuzz", False, 60, "u", b"p", _WILL, {p.RECEIVE_MAXIMUM: 3, p.TOPIC_ALIAS_MAXIMUM: 1}, level),
        Connect("fuzz", False, 0, None, None, None, _METHOD, level),
    ]


def _samples(level: int) -> list:
    packets = [packet for packet in _packets() if level == MQTT_5 or not isinstance(packet, Auth)]
    if level == MQTT_5:
        packets.append(Subscribe(7, [("+", 0x2E)]))
    return [encode(packet, level) for packet in packets + _connects(level)]


SAMPLES = {level: _samples(level) for level in LEVELS}
GREETINGS = {level: [encode(connect) for connect in _connects(level)] for level in LEVELS}
ANSWERS = {
    level: [encode(Connack(False), level), encode(Connack(True, 0, {p.AUTHENTICATION_METHOD: METHOD}), level)]
    for level in LEVELS
}


def spoil(dice: Dice, data: bytes) -> bytes:
    """`data` with up to three bytes changed, put in, or taken out."""
    changed = bytearray(data)
    for _ in range(dice.roll(4)):
        at = dice.roll(len(changed) + 1)
        what = dice.roll(4)
        if what == 0 and at < len(changed):
            changed[at] ^= 1 << dice.roll(8)
        elif what == 1:
            changed[at:at] = bytes((dice.roll(256),))
        elif what == 2:
            changed[at : at + 1] = b""
        elif at < len(changed):
            changed[at] = dice.roll(4)
    return bytes(changed)


def stream(dice: Dice, samples: list) -> bytes:
    """Some packets one after the other, many of them corrupt; now and then plain noise."""
    if dice.roll(20) == 0:
        return dice.bytes(dice.roll(60))
    packets = []
    for _ in range(1 + dice.roll(9)):
        sample = samples[dice.roll(len(samples))]
        packets.append(spoil(dice, sample) if dice.roll(4) == 0 else sample)
    return b"".join(packets)


def likely(samples: list, packet_types: list) -> list:
    """Returns the samples that this side may get."""
    return [sample for sample in samples if sample[0] >> 4 in packet_types and sample[0] >> 4 not in (CONNECT, CONNACK)]


def splits(dice: Dice, data: bytes) -> list:
    """`data` in pieces of random length."""
    pieces = []
    while data:
        length = 1 + dice.roll(12)
        pieces.append(data[:length])
        data = data[length:]
    return pieces


def decoded(pieces: list, level: int = MQTT_5) -> list:
    """What a decoder makes of the pieces: packets, then perhaps an error as (reason code, text)."""
    decoder = Decoder(PACKET_SIZE_MAX, level)
    found: list = []
    for piece in pieces:
        decoder.feed(piece)
        try:
            packet = decoder.next_packet()
            while packet is not None:
                found.append(packet)
                packet = decoder.next_packet()
        except RemoteProtocolError as error:
            found.append((error.reason_code, str(error)))
            return found
    return found


def _drive(connection: Connection, pieces: list) -> tuple:
    """(events, everything that was sent) of a connection that gets these pieces."""
    answer = connection.data_to_send()
    events: list = []
    for piece in pieces:
        connection.receive_data(piece, NOW_MS)
        event = connection.next_event()
        while event is not None:
            events.append(event)
            if isinstance(connection, ServerConnection):
                _serve(connection, event)
            elif isinstance(connection, ClientConnection):
                _consume(connection, event)
            _acknowledge(connection, event)
            event = connection.next_event()
        answer += connection.data_to_send()
    return events, answer


def _acknowledge(connection: Connection, event: object) -> None:
    """Answers as an application does that stores each message at once."""
    if isinstance(event, Publish):
        if event.qos == 1:
            connection.puback(event.packet_identifier)  # type: ignore[arg-type]
        elif event.qos == 2:
            connection.pubrec(event.packet_identifier)  # type: ignore[arg-type]
    elif isinstance(event, Pubrel):
        connection.pubcomp(event.packet_identifier)
    elif isinstance(event, Pubrec) and event.reason_code < 0x80:
        connection.pubrel(event.packet_identifier)


def _serve(connection: ServerConnection, event: object) -> None:
    if isinstance(event, Connect):
        if p.AUTHENTICATION_METHOD in event.properties:
            connection.authenticate(b"?")
        else:
            _accept(connection, event)
    elif isinstance(event, Auth):
        if connection.connected:
            connection.authenticate(None, 0)
        elif connection.connect_packet is not None:
            _accept(connection, connection.connect_packet)
    elif isinstance(event, Subscribe):
        connection.suback(event.packet_identifier, [1] * len(event.filters))
    elif isinstance(event, Unsubscribe):
        connection.unsuback(event.packet_identifier, [0] * len(event.filters))


def _accept(connection: ServerConnection, connect: Connect) -> None:
    connection.accept(not connect.clean_start, {p.SHARED_SUBSCRIPTION_AVAILABLE: 0, p.RETAIN_AVAILABLE: 1})
    if not connect.clean_start:
        connection.resume([3])
    _publish_three(connection)


def _publish_three(connection: Connection) -> None:
    for qos in (0, 1, 2):
        if connection.send_quota and connection.maximum_packet_size_peer > 99 and qos <= connection.maximum_qos_peer:
            connection.publish("a", b"x", qos=qos)


def _consume(connection: ClientConnection, event: object) -> None:
    if isinstance(event, Connack) and connection.connected:
        if event.session_present:
            connection.resume([3])
        _publish_three(connection)
        if connection.maximum_packet_size_peer > 99:
            connection.subscribe([("a", 0)])


def served(pieces: list) -> tuple:
    """What a server connection makes of the pieces, and its answer."""
    connection = ServerConnection(
        receive_maximum=4, maximum_packet_size=PACKET_SIZE_MAX, topic_alias_maximum=2, authentication_methods=(METHOD,)
    )
    return _drive(connection, pieces)


def consumed(pieces: list, level: int, authenticates: bool) -> tuple:
    """What a client connection with requests and messages on the way makes of the pieces, and its answer."""
    connection = ClientConnection(
        Connect("fuzz", properties=dict(_LIMITS), protocol_level=level),
        authentication=ClientAuthentication(METHOD, lambda data: data) if authenticates else None,
    )
    connection.connect(NOW_MS)
    return _drive(connection, pieces)


def check_decoder(dice: Dice, level: int, samples: list) -> int:
    """One random stream: whole, split and byte by byte give the same. Returns its length."""
    data = stream(dice, samples)
    whole = decoded([data], level)
    assert whole == decoded(splits(dice, data), level), data
    assert whole == decoded([data[i : i + 1] for i in range(len(data))], level), data
    for found in whole:
        if isinstance(found, Packet):
            _check_encodes(found, level)
    return len(data)


def _check_encodes(packet: Packet, level: int) -> None:
    """What was read can be written, and reads the same; only ill-formed topic filters cannot."""
    try:
        encoded = encode(packet, level)
    except WireError:
        assert isinstance(packet, (Subscribe, Unsubscribe)), packet
        return
    if isinstance(packet, Connect):
        packet.level_byte = 0  # what is written names no version before 3.1.1 and no bridge
    assert decoded([encoded], level) == [packet], packet


def check_connections(dice: Dice, level: int, samples: list) -> int:
    """A random stream for each end, mostly behind a good greeting. Returns their length."""
    choice = dice.roll(3)
    authenticates = level == MQTT_5 and choice == 2
    ends = (
        (served, GREETINGS[level][choice], TO_SERVER),
        (lambda pieces: consumed(pieces, level, authenticates), ANSWERS[level][authenticates], TO_CLIENT),
    )
    fed = 0
    for behave, greeting, readers in ends:
        data = stream(dice, likely(samples, readers) if dice.roll(8) else samples)
        fed += len(data)
        greeted = data if dice.roll(8) == 0 else greeting + data
        whole = behave([greeted])
        assert whole == behave(splits(dice, greeted)), greeted
        assert whole == behave([greeted[i : i + 1] for i in range(len(greeted))]), greeted
        events = whole[0]
        assert not any(isinstance(event, Closed) for event in events[:-1]), events
        assert all(isinstance(event, (Packet, Closed)) for event in events), events
    return fed


def check(dice: Dice, extra: dict | None = None) -> int:
    """One stream each for the decoder and the connections, of one version; returns the bytes fed. `extra`: {protocol
    level: more samples (bytes) to mix and spoil}."""
    level = LEVELS[dice.roll(2)]
    samples = SAMPLES[level] + extra[level] if extra else SAMPLES[level]
    return check_decoder(dice, level, samples) + check_connections(dice, level, samples)
