"""Many messages as one piece of bytes: PUBLISHes of one client as they came, back to back."""

from collections.abc import Iterator

from gateway.message import Message, form
from gateway.property_block import find, read
from wire.packets import MQTT_5

IDENTIFIER_SIZE = 2
OVERHEAD = 200  # bytes in memory, roughly


class Run:
    """PUBLISHes with ordinary properties, of one QoS, neither DUP nor RETAIN.

    Args:
        packets: their bytes.
        topics: the topic names in it, each once.
        count: how many there are.
        level: the protocol level that they are of.
        publisher: the client identifier that they came from.
        received_ms: when, as unix time.
        gateway: the gateway that accepted them, which is the origin of their identities.
        epoch, first_seq: the first one's identity; the others follow. The store gives it, unless they bring their own.
        bring_identities: whether all of them do, or none.
        owner: for whom they count (``gateway.holdings``) until they are stored.

    ``position`` is the first one's place in the log, once it is there.
    """

    __slots__ = (
        "_messages",
        "bring_identities",
        "count",
        "epoch",
        "first_seq",
        "gateway",
        "level",
        "owner",
        "packets",
        "position",
        "publisher",
        "received_ms",
        "topics",
    )

    def __init__(
        self,
        packets: bytes,
        topics: dict[str, None],
        count: int,
        level: int,
        publisher: str,
        received_ms: int,
        gateway: str,
        epoch: int = 0,
        first_seq: int = 0,
        bring_identities: bool = False,
        owner: str = "",
    ) -> None:
        self.packets = packets
        self.topics = topics
        self.count = count
        self.level = level
        self.publisher = publisher
        self.received_ms = received_ms
        self.gateway = gateway
        self.epoch = epoch
        self.first_seq = first_seq
        self.bring_identities = bring_identities
        self.owner = owner
        self.position = 0
        self._messages: list[Message] | None = None

    @property
    def size(self) -> int:
        """Bytes that it takes up in memory, roughly."""
        return len(self.packets) + OVERHEAD

    def messages(self) -> list[Message]:
        """Returns its messages, the same objects each time."""
        if self._messages is None:
            self._messages = list(self._read())
        return self._messages

    def _read(self) -> Iterator[Message]:
        packets = self.packets
        names: dict[bytes, str] = {}
        qos = packets[0] >> 1 & 3
        as_it_came = form(self.level, qos, False)
        start = 0
        for seq in range(self.first_seq, self.first_seq + self.count):
            length = packets[start + 1]
            if length < 0x80:
                at = start + 4
                end = start + 2 + length
            else:
                at = start + 5
                end = start + 3 + (length & 0x7F | packets[start + 2] << 7)
            behind = at + (packets[at - 2] << 8 | packets[at - 1])
            encoded = packets[at:behind]
            topic = names.get(encoded)
            if topic is None:
                topic = names[encoded] = encoded.decode()
            message = Message(
                topic,
                b"",
                qos,
                False,
                {},
                self.gateway,
                self.epoch,
                seq,
                self.received_ms,
                self.gateway,
                self.publisher,
            )
            tail = packets[behind + IDENTIFIER_SIZE : end]
            message.payload = tail
            if self.level == MQTT_5:
                message.payload = packets[self._read_properties(message, behind + IDENTIFIER_SIZE) : end]
            if not self.bring_identities:
                message.halves = {as_it_came: (packets[start:behind], tail)}
            yield message
            start = end

    def _read_properties(self, message: Message, at: int) -> int:
        """Gives a message what its properties say; returns where they end."""
        packets = self.packets
        if not packets[at]:
            return at + 1
        block, behind = find(packets, at)
        common, identity = read(packets[block:behind])
        message.properties = common.properties
        if common.expiry_ms:
            message.expires_ms = self.received_ms + common.expiry_ms
        if identity is not None:
            message.origin, message.epoch, message.seq = identity
        return behind
