"""Multicast datagrams: what a receiver takes, what it refuses and counts, and how keys follow each other."""

import hashlib
import hmac
import random
import re
import tracemalloc
from pathlib import Path

import pytest

from wire.codec.packets import MQTT_5, Publish
from wire.multicast import DATAGRAM_MAX, HEAD_SIZE, OVERHEAD, TAG_SIZE, HandedKey, Mac, decode_key, is_same
from wire.multicast.receiver import WINDOW, MulticastReceiver
from wire.multicast.sender import ROOM, MulticastSender
from wire.properties import TOPIC_ALIAS

PAGE = (Path(__file__).parents[2] / "docs/reference/multicast.md").read_text()
KEY, NEXT_KEY, EPOCH = bytes(range(32)), bytes(range(32, 64)), b"\x01\x02\x03\x04\x05\x06\x07\x08"


def handed(number: int = 1, key: bytes = KEY, epoch: bytes = EPOCH, datagrams: int = 0, messages: int = 0) -> HandedKey:
    return HandedKey("wall", "239.192.7.7", 5007, number, key, epoch, datagrams, messages)


def receiver(**fields: object) -> MulticastReceiver:
    made = MulticastReceiver()
    made.take_key(handed(**fields))  # type: ignore[arg-type]
    return made


def sender(key: bytes = KEY, epoch: bytes = EPOCH) -> MulticastSender:
    return MulticastSender(epoch, 1, key)


def datagram(source: MulticastSender, *payloads: bytes) -> bytes:
    for payload in payloads:
        source.add(Publish("displays/1", payload).encode())
    return source.seal()


def payloads(packets: list[Publish]) -> list[bytes]:
    return [bytes(one.payload) for one in packets]


def refused(one: MulticastReceiver) -> dict[str, int]:
    return {reason: count for reason, count in one.refused.items() if count}


def sealed(head: bytes, packets: bytes, key: bytes = KEY) -> bytes:
    return head + packets + Mac(key).tag(head + packets)


def test_tags_are_those_of_pythons_hmac(seed: int) -> None:
    chance = random.Random(seed)
    for size in (0, 1, 32, 64):
        key, text = chance.randbytes(size), chance.randbytes(chance.randrange(1400))
        assert Mac(key).tag(text) == hmac.new(key, text, hashlib.sha256).digest()[:TAG_SIZE]


def test_tag_is_the_truncated_one_of_rfc_4231() -> None:
    """Test case 5 of RFC 4231, section 4.6."""
    assert Mac(b"\x0c" * 20).tag(b"Test With Truncation").hex() == "a3b6167473100ee06e0c796c2955552b"


def test_tags_are_compared_as_a_whole() -> None:
    assert is_same(b"abc", b"abc")
    for other in (b"abd", b"bbc", b"ab", b"abcd", b""):
        assert not is_same(b"abc", other)


def test_messages_that_share_a_datagram_come_in_their_order() -> None:
    source, one = sender(), receiver()
    assert payloads(one.receive(datagram(source, b"1", b"2", b"3"))) == [b"1", b"2", b"3"]
    assert payloads(one.receive(memoryview(datagram(source, b"4")))) == [b"4"]
    assert (one.datagrams, one.messages, one.lost_datagrams, one.lost_messages, refused(one)) == (2, 4, 0, 0, {})


def test_the_datagram_of_the_page_is_taken() -> None:
    shown = re.search(r"^48464d01[0-9a-f \n]+", PAGE, re.MULTILINE)
    assert shown
    one = receiver(epoch=b"12345678")
    assert one.receive(bytes.fromhex(shown[0])) == [Publish("displays/a", b"1")]


def test_a_message_keeps_its_properties() -> None:
    publish = Publish("a", b"x", retain=True, properties={3: "text/plain", 38: [("k", "v")]})
    source = sender()
    source.add(publish.encode())
    assert receiver().receive(source.seal()) == [publish]


def test_the_largest_datagram_is_taken_and_a_larger_one_is_not() -> None:
    source, one = sender(), receiver()
    fitting = Publish("displays/1", bytes(ROOM - 17)).encode()
    while len(fitting) < ROOM:
        fitting = Publish("displays/1", bytes(len(Publish.decode(0, fitting[3:], MQTT_5).payload) + 1)).encode()
    assert source.fits(fitting)
    assert not source.fits(fitting + b"\0")
    source.add(fitting)
    largest = source.seal()
    assert len(largest) == DATAGRAM_MAX
    assert one.receive(largest + b"\0") == []
    assert len(one.receive(largest)) == 1
    assert refused(one) == {"size": 1}


def test_a_replayed_datagram_is_refused_however_often_it_comes() -> None:
    source, one = sender(), receiver()
    first, second = datagram(source, b"1"), datagram(source, b"2")
    assert payloads(one.receive(first)) == [b"1"]
    for _ in range(10):
        assert one.receive(first) == []
    assert payloads(one.receive(second)) == [b"2"]
    assert refused(one) == {"replayed": 10}
    assert one.lost_datagrams == 0


def test_any_order_within_the_window_brings_each_datagram_once(seed: int) -> None:
    chance, source, one = random.Random(seed), sender(), receiver()
    sent = [datagram(source, b"%d" % number) for number in range(2000)]
    came: list[bytes] = []
    for start in range(0, len(sent), WINDOW // 2):
        part = sent[start : start + WINDOW // 2] * 2
        chance.shuffle(part)
        for each in part:
            came += payloads(one.receive(each))
    assert sorted(map(int, came)) == list(range(2000))
    assert (one.lost_datagrams, one.lost_messages, refused(one)) == (0, 0, {"replayed": 2000})


def test_a_datagram_that_is_later_than_the_window_is_refused() -> None:
    source, one = sender(), receiver()
    sent = [datagram(source, b"x") for _ in range(WINDOW + 1)]
    assert one.receive(sent[-1])
    assert one.receive(sent[1])
    assert one.receive(sent[0]) == []
    assert refused(one) == {"replayed": 1}


def test_what_was_sent_before_the_key_was_handed_out_is_neither_taken_nor_missed() -> None:
    source = sender()
    before = [datagram(source, b"old", b"old") for _ in range(5)]
    one = receiver(datagrams=5, messages=10)
    assert payloads(one.receive(datagram(source, b"new"))) == [b"new"]
    assert [one.receive(each) for each in before] == [[]] * 5
    assert (one.lost_datagrams, one.lost_messages) == (0, 0)


def test_datagrams_and_messages_that_do_not_come_are_counted_and_those_that_come_late_are_not() -> None:
    source, one = sender(), receiver()
    sent = [datagram(source, *[b"x"] * count) for count in (1, 2, 3, 4)]
    one.receive(sent[0])
    one.receive(sent[3])
    assert (one.lost_datagrams, one.lost_messages) == (2, 5)
    one.receive(sent[2])
    assert (one.lost_datagrams, one.lost_messages) == (1, 2)


def test_a_heartbeat_shows_that_the_last_datagrams_were_lost() -> None:
    source, one = sender(), receiver()
    datagram(source, b"1", b"2")
    assert one.receive(source.seal()) == []
    assert (one.datagrams, one.lost_datagrams, one.lost_messages, refused(one)) == (1, 1, 2, {})


def test_a_datagram_with_any_bit_changed_is_refused_and_the_right_one_is_taken_afterwards() -> None:
    source, one = sender(), receiver()
    right = datagram(source, b"payload")
    for bit in range(8 * len(right)):
        changed = bytearray(right)
        changed[bit // 8] ^= 1 << bit % 8
        assert one.receive(bytes(changed)) == []
    assert payloads(one.receive(right)) == [b"payload"]
    assert sum(one.refused.values()) == 8 * len(right)
    assert (one.datagrams, one.lost_datagrams) == (1, 0)


def test_a_datagram_cut_at_any_byte_is_refused() -> None:
    right = datagram(sender(), b"payload")
    one = receiver()
    for size in range(len(right)):
        assert one.receive(right[:size]) == []
    assert refused(one) == {"size": OVERHEAD, "forged": len(right) - OVERHEAD}
    assert payloads(one.receive(right)) == [b"payload"]


def test_a_datagram_under_another_key_or_of_another_epoch_is_refused() -> None:
    one = receiver()
    assert one.receive(datagram(sender(NEXT_KEY), b"x")) == []
    assert one.receive(datagram(sender(epoch=bytes(8)), b"x")) == []
    assert one.receive(datagram(MulticastSender(EPOCH, 2, KEY), b"x")) == []
    assert refused(one) == {"forged": 1, "epoch": 1, "key": 1}


def test_a_receiver_without_a_key_takes_nothing() -> None:
    one = MulticastReceiver()
    assert one.receive(datagram(sender(), b"x")) == []
    assert refused(one) == {"key": 1}


def test_the_next_key_is_known_before_it_is_used_and_ends_the_one_before() -> None:
    source, one = sender(), receiver()
    old = datagram(source, b"never came")
    one.take_key(handed(2, NEXT_KEY, datagrams=1, messages=1))
    assert one.receive(datagram(source, b"1"))
    source.use_key(2, NEXT_KEY)
    assert payloads(one.receive(datagram(source, b"2"))) == [b"2"]
    assert one.receive(old) == []
    assert refused(one) == {"key": 1}
    assert (one.lost_datagrams, one.lost_messages) == (1, 1)


def test_a_key_that_is_handed_out_again_changes_nothing() -> None:
    source, one = sender(), receiver()
    first = datagram(source, b"1")
    assert one.receive(first)
    one.take_key(handed(datagrams=1, messages=1))
    assert one.receive(first) == []
    datagram(source, b"lost")
    assert one.receive(datagram(source, b"3"))
    assert one.lost_messages == 1


def test_a_next_key_that_is_handed_out_anew_under_its_number_replaces_the_one_before() -> None:
    source, one = sender(), receiver()
    one.take_key(handed(2, KEY))
    one.take_key(handed(2, NEXT_KEY))
    assert one.receive(datagram(source, b"1"))
    assert one.receive(datagram(MulticastSender(EPOCH, 2, KEY), b"x", b"y")) == []
    source.use_key(2, NEXT_KEY)
    assert payloads(one.receive(datagram(source, b"2"))) == [b"2"]


def test_a_sender_that_starts_anew_is_followed_with_its_new_key_alone() -> None:
    one = receiver()
    before = sender()
    for _ in range(3):
        assert one.receive(datagram(before, b"x"))
    one.take_key(handed(1, NEXT_KEY, bytes(8)))
    anew = sender(NEXT_KEY, bytes(8))
    assert payloads(one.receive(datagram(anew, b"1"))) == [b"1"]
    assert one.receive(datagram(before, b"x")) == []
    assert (one.datagrams, one.lost_datagrams, refused(one)) == (4, 0, {"epoch": 1})


@pytest.mark.parametrize(
    "packets",
    [
        b"\x30",
        b"\x30\x05\0\x01a\0",
        b"\x30\xff\xff\xff\xff\x7f",
        Publish("a", b"x", 1, packet_identifier=1).encode(),
        Publish("a", b"x").encode() + b"\xc0\0",
        Publish("", b"x", properties={TOPIC_ALIAS: 1}).encode(),
        Publish("a", b"x", properties={TOPIC_ALIAS: 1}).encode(),
        b"\x30\x07\0\x01+\0xyz",
        b"\x30\x04\0\x01\xff\0",
    ],
    ids=["a byte", "cut", "length", "QoS 1", "PINGREQ", "alias alone", "alias", "wildcard", "UTF-8"],
)
def test_an_authentic_datagram_with_something_else_than_publishes_brings_nothing(packets: bytes) -> None:
    one = receiver()
    head = sender().seal()[: HEAD_SIZE - 16]
    assert one.receive(sealed(head + (1).to_bytes(8, "big") + bytes(8), Publish("a", b"1").encode() + packets)) == []
    assert refused(one) == {"malformed": 1}
    assert one.receive(sealed(head + (2).to_bytes(8, "big") + (2).to_bytes(8, "big"), Publish("a", b"2").encode()))
    assert (one.datagrams, one.lost_datagrams, one.messages, one.lost_messages) == (2, 0, 1, 2)


def test_whatever_a_holder_of_the_key_sends_is_publishes_or_malformed(seed: int) -> None:
    chance, one = random.Random(seed), receiver()
    head = sender().seal()[:16]
    right = [
        Publish("displays/1", b"x").encode(),
        Publish("a", b"", properties={1: 1, 2: 5, 3: "t", 8: "r", 9: b"c", 38: [("k", "v")]}).encode(),
    ]
    for number in range(1, 20_001):
        packets = bytearray(b"".join(chance.choices(right, k=chance.randrange(4))))
        for _ in range(chance.randrange(3)):
            if packets:
                packets[chance.randrange(len(packets))] = chance.randrange(256)
        if chance.random() < 0.1:
            packets = bytearray(chance.randbytes(chance.randrange(60)))
        before = chance.choice((0, number, 2**64 - 1)).to_bytes(8, "big")
        found = one.receive(sealed(head + number.to_bytes(8, "big") + before, bytes(packets)))
        assert all(isinstance(each, Publish) and each.qos == 0 and each.topic for each in found)
    assert one.datagrams == 20_000
    assert 0 < one.refused["malformed"] < 20_000


def test_hostile_datagrams_leave_nothing_but_counters(seed: int) -> None:
    chance, source, one = random.Random(seed), sender(), receiver()
    right = datagram(source, b"payload")
    assert one.receive(right)
    hostile = [chance.randbytes(chance.randrange(1500)) for _ in range(100)]
    hostile += [right[: chance.randrange(len(right))] for _ in range(100)]
    hostile += [right[:24] + chance.randbytes(8) + right[32:] for _ in range(100)]
    hostile += [right[:16] + chance.randbytes(8) + right[24:] for _ in range(100)]
    for each in hostile:
        assert one.receive(each) == []
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for _ in range(20):
        for each in hostile:
            one.receive(each)
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert grown < 1000
    assert (one.datagrams, one.messages, one.lost_datagrams) == (1, 1, 0)
    assert sum(one.refused.values()) == 21 * len(hostile)


def test_a_handed_key_is_read_as_it_was_written() -> None:
    one = decode_key(handed(7, datagrams=12, messages=345).encode())
    assert (one.name, one.address, one.port, one.number) == ("wall", "239.192.7.7", 5007, 7)
    assert (one.key, one.epoch, one.datagrams, one.messages) == (KEY, EPOCH, 12, 345)


@pytest.mark.parametrize(
    ("field", "bad", "what"),
    [
        (0, "", "a name"),
        (1, "239.192.7", "an IPv4 address"),
        (1, "239.192.7.256", "an IPv4 address"),
        (2, "65536", "a UDP port"),
        (3, "4294967296", "a key's number"),
        (4, "00" * 31, "a key of 32 bytes"),
        (4, "0G" * 32, "a key of 32 bytes"),
        (5, "00" * 9, "an epoch of 8 bytes"),
        (6, "-1", "a number of datagrams"),
        (7, "\u0661", "a number of messages"),
        (7, "9" * 19, "a number of messages"),
        (7, "1 2", "8 fields"),
    ],
)
def test_a_handed_key_that_cannot_be_read_is_refused_in_words_without_the_key(field: int, bad: str, what: str) -> None:
    fields = handed().encode().split(" ")
    fields[field] = bad
    with pytest.raises(ValueError, match=f"hf-multicast: expected {what}") as refusal:
        decode_key(" ".join(fields))
    assert KEY.hex()[:8] not in str(refusal.value)
