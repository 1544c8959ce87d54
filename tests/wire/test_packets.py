"""The control packets against the golden table, in arbitrary pieces, and under noise."""

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.wire.golden import VERSIONS
from tools.lab.sim.virtual_line import Dice
from tools.lab.torture.wire.mqtt_noise import check_decoder, decoded
from wire import properties as p
from wire.codec.packets import (
    MQTT_3_1_1,
    Connack,
    Connect,
    Decoder,
    Disconnect,
    Packet,
    Puback,
    Publish,
    Suback,
    Subscribe,
    Unsuback,
    Unsubscribe,
    Will,
    encode,
)
from wire.errors import LocalProtocolError, RemoteProtocolError
from wire.reasons import PACKET_TOO_LARGE, describe

text = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=40)
topic_name = text.filter(lambda name: name and not set(name) & set("+#"))
topic_filter = topic_name.filter(lambda name: not name.startswith("$share/"))
identifier = st.integers(1, 65_535)
u16, u32 = st.integers(1, 0xFFFF), st.integers(1, 0xFFFFFFFF)
flag = st.integers(0, 1)
user_properties = st.lists(st.tuples(text, text), min_size=1, max_size=3)


def properties(**strategies: st.SearchStrategy) -> st.SearchStrategy[dict]:
    return st.fixed_dictionaries({}, optional={getattr(p, name): strategy for name, strategy in strategies.items()})


message_properties = {
    "PAYLOAD_FORMAT_INDICATOR": flag,
    "MESSAGE_EXPIRY_INTERVAL": u32,
    "CONTENT_TYPE": text,
    "RESPONSE_TOPIC": topic_name,
    "CORRELATION_DATA": st.binary(max_size=20),
    "USER_PROPERTY": user_properties,
}
publish_properties = properties(
    **message_properties,
    TOPIC_ALIAS=u16,
    SUBSCRIPTION_IDENTIFIER=st.lists(st.integers(1, 268_435_455), min_size=1, max_size=3),
)
reason_properties = properties(REASON_STRING=text, USER_PROPERTY=user_properties)
publishes = st.one_of(
    st.builds(Publish, topic_name, st.binary(max_size=300), st.just(0), st.booleans(), properties=publish_properties),
    st.builds(
        Publish,
        topic_name,
        st.binary(max_size=300),
        st.integers(1, 2),
        st.booleans(),
        st.booleans(),
        identifier,
        publish_properties,
    ),
)
wills = st.builds(
    Will,
    topic_name,
    st.binary(max_size=50),
    st.integers(0, 2),
    st.booleans(),
    properties(**message_properties, WILL_DELAY_INTERVAL=u32),
)
connects = st.builds(
    Connect,
    text,
    st.booleans(),
    st.integers(0, 0xFFFF),
    st.none() | text,
    st.none() | st.binary(max_size=20),
    st.none() | wills,
    properties(
        SESSION_EXPIRY_INTERVAL=u32, RECEIVE_MAXIMUM=u16, MAXIMUM_PACKET_SIZE=u32, USER_PROPERTY=user_properties
    ),
)
packets: st.SearchStrategy[Packet] = st.one_of(
    publishes,
    connects,
    st.builds(
        Connack, st.booleans(), properties=properties(SERVER_KEEP_ALIVE=u16, MAXIMUM_QOS=flag, REASON_STRING=text)
    ),
    st.builds(Puback, identifier, st.sampled_from([0, 0x10, 0x97]), reason_properties),
    st.builds(
        Subscribe, identifier, st.lists(st.tuples(topic_filter, st.sampled_from([0, 1, 2])), min_size=1, max_size=4)
    ),
    st.builds(Suback, identifier, st.lists(st.sampled_from([0, 1, 2, 0x87]), min_size=1), reason_properties),
    st.builds(Unsubscribe, identifier, st.lists(topic_filter, min_size=1, max_size=4)),
    st.builds(Disconnect, st.sampled_from([0, 4, 0x8B]), reason_properties),
)


def golden(table: int) -> pytest.MarkDecorator:
    """The rows of one golden table of both versions: (level, packet or reason code, bytes)."""
    rows = [
        pytest.param(level, row[1], row[2], id=f"{level} {row[0]}")
        for level, *tables in VERSIONS
        for row in tables[table]
    ]
    return pytest.mark.parametrize(("level", "packet", "encoded"), rows)


good, also_good, bad = map(golden, range(3))


@good
def test_packet_encodes_to_its_golden_bytes_and_back(level: int, packet: Packet, encoded: bytes) -> None:
    assert encode(packet, level) == encoded
    assert decoded([encoded], level) == [packet]


@also_good
def test_packet_decodes_from_other_forms(level: int, packet: Packet, encoded: bytes) -> None:
    assert decoded([encoded], level) == [packet]


@bad
def test_malformed_packet_raises_the_reason_code_of_the_standard(level: int, packet: int, encoded: bytes) -> None:
    reason_code = packet
    decoder = Decoder(level=level)
    decoder.feed(encoded)
    with pytest.raises(RemoteProtocolError) as caught:
        decoder.next_packet()
    assert caught.value.reason_code == reason_code
    assert str(caught.value)


@good
def test_cut_packet_is_not_a_packet_yet(level: int, packet: Packet, encoded: bytes) -> None:
    for length in range(len(encoded)):
        decoder = Decoder(level=level)
        decoder.feed(encoded[:length])
        assert decoder.next_packet() is None
        decoder.feed(encoded[length:])
        assert decoder.next_packet() == packet


@given(st.lists(packets, max_size=5), st.data())
def test_decoding_pieces_equals_decoding_whole(sent: list[Packet], data: st.DataObject) -> None:
    whole = b"".join(encode(packet) for packet in sent)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=8)))
    pieces = [whole[start:end] for start, end in zip([0, *cuts], [*cuts, len(whole)], strict=True)]
    assert decoded(pieces) == sent


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_decoder_takes_any_buffer_and_keeps_none(kind: type) -> None:
    encoded = bytearray(encode(Publish("a", b"payload", 1, packet_identifier=7)))
    decoder = Decoder()
    first, second = kind(encoded[:5]), kind(encoded[5:])
    decoder.feed(first)
    decoder.feed(second)
    encoded[:] = bytes(len(encoded))
    assert decoder.next_packet() == Publish("a", b"payload", 1, packet_identifier=7)


def test_packet_beyond_our_maximum_is_refused_before_it_arrives() -> None:
    decoder = Decoder(maximum_packet_size=100)
    decoder.feed(b"\x30\x62")
    assert decoder.next_packet() is None  # 100 bytes in all
    decoder = Decoder(maximum_packet_size=100)
    decoder.feed(b"\x30\x63")
    with pytest.raises(RemoteProtocolError) as caught:
        decoder.next_packet()
    assert caught.value.reason_code == PACKET_TOO_LARGE


def test_decoder_repeats_its_error() -> None:
    decoder = Decoder()
    decoder.feed(b"\x00\x00")
    for _ in range(2):
        with pytest.raises(RemoteProtocolError):
            decoder.next_packet()


@pytest.mark.parametrize(
    "packet",
    [
        Publish("a", b"", 1),
        Publish("a", b"", 3, packet_identifier=1),
        Publish("a", b"", 0, packet_identifier=1),
        Publish("a", b"", 0, dup=True),
        Publish("a\0", b""),
        Publish("\ud800", b""),
        Publish("a" * 65_536, b""),
        Publish("a", b"", properties={p.TOPIC_ALIAS: 0}),
        Publish("a", b"", properties={p.SERVER_KEEP_ALIVE: 1}),
        Publish("a", b"", properties={p.MESSAGE_EXPIRY_INTERVAL: 1 << 32}),
        Puback(0),
        Puback(65_536),
        Subscribe(1, []),
        Subscribe(1, [("a", 3)]),
        Unsubscribe(1, []),
        Connect("a", keep_alive_s=65_536),
        Connect("a", will=Will("w", b"", 3)),
        Connect("a", password=b"p", protocol_level=MQTT_3_1_1),
        Connect("", protocol_level=MQTT_3_1_1),
    ],
    ids=repr,
)
def test_packet_that_cannot_be_sent_is_our_own_error(packet: Packet) -> None:
    with pytest.raises(LocalProtocolError):
        encode(packet)


@pytest.mark.parametrize("version", VERSIONS, ids=["5.0", "3.1.1"])
def test_noise_gives_only_documented_errors_and_the_same_in_any_pieces(version: tuple, seed: int) -> None:
    level, good, also_good, bad = version
    samples = [row[2] for row in good + also_good + bad]
    dice = Dice(seed)
    fed = 0
    while fed < 300_000:
        fed += check_decoder(dice, level, samples)


@pytest.mark.parametrize("reason_code", [0x82, 0x95, 0x99])
def test_refusal_that_3_1_1_has_no_code_for_is_not_sent(reason_code: int) -> None:
    with pytest.raises(LocalProtocolError):
        encode(Connack(False, reason_code), MQTT_3_1_1)


@pytest.mark.parametrize(
    ("packet", "encoded"),
    [
        (Connack(False, 0x97), b"\x20\x02\x00\x03"),
        (Connack(False, 0x8A), b"\x20\x02\x00\x05"),
        (Suback(1, [0x8F, 2]), b"\x90\x04\x00\x01\x80\x02"),
        (Unsuback(1, [0x11]), b"\xb0\x02\x00\x01"),
        (Puback(1, 0x10, {p.REASON_STRING: "unread"}), b"\x40\x02\x00\x01"),
        (Publish("a", b"x", properties={p.CONTENT_TYPE: "t"}), b"\x30\x04\x00\x01ax"),
    ],
    ids=repr,
)
def test_what_3_1_1_cannot_say_is_said_as_near_as_it_can(packet: Packet, encoded: bytes) -> None:
    assert encode(packet, MQTT_3_1_1) == encoded


def test_session_expiry_of_a_connect_is_that_of_its_version() -> None:
    assert Connect("a", True, protocol_level=MQTT_3_1_1).session_expiry_s == 0
    assert Connect("a", False, protocol_level=MQTT_3_1_1).session_expiry_s == 0xFFFF_FFFF
    assert Connect("a").session_expiry_s == 0
    assert Connect("a", properties={p.SESSION_EXPIRY_INTERVAL: 7}).session_expiry_s == 7


def test_reason_codes_have_words() -> None:
    assert describe(0x97) == "quota exceeded (0x97)"
    assert describe(0x00) == "success (0x00)"
    assert describe(0x7F) == "unknown reason code (0x7f)"


def test_a_large_packet_takes_no_memory_until_the_next_one_comes() -> None:
    decoder = Decoder()
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    for _ in range(2):
        decoder.feed(encode(Publish("a", bytes(1_000_000))))
        assert decoder.next_packet() is not None
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert after - before < 100_000
