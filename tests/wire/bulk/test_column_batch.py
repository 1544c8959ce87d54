"""Column batches: what goes in comes out, the page shows what the code does, and noise is an error with a place."""

import random
import re
import tracemalloc
from collections import deque
from collections.abc import Callable
from itertools import pairwise, starmap
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.wire.test_packets import publish_properties, topic_name
from wire.bulk.batch_encoder import BatchFull, ColumnBatchEncoder
from wire.bulk.batch_frame import DICTIONARY, zstd
from wire.bulk.column_batch import (
    MESSAGES_MAX,
    SIZE_MAX,
    BatchMessage,
    ColumnBatch,
    MalformedBatch,
    decode_batch,
    origins_of,
)
from wire.bulk.publishes import cut_publishes, read_publishes
from wire.codec.packets import MQTT_3_1_1, MQTT_5, Publish, encode
from wire.identity import EPOCH_MAX, IDENTITY_PROPERTY, SEQ_MAX, encode_identity
from wire.packet_types import PUBLISH
from wire.primitives import Reader, encode_varint
from wire.properties import CONTENT_TYPE, USER_PROPERTY, decode_properties, encode_properties

PAGE = (Path(__file__).parents[3] / "docs/reference/batch.md").read_text()
JSON = b"\x03\x00\x16application/senml+json"
NOON_MS = 1_767_225_600_000
THREE = [
    BatchMessage("telemetry/barn", b'[{"n":"load","v":0.5}]', 1, False, JSON, "barn", 31, 42, NOON_MS, "farm"),
    BatchMessage("telemetry/roof", b'[{"n":"load","v":0.25}]', 1, False, JSON, "roof", 46, 7, NOON_MS, "farm"),
    BatchMessage("telemetry/barn", b'[{"n":"load","v":0.5}]', 1, False, JSON, "barn", 31, 43, NOON_MS + 1000, "farm"),
]


def block_of(properties: dict) -> bytes:
    encoded = encode_properties(properties, PUBLISH)
    reader = Reader(encoded)
    reader.varint()
    return encoded[reader.offset :]


def properties_in(block: bytes) -> dict:
    return decode_properties(Reader(encode_varint(len(block)) + block), PUBLISH)


names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
messages = st.builds(
    BatchMessage,
    topic=topic_name,
    payload=st.binary(max_size=300),
    qos=st.integers(0, 2),
    retain=st.booleans(),
    block=publish_properties.map(block_of),
    origin=st.sampled_from(["a", "b"]) | names,
    epoch=st.sampled_from([7, EPOCH_MAX]),
    seq=st.integers(1, 5) | st.integers(1, SEQ_MAX) | st.integers(SEQ_MAX - 5, SEQ_MAX),
    received_ms=st.integers(NOON_MS, NOON_MS + 5) | st.integers(0, SEQ_MAX),
    received_by=st.just("") | names,
)


def encoded(many: list[BatchMessage]) -> bytes:
    encoder = ColumnBatchEncoder()
    for one in many:
        encoder.add(*one)
    return encoder.encode()


def body_of(payload: bytes) -> bytes:
    return unzstd(payload[4:], DICTIONARY)


def unzstd(frame: bytes, dictionary: bytes) -> bytes:
    return zstd.decompress(frame, zstd.ZstdDict(dictionary, is_raw=True))


def packed(body: bytes) -> bytes:
    """A payload with this body, whose checksum is right."""
    options: dict[int, int] = {zstd.CompressionParameter.checksum_flag: 1}
    return b"hfb\x01" + zstd.compress(body, options=options, zstd_dict=zstd.ZstdDict(DICTIONARY, is_raw=True))


@given(st.lists(messages, min_size=1, max_size=30))
def test_every_field_of_every_message_comes_out_as_it_went_in(many: list[BatchMessage]) -> None:
    assert list(decode_batch(encoded(many)).messages()) == many
    assert origins_of(encoded(many)) == {one.origin for one in many}


def test_origins_are_read_without_the_columns_beside_them() -> None:
    """A gateway asks for each origin whether its client may bring it, while other clients wait."""
    fields = {**FIELDS, "topics": b"\x01\0\x01+", "properties": b"\x01\0\x01\xff", "runs": b"", "payloads": b""}
    payload = packed(b"".join(fields.values()))
    assert origins_of(payload) == {"o"}
    with pytest.raises(MalformedBatch):
        decode_batch(payload)


def test_a_clock_that_was_set_back_and_seqs_that_come_again_are_kept() -> None:
    many = [THREE[0]._replace(received_ms=ms, seq=seq) for ms, seq in ((9, 1), (5, 2), (5, 2), (2**45, 3), (0, 1))]
    assert list(decode_batch(encoded(many)).messages()) == many


def test_a_publisher_that_counts_up_to_the_largest_seq_keeps_no_other_message_from_being_decoded() -> None:
    others = [THREE[0]._replace(seq=seq) for seq in range(1, 10)]
    for seq in range(SEQ_MAX - 12, SEQ_MAX + 1):
        many = [*others, THREE[0]._replace(origin="another", seq=seq), *others]
        assert list(decode_batch(encoded(many)).messages()) == many


def test_a_run_that_goes_on_behind_the_largest_seq_is_refused() -> None:
    two = {"count": b"\x02", "first seqs": b"\0" + HUGE, "lengths": b"\0\x01"}
    with pytest.raises(MalformedBatch, match=f"a run goes on behind seq {SEQ_MAX}"):
        decode_batch(packed(b"".join({**FIELDS, **two}.values())))
    two |= {"runs": b"\x02", "epochs": b"\x01\x07\x08", "run of each": b"\0\x01"}
    with pytest.raises(MalformedBatch, match=f"a run goes on behind seq {SEQ_MAX}"):
        decode_batch(packed(b"".join({**FIELDS, **two}.values())))


def test_the_largest_batch_is_decoded() -> None:
    many = [THREE[0]._replace(seq=1 + number, payload=b"%d" % number) for number in range(MESSAGES_MAX)]
    assert list(decode_batch(encoded(many)).messages()) == many


@pytest.mark.parametrize("level", [MQTT_3_1_1, MQTT_5])
@pytest.mark.parametrize("bring", [False, True])
@pytest.mark.parametrize("qos", [1, 2])
def test_stored_publishes_are_the_messages_that_are_read_from_them_one_by_one(
    level: int, bring: bool, qos: int
) -> None:
    bring = bring and level == MQTT_5
    packets = b""
    for number in range(1, 40):
        properties: dict = {} if number % 3 or level != MQTT_5 else {CONTENT_TYPE: "text/plain"}
        if bring:
            identity = encode_identity("device-7", 0xCAFE, 5 * number)
            properties[USER_PROPERTY] = [("a", "b"), (IDENTITY_PROPERTY, identity)]
        packet = Publish(f"telemetry/{number % 4}", b"x" * 7 * number, qos, properties=properties)
        packet.packet_identifier = number
        packets += encode(packet, level)
    topics = {f"telemetry/{number}".encode(): f"telemetry/{number}" for number in range(4)}
    assert cut_publishes(packets, 0, level, topics, {b"device-7"}).end == len(packets)

    encoder = ColumnBatchEncoder()
    encoder.add_publishes(packets, level, "gateway-1", 3, 100, NOON_MS, "gateway-1")
    encoder.add_publishes(packets, level, "gateway-1", 3, 100, NOON_MS, "gateway-1", begin=5, end=8)
    batch = decode_batch(encoder.encode())

    expected = []
    for number, (topic, payload, common, own, _, _) in enumerate(read_publishes(packets, level)):
        properties = {} if common is None else common.properties
        expected.append((topic, payload, qos, properties, own or ("gateway-1", 3, 100 + number)))
    assert [
        (one.topic, one.payload, one.qos, properties_in(one.block), (one.origin, one.epoch, one.seq))
        for one in batch.messages()
    ] == expected + expected[5:8]
    assert [batch.content_types[place] for place in batch.block_of] == [
        properties.get(CONTENT_TYPE) for _, _, _, properties, _ in expected + expected[5:8]
    ]
    assert set(batch.received_ms) == {NOON_MS} and batch.receivers == ["gateway-1"]


def test_the_page_shows_the_payload_the_dictionary_and_a_decoder_of_forty_lines() -> None:
    shown = bytes.fromhex(re.findall(r"^```\n([0-9a-f \n]+)^```", PAGE, re.MULTILINE)[0])
    assert list(decode_batch(shown).messages()) == THREE
    assert body_of(encoded(THREE)) == body_of(shown)
    decoder, dictionary = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    assert len([line for line in decoder.splitlines() if line]) <= 40
    place: dict = {}
    exec(decoder + dictionary, place)
    assert place["DICTIONARY"] == DICTIONARY
    check_page_decoder(place["decode"])


@given(st.lists(messages, min_size=1, max_size=10))
def check_page_decoder(decode: Callable, many: list[BatchMessage]) -> None:
    assert list(decode(encoded(many), unzstd, DICTIONARY)) == [
        (
            one.topic.encode(),
            one.qos + 4 * one.retain,
            one.block,
            (one.origin.encode(), one.epoch, one.seq),
            (one.received_ms, one.received_by.encode()),
            one.payload,
        )
        for one in many
    ]


def test_a_batch_that_is_cut_off_anywhere_is_refused() -> None:
    payload = encoded(THREE)
    for size in range(len(payload)):
        with pytest.raises(MalformedBatch):
            decode_batch(payload[:size])
    with pytest.raises(MalformedBatch, match="bytes behind it"):
        decode_batch(payload + b"\0")


def test_a_bit_that_flips_is_found_or_changes_nothing() -> None:
    payload = encoded(THREE)
    unharmed = []
    for bit in range(8 * len(payload)):
        flipped = bytearray(payload)
        flipped[bit // 8] ^= 1 << bit % 8
        try:
            assert list(decode_batch(bytes(flipped)).messages()) == THREE
            unharmed.append(bit)
        except MalformedBatch:
            pass
    assert len(unharmed) <= 4, unharmed  # zstd has bits that mean nothing


def test_a_body_of_noise_is_an_error_or_a_sound_batch(seed: int) -> None:
    dice = random.Random(seed)
    sound = 0
    for _ in range(5000):
        many = dice.choices(THREE, k=dice.randint(1, 6))
        body = bytearray(body_of(encoded([one._replace(seq=dice.randint(1, 99)) for one in many])))
        for _ in range(dice.randint(1, 3)):
            at = dice.randrange(len(body))
            body[at : at + dice.choice((0, 1, 1, 1, 4))] = dice.randbytes(dice.choice((0, 1, 1, 2)))
        try:
            batch = decode_batch(packed(bytes(body)))
            check_sound(batch)
            assert origins_of(packed(bytes(body))) >= {run.origin for run in batch.runs}
            sound += 1
        except MalformedBatch:
            pass
    assert sound


def check_sound(batch: ColumnBatch) -> None:
    """What is decoded can be encoded, and says the same again."""
    many = list(batch.messages())
    assert len(many) == len(batch)
    assert list(decode_batch(encoded(many)).messages()) == many
    assert all(begin <= end for begin, end in pairwise(batch.offsets))


FIELDS: dict[str, bytes] = {
    "count": b"\x01",
    "topics": b"\x01\0\x01a",
    "topic of each": b"\0\0",
    "flags": b"\0\x01",
    "properties": b"\x01\0\0",
    "properties of each": b"\0\0",
    "origins": b"\x01\0\x01o",
    "runs": b"\x01",
    "origin of each run": b"\0\0",
    "epochs": b"\0\x07",
    "first seqs": b"\0\x01",
    "run of each": b"\0\0",
    "gateways": b"\x01\0\x01g",
    "gateway of each": b"\0\0",
    "first time": b"\x09",
    "time back": b"\0",
    "times": b"\0\0",
    "lengths": b"\0\x02",
    "payloads": b"hi",
}
HUGE = b"\xff" * 8 + b"\x7f"


def test_the_smallest_batch_is_decoded() -> None:
    (message,) = decode_batch(packed(b"".join(FIELDS.values()))).messages()
    assert message == BatchMessage("a", b"hi", 1, False, b"", "o", 7, 1, 9, "g")


@pytest.mark.parametrize(
    ("field", "content", "said"),
    [
        ("count", b"\0", "count: 0 messages"),
        ("count", b"\x80\x80\x04", "count: 65536 messages"),
        ("count", b"\xff" * 9 + b"\x01", "count: a number of more than 63 bits"),
        ("topics", b"\0", "topics: 0 entries"),
        ("topics", HUGE, "topics: 9223372036854775807 entries for 1 messages"),
        ("topics", b"\x01\0\x7fa", "topics: 127 bytes"),
        ("topics", b"\x01\0\0", "topics: a topic name is empty"),
        ("topics", b"\x01\0\x01#", "topics: topic name '#' holds a wildcard"),
        ("topics", b"\x01\0\x01\xff", "topics: 'utf-8' codec"),
        ("topic of each", b"\0\x01", "topic of each: place 1 in a table of 1"),
        ("topic of each", b"\x03\0", "topic of each: a column of kind 3"),
        ("flags", b"\0\x03", "flags: 3"),
        ("flags", b"\0\x07", "flags: 7"),
        ("flags", b"\0" + HUGE, "flags: 9223372036854775807"),
        ("properties", b"\x01\0\x01\x7f", "properties: property 0x7f"),
        ("origins", b"\x01\0\0", "origins: one is empty"),
        ("origins", b"\x01\0\x81\x02" + b"o" * 257, "origins: a name of 257 bytes"),
        ("runs", b"\x02", "runs: 2 entries for 1 messages"),
        ("epochs", b"\0\x80\x80\x80\x80\x10", "epochs: 4294967296"),
        ("first seqs", b"\0\0", "first seqs: from 0"),
        ("first seqs", b"\x08" + b"\xff" * 8, "first seqs: from 18446744073709551615"),
        ("run of each", b"\0\x01", "run of each: place 1"),
        ("gateways", b"\x01\0\x01\xff", "gateways: 'utf-8' codec"),
        ("gateway of each", b"\0\x05", "gateway of each: place 5"),
        ("time back", b"\x0a", "times: from -1"),
        ("times", b"\0" + HUGE, "times: from 9 to"),
        ("lengths", b"\0\x03", "payloads: 3 bytes"),
        ("lengths", b"\0\x01", "1 bytes behind the payloads"),
        ("lengths", b"\x08" + b"\xff" * 8, "lengths: 18446744073709551616 bytes in all messages"),
    ],
)
def test_an_error_names_the_field(field: str, content: bytes, said: str) -> None:
    with pytest.raises(MalformedBatch) as caught:
        decode_batch(packed(b"".join({**FIELDS, field: content}.values())))
    assert str(caught.value).startswith(said)


@pytest.mark.parametrize(
    ("payload", "said"),
    [
        (b"", "it does not begin with the letters hfb"),
        (b'[{"n":"load"}]', "it does not begin with the letters hfb"),
        (b"hfb", "version missing"),
        (b"hfb\x02", "version 02, this decoder reads 01"),
        (b"hfb\x01hello", "there is no zstd frame"),
        (b"hfb\x01" + zstd.compress(b"".join(FIELDS.values())), "there is no zstd frame with a checksum"),
    ],
)
def test_what_is_no_batch_is_refused_in_words(payload: bytes, said: str) -> None:
    with pytest.raises(MalformedBatch) as caught:
        decode_batch(payload)
    assert str(caught.value).startswith(said)


def bombs() -> dict[str, bytes]:
    topics = 0xFFFF.to_bytes(2, "little")
    count = {"count": b"\xff\xff\x03"}
    return {
        "a frame of zeros": bytes(SIZE_MAX + 1),
        "one topic name for all": b"".join(
            {**FIELDS, **count, "topics": b"\x01\x02" + topics + b"a" * 0xFFFF, "lengths": b"\0\0"}.values()
        ),
        "properties for all": b"".join(
            {
                **FIELDS,
                **count,
                "properties": b"\x01\x02\x13\x27\x26\x27\x10" + b"a" * 10_000 + b"\0\0",
                "lengths": b"\0\0",
            }.values()
        ),
        "a length for all": b"".join({**FIELDS, **count, "lengths": b"\0\xff\xff\xff\x7f"}.values()),
    }


@pytest.mark.parametrize("name", bombs())
def test_a_bomb_is_refused_in_bounded_memory(name: str) -> None:
    payload = packed(bombs()[name])
    assert len(payload) < 5000
    tracemalloc.start()
    with pytest.raises(MalformedBatch):
        decode_batch(payload)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < SIZE_MAX


def test_a_frame_without_its_size_is_refused() -> None:
    compressor = zstd.ZstdCompressor(options={zstd.CompressionParameter.checksum_flag: 1})
    frame = compressor.compress(bytes(100)) + compressor.flush()
    with pytest.raises(MalformedBatch, match="the zstd frame states None bytes"):
        decode_batch(b"hfb\x01" + frame)


def test_a_full_batch_takes_no_more_and_keeps_what_it_has() -> None:
    encoder = ColumnBatchEncoder()
    large = THREE[0]._replace(payload=bytes(SIZE_MAX // 2))
    encoder.add(*large)
    with pytest.raises(BatchFull, match="1 messages of"):
        encoder.add(*large._replace(seq=43))
    encoder.add(*THREE[1])
    assert list(decode_batch(encoder.encode()).messages()) == [large, THREE[1]]


def test_properties_that_take_much_memory_when_decoded_fill_a_batch_early() -> None:
    encoder = ColumnBatchEncoder()
    large = [THREE[0]._replace(block=b"\x26\0\x04%04x\0\0" % number * 1000) for number in range(200)]
    with pytest.raises(BatchFull):
        deque(starmap(encoder.add, large), maxlen=0)
    assert list(decode_batch(encoder.encode()).messages()) == large[: len(encoder)]
    assert len(encoder) > 50


def test_a_batch_that_the_encoder_takes_is_never_too_large_for_the_decoder(seed: int) -> None:
    dice = random.Random(seed)
    encoder = ColumnBatchEncoder()
    names = [f"{number}" + "n" * 250 for number in range(MESSAGES_MAX)]
    many = [THREE[0]._replace(origin=name, received_by=name, received_ms=dice.getrandbits(62)) for name in names]
    with pytest.raises(BatchFull):
        deque(starmap(encoder.add, many), maxlen=0)
    assert len(decode_batch(encoder.encode())) == len(encoder) > 20_000
