"""Multicast datagrams on MicroPython: tags, what is taken and refused, and the heap under hostile datagrams.

Prints the bytes of heap that hostile datagrams have left.
"""

import gc
import sys

from wire.codec.publish import Publish
from wire.multicast import Mac, decode_key
from wire.multicast.receiver import MulticastReceiver
from wire.multicast.sender import MulticastSender

KEY, EPOCH = bytes(range(32)), b"12345678"
TEXT = "wall 239.192.7.7 5007 1 " + KEY.hex() + " " + EPOCH.hex() + " 0 0"

assert Mac(b"\x0c" * 20).tag(b"Test With Truncation").hex() == "a3b6167473100ee06e0c796c2955552b"

sender, receiver = MulticastSender(EPOCH, 1, KEY), MulticastReceiver()
handed = decode_key(TEXT)
assert handed.encode() == TEXT
receiver.take_key(handed)
for payload in (b"1", b"2"):
    sender.add(Publish("displays/\u00e9", payload).encode())
first = sender.seal()
assert first.hex() == sys.argv[1], first.hex()
came = receiver.receive(first)
assert [(one.topic, one.payload) for one in came] == [("displays/\u00e9", b"1"), ("displays/\u00e9", b"2")]
sender.add(Publish("displays/2", b"lost").encode())
sender.seal()
assert receiver.receive(memoryview(sender.seal())) == []
assert (receiver.lost_datagrams, receiver.lost_messages) == (1, 1)


def attack():
    for bit in range(8 * len(first)):
        changed = bytearray(first)
        changed[bit // 8] ^= 1 << bit % 8
        assert receiver.receive(bytes(changed)) == []
    for size in range(len(first) + 1):
        assert receiver.receive(first[:size]) == []


left = [0] * 4  # bytes of heap in use after each round
for turn in range(4):
    attack()
    gc.collect()
    left[turn] = gc.mem_alloc()  # type: ignore[attr-defined]
assert sum(receiver.refused.values()) == 4 * (9 * len(first) + 1)
assert (receiver.datagrams, receiver.messages) == (2, 2)
print(left[3] - left[1])
