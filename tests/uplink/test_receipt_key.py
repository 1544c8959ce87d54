"""A route that has the key of the tables takes no other receipts."""

from typing import Any

import pytest

from uplink.config.receipt_key import ReceiptKey, problem_with_key
from wire.receipt import Receipt, Settled, encode_receipt, join_signature, receipt_topic, signed_bytes

signing = pytest.importorskip("nacl.signing", reason="PyNaCl is not installed [the extra receipts]")

TOPIC = receipt_topic("device")
PART = encode_receipt(Receipt("0000abcd", 7, [Settled(1, 9, [])]))


@pytest.fixture
def pair() -> tuple[ReceiptKey, Any]:
    private = signing.SigningKey.generate()
    return ReceiptKey(bytes(private.verify_key).hex()), private


def signed(private: Any, topic: str = TOPIC, part: bytes = PART) -> bytes:
    return join_signature(part, private.sign(signed_bytes(topic, part)).signature)


def test_a_receipt_that_was_signed_with_the_other_half_counts(
    pair: tuple[ReceiptKey, Any],
) -> None:
    key, private = pair
    assert key.problem_with(TOPIC, signed(private)) == ""


def test_a_receipt_without_a_signature_of_this_key_does_not_count(
    pair: tuple[ReceiptKey, Any],
) -> None:
    key, private = pair
    assert key.problem_with(TOPIC, PART) == "it is not signed"
    of_another = signed(signing.SigningKey.generate())
    for_another = signed(private, receipt_topic("other"))
    altered = signed(private).replace(b":9 ", b":8 ")
    for payload in (of_another, for_another, altered):
        assert key.problem_with(TOPIC, payload) == "its signature is not of this key"


@pytest.mark.parametrize("text", ["", "00" * 31, "00" * 33, "0 " * 32, "zz" * 32, "key.pem"])
def test_a_text_that_is_no_key_is_named(text: str) -> None:
    assert "expected 64 hexadecimal digits" in problem_with_key(text)


def test_a_key_is_found_to_be_one() -> None:
    assert problem_with_key("0f" * 32) == ""
