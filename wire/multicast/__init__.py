"""Authenticated UDP multicast: the keys that a gateway hands out, and the layout of a datagram.

    wire.multicast           HandedKey, and what both ends need of a datagram
    wire.multicast.receiver  MulticastReceiver
    wire.multicast.sender    MulticastSender

A datagram, in this order; numbers have their most significant byte first:

    bytes
    4     "HFM", and 1 for the version of the layout
    4     number of the key
    8     epoch: random, new with each start of the sender
    8     number of the datagram in the epoch, from 1
    8     how many messages the epoch had before this datagram
    any   whole MQTT 5 PUBLISHes of QoS 0, none in a heartbeat
    16    tag: the first 16 bytes of HMAC-SHA-256 over all bytes before it (RFC 2104, RFC 4868)
"""

from hashlib import sha256

MULTICAST_PROPERTY = "hf-multicast"
MULTICAST_TOPIC = "$holdfast/multicast/"  # and the group's name: the topic of the next key
DATAGRAM_MAX = 1400  # bytes: with the headers of IPv4 or IPv6 and UDP it fits an Ethernet frame, tunnels included
LAYOUT = b"HFM\x01"
HEAD_SIZE, TAG_SIZE = 32, 16
OVERHEAD = HEAD_SIZE + TAG_SIZE
KEY_SIZE, EPOCH_SIZE = 32, 8
BLOCK_SIZE = 64  # of SHA-256
FIELDS = 8  # of a handed key
PORT_MAX, NUMBER_MAX = 65_535, (1 << 63) - 1
DIGITS, HEX_DIGITS = "0123456789", "0123456789abcdef"


class Mac:
    """HMAC-SHA-256, truncated to 128 bits (RFC 2104, RFC 4868). MicroPython has no `hmac`.

    Args:
        key: at most 64 bytes.
    """

    def __init__(self, key: bytes) -> None:
        block = key + bytes(BLOCK_SIZE - len(key))
        self._inner = bytes([byte ^ 0x36 for byte in block])
        self._outer = bytes([byte ^ 0x5C for byte in block])

    def tag(self, text: bytes | memoryview) -> bytes:
        inner = sha256(self._inner)
        inner.update(text)
        outer = sha256(self._outer)
        outer.update(inner.digest())
        return outer.digest()[:TAG_SIZE]


def is_same(one: bytes, other: bytes | memoryview) -> bool:
    """Whether two tags are the same. The time that this takes does not tell how much of them is."""
    difference = len(one) ^ len(other)
    for index in range(min(len(one), len(other))):
        difference |= one[index] ^ other[index]
    return difference == 0


class HandedKey:
    """A key of a multicast group, as a gateway hands it out over TLS: in a SUBACK, and before the next key is used.

    As text: "{name} {address} {port} {number} {key} {epoch} {datagrams} {messages}", key and epoch in hexadecimal.

    Args:
        name: the group's name.
        address: its IPv4 address.
        port: its UDP port.
        number: the key's number. Keys of one epoch have rising numbers.
        key: 32 bytes.
        epoch: 8 bytes, the epoch of the datagrams that the key authenticates.
        datagrams: how many datagrams the epoch had when the key was handed out.
        messages: how many messages they had.
    """

    def __init__(
        self, name: str, address: str, port: int, number: int, key: bytes, epoch: bytes, datagrams: int, messages: int
    ) -> None:
        self.name = name
        self.address = address
        self.port = port
        self.number = number
        self.key = key
        self.epoch = epoch
        self.datagrams = datagrams
        self.messages = messages

    def encode(self) -> str:
        numbers = f"{self.datagrams} {self.messages}"
        return f"{self.name} {self.address} {self.port} {self.number} {self.key.hex()} {self.epoch.hex()} {numbers}"


def decode_key(text: str) -> HandedKey:
    """Reads a key that was handed out. Raises ValueError, whose text does not have the key."""
    fields = text.split(" ")
    if len(fields) != FIELDS:
        raise ValueError(f"hf-multicast: expected {FIELDS} fields, not {len(fields)}")
    name, address, port, number, key, epoch, datagrams, messages = fields
    if not name:
        raise ValueError("hf-multicast: expected a name")
    parts = address.split(".")
    if len(parts) != 4 or [one for one in parts if _number(one, 255, "an IPv4 address") < 0]:
        raise ValueError("hf-multicast: expected an IPv4 address")
    return HandedKey(
        name,
        address,
        _number(port, PORT_MAX, "a UDP port"),
        _number(number, 0xFFFF_FFFF, "a key's number"),
        _bytes(key, KEY_SIZE, "a key"),
        _bytes(epoch, EPOCH_SIZE, "an epoch"),
        _number(datagrams, NUMBER_MAX, "a number of datagrams"),
        _number(messages, NUMBER_MAX, "a number of messages"),
    )


def _number(text: str, most: int, what: str) -> int:
    if not text or len(text) > 19 or [one for one in text if one not in DIGITS] or int(text) > most:
        raise ValueError(f"hf-multicast: expected {what}, {most} at most")
    return int(text)


def _bytes(text: str, size: int, what: str) -> bytes:
    if len(text) != 2 * size or [one for one in text if one not in HEX_DIGITS]:
        raise ValueError(f"hf-multicast: expected {what} of {size} bytes in hexadecimal")
    return bytes([int(text[index : index + 2], 16) for index in range(0, 2 * size, 2)])
