"""Many messages as one piece of bytes: PUBLISHes of one client as they came, back to back."""

from collections.abc import Iterator

from gateway.message import Message
from wire.packets import MQTT_5

OVERHEAD = 200  # bytes in memory, roughly
MESSAGE_OVERHEAD = 500  # of each, once somebody has asked for them


class Run:
    """PUBLISHes without properties, of one QoS, neither DUP nor RETAIN.

    Args:
        packets: their bytes.
        topics: the topic names in it, each once.
        count: how many there are.
        level: the protocol level that they are of.
        publisher: the client identifier that they came from.
        received_ms: when, as unix time.
        gateway: the gateway that accepted them, which is the origin of their identities.
        epoch, first_seq: the first one's identity; the others follow. The store gives it.

    ``position`` is the first one's place in the log, once it is there.
    """

    __slots__ = (
        "_messages",
        "count",
        "epoch",
        "first_seq",
        "gateway",
        "level",
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
        behind_topic = 3 if self.level == MQTT_5 else 2
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
            yield Message(
                topic,
                packets[behind + behind_topic : end],
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
            start = end
