"""Receipts [docs/reference/receipts.md]: what the tables have settled, told to each hop of a message's way.

Two retained messages of QoS 1:

    hf/receipt/ORIGIN   hf1 TABLES BATCH EPOCHS[ SIGNATURE]      which messages of an origin are settled
    hf/receipt          hf1 TABLES BATCH LANDED_MS[ SIGNATURE]   all that was landed by then is in the tables

A receipt claims what the tables hold, or less, and never more. Each has exactly one spelling.
"""

import binascii
from collections import namedtuple

from wire.identity import EPOCH_MAX, SEQ_MAX, check_name
from wire.runs import check_number, decode_runs, encode_runs

RECEIPT_TOPICS = "hf/receipt/"
"""What the topic name of an origin's receipt begins with."""
LANDED_TOPIC = "hf/receipt"
"""The topic name of the receipt for all that was landed."""
RECEIPT_BYTES_MAX = 1024
"""The most bytes of a payload, its signature included."""
RUNS_MOST = 32
"""The most runs in a receipt, over all its epochs."""
SIGNATURE_BYTES = 64  # RFC 8032, section 5.1.6
SIGNATURE_ROOM = 87
"""The bytes that a signature takes in a payload, with the blank before it."""

Receipt = namedtuple("Receipt", ("tables", "batch", "epochs"))
"""What the tables have settled of one origin.

`tables` names the tables: 8 lower-case hexadecimal digits. `batch` is the last batch that was counted. `epochs` are
`Settled`s, the newest epoch first.
"""

Settled = namedtuple("Settled", ("epoch", "high", "runs"))
"""All messages of an epoch from 1 to `high` are settled, and those in `runs`: (first, last), the lowest first.

`high` is 0 if the first message is not settled. No run is adjacent to `high` or to another run.
"""

LandedUpTo = namedtuple("LandedUpTo", ("tables", "batch", "landed_ms"))
"""What was landed up to `landed_ms` (Unix time in ms, by the landers' clocks) is in the tables."""

_VERSION = "hf1"
_ESCAPED = "%/+#"  # MQTT gives the last three a meaning in topics


def encode_receipt(receipt):
    """Returns a Receipt's payload without a signature. Raises ValueError if a part is out of range, or all too long."""
    if not receipt.epochs:
        raise ValueError("there is no epoch")
    runs, known = 0, set()
    for one in receipt.epochs:
        check_number("epoch", one.epoch, 0, EPOCH_MAX)
        if one.epoch in known:
            raise ValueError(f"epoch {one.epoch:08x} is there twice")
        known.add(one.epoch)
        runs += len(one.runs)
    if runs > RUNS_MOST:
        raise ValueError(f"{runs} runs, expected {RUNS_MOST} at most")
    return _encode(receipt, ";".join([_encode_settled(one) for one in receipt.epochs]))


def decode_receipt(payload):
    """Returns the Receipt in a payload with or without a signature, which is not verified here.

    Raises ValueError naming the fault.
    """
    part, _ = split_signature(payload)
    tables, batch, text = _split(part)
    receipt = Receipt(tables, batch, [_decode_settled(one) for one in text.split(";")])
    if encode_receipt(receipt) != part:
        raise ValueError("this is not how a receipt is spelt")
    return receipt


def encode_landed(landed):
    """Returns a LandedUpTo's payload without a signature. Raises ValueError if a part is out of range."""
    check_number("landed", landed.landed_ms, 0, SEQ_MAX)
    return _encode(landed, f"{landed.landed_ms}")


def decode_landed(payload):
    """Returns the LandedUpTo in a payload with or without a signature, which is not verified here.

    Raises ValueError naming the fault.
    """
    part, _ = split_signature(payload)
    tables, batch, text = _split(part)
    landed = LandedUpTo(tables, batch, _number("landed", text))
    if encode_landed(landed) != part:
        raise ValueError("this is not how a receipt is spelt")
    return landed


def split_signature(payload):
    """Returns (the part of a payload that is signed, its signature), b"" as signature if there is none.

    Raises ValueError if the payload is too long or no receipt, or the signature is not spelt as one of 64 bytes.
    """
    if len(payload) > RECEIPT_BYTES_MAX:
        raise ValueError(f"a receipt of {len(payload)} bytes, expected {RECEIPT_BYTES_MAX} at most")
    words = bytes(payload).split(b" ")
    if not 4 <= len(words) <= 5:
        raise ValueError("expected hf1, tables, batch and what is settled, and perhaps a signature")
    if len(words) == 4:
        return bytes(payload), b""
    text = words[4]
    if len(text) != SIGNATURE_ROOM - 1:
        raise ValueError(f"a signature of {len(text)} characters, expected {SIGNATURE_ROOM - 1}")
    try:
        signature = binascii.a2b_base64(text.replace(b"-", b"+").replace(b"_", b"/") + b"==")
    except ValueError:
        signature = b""
    if len(signature) != SIGNATURE_BYTES or _base64url(signature) != text:
        raise ValueError("the signature is not base64url of 64 bytes")
    return bytes(payload[:-SIGNATURE_ROOM]), signature


def join_signature(part, signature):
    """Returns the payload of a signed part and its signature of 64 bytes. Raises ValueError if it is too long."""
    if len(signature) != SIGNATURE_BYTES:
        raise ValueError(f"a signature of {len(signature)} bytes, expected {SIGNATURE_BYTES}")
    return _fitting(part + b" " + _base64url(signature))


def signed_bytes(topic, part):
    """Returns the bytes that are signed: the topic name, a NUL, and the payload before the blank of the signature."""
    return topic.encode() + b"\0" + bytes(part)


def receipt_topic(origin):
    """Returns the topic name of an origin's receipt. Raises ValueError if the origin is empty or too long."""
    if not origin:
        raise ValueError("origin is empty")
    check_name("origin", origin)
    escaped = [_escape(one) if _is_escaped(one) else one for one in origin]
    if origin[0] == "$":
        escaped[0] = _escape("$")
    return RECEIPT_TOPICS + "".join(escaped)


def origin_of_topic(topic):
    """Returns the origin in the topic name of its receipt. Raises ValueError naming the fault."""
    if not topic.startswith(RECEIPT_TOPICS):
        raise ValueError(f"topic {topic[:64]!r} does not begin with {RECEIPT_TOPICS}")
    if len(topic) > len(RECEIPT_TOPICS) + 3 * 256:
        raise ValueError(f"a topic of {len(topic)} characters is too long for an origin's receipt")
    pieces = topic[len(RECEIPT_TOPICS) :].split("%")
    try:
        octets = pieces[0].encode() + b"".join([bytes((int(one[:2], 16),)) + one[2:].encode() for one in pieces[1:]])
        origin = str(octets, "utf-8")
    except ValueError:
        raise ValueError(f"topic {topic[:64]!r} has a % that is not of an octet in UTF-8")
    if receipt_topic(origin) != topic:
        raise ValueError(f"topic {topic[:64]!r} is not how an origin's receipt is named")
    return origin


def _encode(receipt, text):
    if not isinstance(receipt.tables, str) or len(receipt.tables) != 8 or not _is_lower_hex(receipt.tables):
        raise ValueError(f"tables {receipt.tables!r} are not eight lower-case hexadecimal digits")
    check_number("batch", receipt.batch, 0, SEQ_MAX)
    return _fitting(f"{_VERSION} {receipt.tables} {receipt.batch} {text}".encode())


def _fitting(payload):
    if len(payload) > RECEIPT_BYTES_MAX:
        raise ValueError(f"a receipt of {len(payload)} bytes, expected {RECEIPT_BYTES_MAX} at most")
    return payload


def _split(part):
    version, tables, batch, text = str(part, "utf-8").split(" ")
    if version != _VERSION:
        raise ValueError(f"version {version[:16]!r} of a receipt, expected {_VERSION}")
    return tables, _number("batch", batch), text


def _encode_settled(one):
    check_number("high", one.high, 0, SEQ_MAX)
    runs = "," + encode_runs(one.runs, one.high + 1) if one.runs else ""
    return f"{one.epoch:08x}:{one.high}{runs}"


def _decode_settled(text):
    epoch, colon, rest = text.partition(":")
    high, comma, runs = rest.partition(",")
    try:
        epoch = int(epoch[:16], 16)
    except ValueError:
        raise ValueError(f"epoch {epoch[:32]!r} is not a number")
    if not colon:
        raise ValueError(f"{text[:32]!r} has no number behind its epoch")
    high = _number("high", high)
    return Settled(epoch, high, decode_runs(runs, high + 1) if comma else [])


def _number(what, text):
    try:
        return int(text[:20])
    except ValueError:
        raise ValueError(f"{what} {text[:32]!r} is not a number")


def _base64url(octets):
    return binascii.b2a_base64(octets).rstrip(b"=\n").replace(b"+", b"-").replace(b"/", b"_")


def _is_lower_hex(text):
    return all(one in "0123456789abcdef" for one in text)


def _is_escaped(one):
    """Whether a character is escaped in a topic: a broker gives it a meaning, or may refuse it [MQTT-1.5.4]."""
    code = ord(one)
    if one in _ESCAPED or code < 0x20 or 0x7F <= code < 0xA0:
        return True
    return 0xFDD0 <= code <= 0xFDEF or code & 0xFFFE == 0xFFFE  # no characters, by section 23.7 of Unicode


def _escape(one):
    return "".join([f"%{octet:02X}" for octet in one.encode()])
