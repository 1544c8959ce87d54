"""The receiver of a multicast group: which datagrams count, which messages they bring, and how many were lost.

A datagram passes these checks in this order, and nothing of it is looked at before:

    size → layout → key → epoch → not seen yet → tag → PUBLISHes

One that fails costs a counter and nothing else: no memory, no change of state, no line of a log. Only one whose tag
holds moves the window. So a sender without the key cannot make the receiver refuse what the gateway sends.
"""

from wire.codec import MQTT_5
from wire.codec.publish import Publish
from wire.errors import WireError
from wire.multicast import (
    DATAGRAM_MAX,
    HEAD_SIZE,
    LAYOUT,
    OVERHEAD,
    TAG_SIZE,
    HandedKey,
    Mac,
    is_same,
)
from wire.packet_types import PUBLISH
from wire.primitives import decode_varint
from wire.properties import TOPIC_ALIAS

WINDOW = 256  # datagrams; a multiple of 8. One that is overtaken by this number of newer ones is refused
BAD_SIZE, BAD_LAYOUT, UNKNOWN_KEY, OTHER_EPOCH = "size", "layout", "key", "epoch"
REPLAYED, FORGED, MALFORMED = "replayed", "forged", "malformed"
REFUSALS = (BAD_SIZE, BAD_LAYOUT, UNKNOWN_KEY, OTHER_EPOCH, REPLAYED, FORGED, MALFORMED)


class _ReplayWindow:
    """Which datagrams of an epoch have come; it remembers the last WINDOW of them (RFC 6479).

    Args:
        newest: datagrams with numbers up to this one are refused.
    """

    def __init__(self, newest: int) -> None:
        self._first = newest
        self.newest = newest
        self._seen = bytearray(WINDOW // 8)

    def may_take(self, number: int) -> bool:
        if number > self.newest:
            return True
        if number <= self._first or number <= self.newest - WINDOW:
            return False
        return not self._seen[number % WINDOW >> 3] & 1 << (number & 7)

    def note(self, number: int) -> None:
        for skipped in range(max(self.newest + 1, number - WINDOW + 1), number + 1):
            self._seen[skipped % WINDOW >> 3] &= 0xFF ^ 1 << (skipped & 7)
        self.newest = max(self.newest, number)
        self._seen[number % WINDOW >> 3] |= 1 << (number & 7)


class MulticastReceiver:
    """Receives one group.

    Attributes:
        datagrams: how many datagrams were taken.
        messages: how many messages they brought.
        refused: how many datagrams were not taken, by the check that they failed: one of REFUSALS.
    """

    def __init__(self) -> None:
        self.datagrams = self.messages = 0
        self.refused: dict = dict.fromkeys(REFUSALS, 0)
        self._macs: dict = {}  # by the number of the key: the one in use, and the next one
        self._epoch = b""
        self._window = _ReplayWindow(0)
        self._datagrams_sent = self._messages_sent = 0  # as far as they count here
        self._messages_of_epoch = 0

    @property
    def lost_datagrams(self) -> int:
        """Datagrams that were sent since the first key was handed out and have not come, as far as newer ones tell."""
        return self._datagrams_sent - self.datagrams

    @property
    def lost_messages(self) -> int:
        """Messages in these, and in datagrams that are `malformed`."""
        return self._messages_sent - self.messages

    def take_key(self, handed: HandedKey) -> None:
        """Takes a key. One of another epoch replaces all others: the gateway has started anew.

        One with the number of a key that is known replaces it: the gateway has handed it out anew, before its use.
        """
        if handed.epoch != self._epoch:
            self._epoch = handed.epoch
            self._macs = {}
            self._window = _ReplayWindow(handed.datagrams)
            self._messages_of_epoch = handed.messages
        self._macs[handed.number] = Mac(handed.key)
        for number in sorted(self._macs)[:-2]:
            del self._macs[number]

    def receive(self, datagram: bytes | memoryview) -> list:
        """Returns the PUBLISHes of a datagram, which may be none; an empty list too if it is refused."""
        if not OVERHEAD <= len(datagram) <= DATAGRAM_MAX:
            return self._refuse(BAD_SIZE)
        view = memoryview(datagram)
        if bytes(view[:4]) != LAYOUT:
            return self._refuse(BAD_LAYOUT)
        key = int.from_bytes(bytes(view[4:8]), "big")
        mac = self._macs.get(key)
        if mac is None:
            return self._refuse(UNKNOWN_KEY)
        if bytes(view[8:16]) != self._epoch:
            return self._refuse(OTHER_EPOCH)
        number = int.from_bytes(bytes(view[16:24]), "big")
        if not self._window.may_take(number):
            return self._refuse(REPLAYED)
        end = len(view) - TAG_SIZE
        if not is_same(mac.tag(view[:end]), view[end:]):
            return self._refuse(FORGED)
        self._note_sent(number)
        for other in [one for one in self._macs if one < key]:
            del self._macs[other]  # a key ends with the first datagram of the next one
        before = int.from_bytes(bytes(view[24:32]), "big")
        return self._open(before, bytes(view[HEAD_SIZE:end]))

    def _note_sent(self, number: int) -> None:
        self._datagrams_sent += max(0, number - self._window.newest)
        self._window.note(number)
        self.datagrams += 1

    def _open(self, before: int, packets: bytes) -> list:
        """Reads the PUBLISHes of a datagram that is authentic, and counts how many messages there have been."""
        try:
            found = _read_publishes(packets)
        except WireError:
            found = self._refuse(MALFORMED)
        upto = before + len(found)
        self._messages_sent += max(0, upto - self._messages_of_epoch)
        self._messages_of_epoch = max(upto, self._messages_of_epoch)
        self.messages += len(found)
        return found

    def _refuse(self, reason: str) -> list:
        self.refused[reason] += 1
        return []


def _read_publishes(packets: bytes) -> list:
    """Raises WireError unless the bytes are whole PUBLISHes of QoS 0 with their topic names."""
    found = []
    offset = 0
    while offset < len(packets):
        length, start = decode_varint(packets, offset + 1)
        if start == 0 or start + length > len(packets) or packets[offset] & 0xFE != PUBLISH << 4:
            raise WireError("a datagram has something else than whole PUBLISHes of QoS 0")
        first, offset = offset, start + length
        publish = Publish.decode(packets[first] & 1, packets[start:offset], MQTT_5)
        if TOPIC_ALIAS in publish.properties:
            raise WireError("a PUBLISH in a datagram has a topic alias")
        found.append(publish)
    return found
