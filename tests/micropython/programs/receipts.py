"""Receipts: the same on MicroPython as on CPython, and random changes of one leave a ValueError or a receipt."""

import random
import sys

from wire.receipt import (
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
    split_signature,
)


def refused(function, *arguments):
    try:
        function(*arguments)
    except ValueError:
        return True
    return False


golden, landed, signed = [text.encode() for text in sys.argv[2:5]]
topic, origin = [bytes.fromhex(text).decode() for text in sys.argv[5:]]
receipt = Receipt("3f0c9a1e", 1207, [Settled(0x1F, 42, [(44, 44), (50, 541)]), Settled(0xFFFFFFFF, 0, [(7, 9)])])
assert encode_receipt(receipt) == golden and decode_receipt(golden) == receipt == decode_receipt(signed)
assert (
    decode_landed(landed) == LandedUpTo("3f0c9a1e", 1207, 1767225600000)
    and encode_landed(decode_landed(landed)) == landed
)
part, signature = split_signature(signed)
assert part == golden and len(signature) == 64 and join_signature(part, signature) == signed
assert receipt_topic(origin) == topic and origin_of_topic(topic) == origin
assert all(refused(origin_of_topic, "hf/receipt/" + bad) for bad in ("", "a/b", "%61", "a%2f", "a%", "%C2", "%zz", "$"))
for bad in (
    b"",
    golden + b" ",
    golden + b"\xff",
    golden + b"=" * 1024,
    signed + b"=",
    signed[:-1] + b"*",
    golden + b",5",
):
    assert refused(decode_receipt, bad)
biggest = b"hf1 3f0c9a1e 1207 0000001f:9223372036854775807"
assert decode_receipt(biggest).epochs[0].high == 2**63 - 1 and refused(decode_receipt, biggest[:-1] + b"8")

random.seed(int(sys.argv[1]))
kept = 0
for _ in range(5000):
    changed = bytearray(random.choice((golden, landed, signed)))
    for _ in range(random.randrange(1, 4)):
        place = random.randrange(len(changed))
        changed[place : place + random.randrange(3)] = bytes((random.choice(b" 0,-;:\xff"),))
    for decode, encode in ((decode_receipt, encode_receipt), (decode_landed, encode_landed)):
        try:
            found = decode(bytes(changed))
        except ValueError:
            continue
        kept += 1
        assert encode(found) == split_signature(bytes(changed))[0]
print(kept)
