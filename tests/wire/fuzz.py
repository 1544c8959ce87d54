"""Random and spoilt bytes for decoders and connections; runs on CPython and on MicroPython."""

from tests.golden_packets import ALSO_GOOD, BAD, GOOD
from tests.wire.link_world import Dice
from wire.client import ClientConnection
from wire.connection import Closed
from wire.errors import RemoteProtocolError
from wire.packets import Connack, Connect, Decoder, Packet, Publish, Subscribe, Unsubscribe, encode
from wire.server import ServerConnection

SAMPLES = [encoded for _, _, encoded in GOOD + ALSO_GOOD + BAD]
NOW_MS = 1000


def spoil(dice: Dice, data: bytes) -> bytes:
    """`data` with up to three bytes changed, put in, or taken out, or cut short."""
    spoilt = bytearray(data)
    for _ in range(dice.roll(4)):
        at = dice.roll(len(spoilt) + 1)
        what = dice.roll(4)
        if what == 0 and at < len(spoilt):
            spoilt[at] ^= 1 << dice.roll(8)
        elif what == 1:
            spoilt[at:at] = bytes((dice.roll(256),))
        elif what == 2:
            spoilt[at : at + 1] = b""
        elif at < len(spoilt):
            spoilt[at] = dice.roll(4)
    return bytes(spoilt)


def stream(dice: Dice) -> bytes:
    """Some packets one after the other, most of them spoilt; now and then plain noise."""
    if dice.roll(20) == 0:
        return bytes([dice.roll(256) for _ in range(dice.roll(60))])
    packets = []
    for _ in range(1 + dice.roll(5)):
        sample = SAMPLES[dice.roll(len(SAMPLES))]
        packets.append(sample if dice.roll(3) == 0 else spoil(dice, sample))
    return b"".join(packets)


def splits(dice: Dice, data: bytes) -> list:
    """`data` in pieces of random length."""
    pieces = []
    while data:
        length = 1 + dice.roll(12)
        pieces.append(data[:length])
        data = data[length:]
    return pieces


def decoded(pieces: list) -> list:
    """What a decoder makes of the pieces: packets, then perhaps an error as (reason code, text)."""
    decoder = Decoder(4096)
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


def served(pieces: list) -> tuple:
    """What a server connection makes of the pieces, and its answer."""
    connection = ServerConnection(receive_maximum=4, maximum_packet_size=4096)
    answer = b""
    events: list = []
    for piece in pieces:
        connection.receive_data(piece, NOW_MS)
        event = connection.next_event()
        while event is not None:
            events.append(event)
            if isinstance(event, Connect):
                connection.accept(False, {0x25: 0, 0x29: 0})
            elif isinstance(event, Publish) and event.packet_identifier:
                connection.puback(event.packet_identifier)
            elif isinstance(event, Subscribe):
                connection.suback(event.packet_identifier, [1] * len(event.filters))
            elif isinstance(event, Unsubscribe):
                connection.unsuback(event.packet_identifier, [0] * len(event.filters))
            event = connection.next_event()
        answer += connection.data_to_send()
    return events, answer


def consumed(pieces: list) -> tuple:
    """What a client connection with requests and messages on the way makes of the pieces, and its answer."""
    connection = ClientConnection("fuzz", receive_maximum=4, maximum_packet_size=4096)
    connection.connect(NOW_MS)
    answer = connection.data_to_send()
    events: list = []
    for piece in pieces:
        connection.receive_data(piece, NOW_MS)
        event = connection.next_event()
        while event is not None:
            events.append(event)
            if isinstance(event, Connack) and connection.connected and connection.maximum_packet_size_peer > 99:
                connection.publish("a", b"x", qos=0)
                connection.subscribe([("a", 0)])
            elif isinstance(event, Publish) and event.packet_identifier:
                connection.puback(event.packet_identifier)
            event = connection.next_event()
        answer += connection.data_to_send()
    return events, answer


def check_decoder(dice: Dice) -> int:
    """One random stream: whole, split and byte by byte give the same. Returns its length."""
    data = stream(dice)
    whole = decoded([data])
    assert whole == decoded(splits(dice, data)), data
    assert whole == decoded([data[i : i + 1] for i in range(len(data))]), data
    for found in whole:
        if isinstance(found, Packet):
            assert decoded([encode(found)]) == [found], found
    return len(data)


def check_connections(dice: Dice) -> int:
    """One random stream behind a good greeting, for both ends. Returns its length."""
    data = stream(dice)
    for behave, greeting in ((served, encode(Connect("fuzz"))), (consumed, encode(Connack(False)))):
        greeted = data if dice.roll(8) == 0 else greeting + data
        whole = behave([greeted])
        assert whole == behave(splits(dice, greeted)), greeted
        assert whole == behave([greeted[i : i + 1] for i in range(len(greeted))]), greeted
        events = whole[0]
        assert not any(isinstance(event, Closed) for event in events[:-1]), events
        assert all(isinstance(event, (Packet, Closed)) for event in events), events
    return len(data)
