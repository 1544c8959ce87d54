"""The digest of a message's content: equal for equal messages, another one for each other topic or payload."""

import random

import pytest

from wire.bulk.content_digest import DIGEST_BYTES, content_digest, digests_of
from wire.bulk.publishes import cut_contents, split_publish
from wire.codec.packets import MQTT_3_1_1, MQTT_5
from wire.primitives import encode_varint


def test_a_message_that_comes_again_has_the_digest_that_it_had():
    assert content_digest("kitchen/temperature", b"21.5") == bytes.fromhex(
        "a21c4078a0be950c"
    )  # is stored: never changes


def test_another_payload_or_another_topic_has_another_digest():
    contents = [
        ("kitchen", b"21.5"),
        ("kitchen", b"21.6"),
        ("cellar", b"21.5"),
        ("kitchen", b""),
        ("k\u00fcche", b"21.5"),
    ]
    assert len({content_digest(*one) for one in contents}) == len(contents)


def test_a_digest_knows_where_the_topic_ends():
    whole = "kitchen/temperature"
    assert len({content_digest(whole[:cut], whole[cut:].encode()) for cut in range(1, len(whole))}) == len(whole) - 1


def test_one_changed_bit_changes_the_first_bytes_too(seed):
    """A store keeps only some bytes of each digest."""
    chance = random.Random(seed)
    payload = chance.randbytes(64)
    digests = {content_digest("t", payload)[:4]}
    for bit in range(len(payload) * 8):
        flipped = bytearray(payload)
        flipped[bit // 8] ^= 1 << bit % 8
        digests.add(content_digest("t", bytes(flipped))[:4])
    assert len(digests) >= len(payload) * 8  # two of 513 may be equal, once in 32,000 runs


def test_a_digest_has_its_stated_length():
    assert len(content_digest("t", bytes(100_000))) == DIGEST_BYTES


def test_a_topic_that_no_publish_can_have_is_refused():
    with pytest.raises(OverflowError):
        content_digest("t" * 65536, b"")


@pytest.mark.parametrize("level", [MQTT_3_1_1, MQTT_5])
def test_publishes_as_bytes_have_the_digests_of_their_messages(seed, level):
    """Whatever the lengths of topic, properties, packet and payload."""
    chance = random.Random(seed)
    packets, expected = b"", []
    for _ in range(200):
        topic = "t" * chance.choice((1, 100, 300)) + chance.choice(("", "\u00fc"))
        payload = chance.randbytes(chance.choice((0, 1, 30, 300)))
        text = b"x" * chance.choice((1, 30, 120, 200))
        block = b"\x03" + len(text).to_bytes(2, "big") + text  # a content type
        with_length = encode_varint(len(block)) + block if level == MQTT_5 else b""
        head, tail = split_publish(topic, with_length, payload, 1)
        packets += head + b"\0\1" + tail
        expected.append(content_digest(topic, payload))
    assert digests_of(cut_contents(packets, level)) == expected
