"""Receipts: their bytes, their topics, their signatures."""

import base64
import random
import re
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from hypothesis import given
from hypothesis import strategies as st

from wire.receipt import (
    LANDED_TOPIC,
    RECEIPT_BYTES_MAX,
    RUNS_MOST,
    SIGNATURE_ROOM,
    LandedUpTo,
    Receipt,
    Settled,
    decode_landed,
    decode_receipt,
    encode_landed,
    encode_receipt,
    join_signature,
    origin_of_topic,
    receipt_topic,
    signed_bytes,
    split_signature,
)
from wire.runs import runs_of

PAGE = (Path(__file__).parents[2] / "docs/reference/receipts.md").read_text()
RECEIPT = Receipt("3f0c9a1e", 1207, [Settled(0x1F, 42, [(44, 44), (50, 541)]), Settled(0xFFFFFFFF, 0, [(7, 9)])])
GOLDEN = b"hf1 3f0c9a1e 1207 0000001f:42,44,50-541;ffffffff:0,7-9"
LANDED = LandedUpTo("3f0c9a1e", 1207, 1_767_225_600_000)
GOLDEN_LANDED = b"hf1 3f0c9a1e 1207 1767225600000"
KEY = bytes(range(32))
SIGNATURE = "8cwcVPMI5YArouYxJCZa4y3Fss2qDMGIGzhMRO4bYqYy3jTjkwce4rYra0gFpazUKja7TwYUMDVc9uxvxbhxAw"

seqs = st.integers(1, 2**63 - 1)
origins = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=64)
awkward = st.text(st.sampled_from("%/+#$aF2\0\x7f\x80\ufdd0\uffff\U0010fffe é"), min_size=1, max_size=20)


@st.composite
def receipts(draw: st.DrawFn) -> Receipt:
    epochs, room = [], RUNS_MOST
    for epoch in draw(st.lists(st.integers(0, 0xFFFF_FFFF), min_size=1, max_size=8, unique=True)):
        high = draw(st.integers(0, 50) | seqs)
        beyond = draw(st.sets(st.integers(2, 60) | seqs, max_size=6))
        runs = runs_of(sorted(high + number for number in beyond if 1 < number <= 2**63 - 1 - high))[:room]
        room -= len(runs)
        epochs.append(Settled(epoch, high, runs))
    return Receipt(f"{draw(st.integers(0, 0xFFFF_FFFF)):08x}", draw(st.integers(0, 2**63 - 1)), epochs)


def test_a_receipt_is_encoded_as_documented() -> None:
    assert encode_receipt(RECEIPT) == GOLDEN
    assert decode_receipt(GOLDEN) == RECEIPT
    assert encode_landed(LANDED) == GOLDEN_LANDED
    assert decode_landed(memoryview(GOLDEN_LANDED)) == LANDED


def test_the_page_shows_what_the_code_does() -> None:
    plain, signed = (text.encode() for text in re.findall(r"^hf1 .*$", PAGE, re.MULTILINE))
    assert decode_receipt(plain) == decode_receipt(signed) == RECEIPT
    part, signature = split_signature(signed)
    key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(re.findall(r"public key is `([0-9a-f]{64})`", PAGE)[0]))
    key.verify(signature, signed_bytes("hf/receipt/barn%2F1", part))
    names = re.findall(r"^\| `([^`]+)` \| `(hf/receipt/[^`]+)` \|$", PAGE, re.MULTILINE)
    assert len(names) == 2
    for origin, topic in names:
        assert receipt_topic(origin) == topic


@given(receipts())
def test_a_receipt_comes_back_with_and_without_a_signature(receipt: Receipt) -> None:
    part = encode_receipt(receipt)
    assert decode_receipt(part) == receipt
    if len(part) + SIGNATURE_ROOM <= RECEIPT_BYTES_MAX:
        assert decode_receipt(join_signature(part, bytes(64))) == receipt


@given(st.integers(0, 2**63 - 1), st.integers(0, 2**63 - 1))
def test_a_landing_time_comes_back(batch: int, landed_ms: int) -> None:
    landed = LandedUpTo("0123abcd", batch, landed_ms)
    assert decode_landed(encode_landed(landed)) == landed


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "expected hf1"),
        ("hf1 3f0c9a1e 1207", "expected hf1"),
        ("hf1 3f0c9a1e 1207 0000001f:42 a b", "expected hf1"),
        ("hf1  3f0c9a1e 1207 0000001f:42", "signature of 11 characters"),
        ("hf1 3f0c9a1e 1207 0000001f:42 ", "signature of 0 characters"),
        ("hf2 3f0c9a1e 1207 0000001f:42", "version 'hf2'"),
        ("HF1 3f0c9a1e 1207 0000001f:42", "version 'HF1'"),
        ("hf1 3f0c9a1 1207 0000001f:42", "tables"),
        ("hf1 3f0c9a1e0 1207 0000001f:42", "tables"),
        ("hf1 3F0C9A1E 1207 0000001f:42", "tables"),
        ("hf1 3f0c9a1e x 0000001f:42", "batch 'x'"),
        ("hf1 3f0c9a1e -1 0000001f:42", "batch -1"),
        ("hf1 3f0c9a1e 01 0000001f:42", "spelt"),
        ("hf1 3f0c9a1e 9223372036854775808 0000001f:42", "batch 9223372036854775808"),
        ("hf1 3f0c9a1e 1207 1f:42", "spelt"),
        ("hf1 3f0c9a1e 1207 0000001F:42", "spelt"),
        ("hf1 3f0c9a1e 1207 100000000:42", "epoch 4294967296"),
        ("hf1 3f0c9a1e 1207 :42", "epoch ''"),
        ("hf1 3f0c9a1e 1207 0000001f", "no number"),
        ("hf1 3f0c9a1e 1207 0000001f:", "high ''"),
        ("hf1 3f0c9a1e 1207 0000001f:-1", "high -1"),
        ("hf1 3f0c9a1e 1207 0000001f:042", "spelt"),
        ("hf1 3f0c9a1e 1207 0000001f:4_2", "spelt"),
        ("hf1 3f0c9a1e 1207 0000001f:٤", "spelt"),
        ("hf1 3f0c9a1e 1207 0000001f:42,", "not a number"),
        ("hf1 3f0c9a1e 1207 0000001f:42,43", "number 43"),
        ("hf1 3f0c9a1e 1207 0000001f:42,41", "number 41"),
        ("hf1 3f0c9a1e 1207 0000001f:0,1-4", "number 1"),
        ("hf1 3f0c9a1e 1207 0000001f:42,44-44", "spelt"),
        ("hf1 3f0c9a1e 1207 0000001f:42,50,44", "number 44"),
        ("hf1 3f0c9a1e 1207 0000001f:42,44,45", "number 45"),
        ("hf1 3f0c9a1e 1207 0000001f:42;", "epoch ''"),
        ("hf1 3f0c9a1e 1207 0000001f:42;0000001f:43", "epoch 0000001f is there twice"),
        ("hf1 3f0c9a1e 1207 0000001f:1," + ",".join(str(n) for n in range(3, 69, 2)), "33 runs"),
        ("hf1 3f0c9a1e 1207 0000001f:42\n", "spelt"),
        ("hf1 3f0c9a1e 1207 " + 1007 * "0", "1025 bytes"),
        ("hf1 3f0c9a1e 1207 1767225600000", "no number behind its epoch"),
    ],
)
def test_a_malformed_receipt_names_what_is_wrong(text: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        decode_receipt(text.encode())


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("hf1 3f0c9a1e 1207 0000001f:42", "landed"),
        ("hf1 3f0c9a1e 1207 -5", "landed -5"),
        ("hf1 3f0c9a1e 1207 05", "spelt"),
        ("hf1 3f0c9a1e 1207 9223372036854775808", "landed 9223372036854775808"),
        ("hf0 3f0c9a1e 1207 5", "version 'hf0'"),
    ],
)
def test_a_malformed_landing_time_names_what_is_wrong(text: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        decode_landed(text.encode())


@pytest.mark.parametrize(
    ("receipt", "says"),
    [
        (RECEIPT._replace(epochs=[]), "no epoch"),
        (RECEIPT._replace(tables="3f0c9a1e-"), "tables"),
        (RECEIPT._replace(batch=True), "batch True"),
        (RECEIPT._replace(epochs=[Settled(n, 2**63 - 1, []) for n in range(40)]), "1177 bytes"),
        (RECEIPT._replace(epochs=[Settled(1, 0, [(2**63 - 1, 2**63)])]), "number 9223372036854775808"),
    ],
)
def test_what_is_no_receipt_is_not_encoded(receipt: Receipt, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        encode_receipt(receipt)


def test_random_changes_of_a_receipt_are_another_one_or_a_value_error(seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(20_000):
        changed = bytearray(chance.choice([GOLDEN, GOLDEN_LANDED, join_signature(GOLDEN, chance.randbytes(64))]))
        for _ in range(chance.randrange(1, 4)):
            place = chance.randrange(len(changed) + 1)
            changed[place : place + chance.randrange(3)] = chance.choice(
                [b"", b" ", b"0", b",", b"-", b";", b":", b"\xff"]
            )
        for decode, encode in ((decode_receipt, encode_receipt), (decode_landed, encode_landed)):
            try:
                found = decode(bytes(changed))
            except ValueError:
                continue
            assert encode(found) == split_signature(bytes(changed))[0]


@given(st.binary(max_size=1100))
def test_any_bytes_are_a_receipt_or_a_value_error(payload: bytes) -> None:
    for decode in (decode_receipt, decode_landed):
        with pytest.raises(ValueError, match=r"."):
            decode(payload + b"!")


def test_a_signature_is_of_topic_and_payload_as_documented() -> None:
    key = Ed25519PrivateKey.from_private_bytes(KEY)
    payload = join_signature(GOLDEN, key.sign(signed_bytes(receipt_topic("barn/1"), GOLDEN)))
    assert payload == GOLDEN + b" " + SIGNATURE.encode()
    assert len(payload) == len(GOLDEN) + SIGNATURE_ROOM
    part, signature = split_signature(payload)
    assert part == GOLDEN
    key.public_key().verify(signature, b"hf/receipt/barn%2F1\0" + GOLDEN)
    assert split_signature(GOLDEN) == (GOLDEN, b"")


@given(st.binary(min_size=64, max_size=64))
def test_a_signature_comes_back(signature: bytes) -> None:
    assert split_signature(join_signature(GOLDEN, signature)) == (GOLDEN, signature)


def test_a_signature_has_one_spelling() -> None:
    spelt = base64.urlsafe_b64encode(b"\xfb" * 64).rstrip(b"=")
    assert split_signature(GOLDEN + b" " + spelt)[1] == b"\xfb" * 64
    for bad in (
        spelt[:-1] + b"x",
        spelt[:-1],
        spelt + b"=",
        spelt.replace(b"-", b"+"),
        spelt[:-1] + b"*",
        b"\xff" * 86,
    ):
        with pytest.raises(ValueError, match="signature"):
            split_signature(GOLDEN + b" " + bad)


def test_a_signature_that_does_not_fit_is_not_added() -> None:
    with pytest.raises(ValueError, match="1025 bytes"):
        join_signature(b"x" * (RECEIPT_BYTES_MAX - SIGNATURE_ROOM + 1), bytes(64))
    with pytest.raises(ValueError, match="63 bytes"):
        join_signature(GOLDEN, bytes(63))


def test_topics_are_named_as_documented() -> None:
    assert receipt_topic("greenhouse-1") == "hf/receipt/greenhouse-1"
    assert receipt_topic("$a/b+c#d%$é\n") == "hf/receipt/%24a%2Fb%2Bc%23d%25$é%0A"
    assert receipt_topic("\x85\ufffe") == "hf/receipt/%C2%85%EF%BF%BE"
    assert LANDED_TOPIC == "hf/receipt"


@given(origins | awkward)
def test_the_origin_of_a_topic_comes_back_and_the_topic_is_one_level_without_wildcards(origin: str) -> None:
    if len(origin.encode()) <= 256:
        topic = receipt_topic(origin)
        assert origin_of_topic(topic) == origin
        assert not set(topic[len("hf/receipt/") :]) & set("/+#\0")


@pytest.mark.parametrize(
    ("topic", "says"),
    [
        ("hf/receipt", "does not begin"),
        ("hf/receipts/a", "does not begin"),
        ("hf/receipt/", "origin is empty"),
        ("hf/receipt/a/b", "how an origin's receipt is named"),
        ("hf/receipt/a%2fb", "how an origin's receipt is named"),
        ("hf/receipt/%61", "how an origin's receipt is named"),
        ("hf/receipt/a%24", "how an origin's receipt is named"),
        ("hf/receipt/$a", "how an origin's receipt is named"),
        ("hf/receipt/a%", "not of an octet"),
        ("hf/receipt/a%2", "how an origin's receipt is named"),
        ("hf/receipt/a%+2", "how an origin's receipt is named"),
        ("hf/receipt/a%-2", "not of an octet"),
        ("hf/receipt/a%zz", "not of an octet"),
        ("hf/receipt/%C2", "not of an octet"),
        ("hf/receipt/" + 257 * "a", "origin has 257 bytes"),
        ("hf/receipt/" + 10_000 * "%2F", "30011 characters"),
    ],
)
def test_a_topic_that_names_no_origin_is_refused(topic: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        origin_of_topic(topic)


@pytest.mark.parametrize("origin", ["", 257 * "a", 129 * "é"])
def test_an_origin_that_is_none_has_no_topic(origin: str) -> None:
    with pytest.raises(ValueError, match="origin"):
        receipt_topic(origin)
