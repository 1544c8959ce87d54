"""The sender of a multicast group: it joins PUBLISHes to datagrams, and authenticates them."""

from wire.multicast import DATAGRAM_MAX, LAYOUT, OVERHEAD, Mac

ROOM = DATAGRAM_MAX - OVERHEAD  # bytes of PUBLISHes in a datagram


class MulticastSender:
    """Makes the datagrams of one epoch.

    Args:
        epoch: 8 random bytes, new with each start.
        number: the number of the first key.
        key: 32 bytes.

    Attributes:
        datagrams: how many datagrams were made.
        messages: how many messages they have.
    """

    def __init__(self, epoch: bytes, number: int, key: bytes) -> None:
        self.datagrams = self.messages = 0
        self._epoch = epoch
        self._packets: list = []
        self._size = 0
        self.use_key(number, key)

    def use_key(self, number: int, key: bytes) -> None:
        """Authenticates the next datagrams with another key."""
        self._start = LAYOUT + number.to_bytes(4, "big") + self._epoch
        self._mac = Mac(key)

    def fits(self, packet: bytes) -> bool:
        """Whether a PUBLISH fits the datagram to which others may have been added."""
        return self._size + len(packet) <= ROOM

    def add(self, packet: bytes) -> None:
        """Adds a PUBLISH that fits."""
        self._packets.append(packet)
        self._size += len(packet)

    @property
    def has_messages(self) -> bool:
        """Whether PUBLISHes wait to be sealed."""
        return self._size > 0

    def seal(self) -> bytes:
        """Returns a datagram with the PUBLISHes that were added; without any it is a heartbeat."""
        self.datagrams += 1
        head = self._start + self.datagrams.to_bytes(8, "big") + self.messages.to_bytes(8, "big")
        text = head + b"".join(self._packets)
        self.messages += len(self._packets)
        self._packets, self._size = [], 0
        return text + self._mac.tag(text)
