"""What a client sends, cut into what goes the hot path and what the protocol core reads packet by packet."""

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from gateway.hot.answers import FIRST_BYTES, SIZE, Answers, cut_answers
from gateway.hot.publishes import PACKET_SIZE_MAX, QOS_1, QOS_2, cut
from gateway.hot.topics import Topics
from wire.bulk import BulkServerConnection
from wire.packet_types import PUBACK, PUBREC, PUBREL


class Publishes(NamedTuple):
    """PUBLISHes that the protocol core has taken note of: bytes, identifiers, topic names and size of payloads, and
    whether each brings an identity, or none does."""

    packets: bytes
    qos: int
    identifiers: list[int]
    topics: dict[str, None]
    payload_size: int
    bring_identities: bool


class Inflow:
    """One connection's incoming bytes.

    Args:
        protocol: the connection's protocol core.
        topics: what the client may publish to, as far as it is known.
    """

    def __init__(self, protocol: BulkServerConnection, topics: Topics) -> None:
        self._protocol = protocol
        self._topics = topics
        self._left = b""
        self._owed = 0  # bytes to come of a packet that the protocol core has the beginning of
        self._begun = 0  # bytes that it has of it
        self._refused_to = 0  # in the buffer: what is before it was refused as a whole, and goes packet by packet
        self._cuts_publishes = protocol.maximum_packet_size >= PACKET_SIZE_MAX

    @property
    def is_within_packet(self) -> bool:
        """Whether the protocol core has the beginning of a packet, and its end has not come."""
        return self._owed > 0

    @property
    def kept(self) -> int:
        """Bytes that have come of a packet whose end has not."""
        return self._begun + len(self._left)

    def feed(
        self, data: bytes, now_ms: int, may_take: Callable[[Iterable[str]], bool]
    ) -> Iterator[Publishes | Answers | None]:
        """Yields what has come, step by step; None where the protocol core has to be asked for its events.

        ``may_take`` says whether messages of some topics may be taken without a look at each.
        What comes behind a step means what it means only when the step is done, so it is not looked at before. Whoever
        ends the connection goes on no further.
        """
        buffer = self._left + data if self._left else data
        self._left = b""
        self._refused_to = 0
        at = min(self._owed, len(buffer))
        if at:
            self._owed -= at
            self._begun = self._begun + at if self._owed else 0
            self._protocol.receive_data(buffer[:at], now_ms)
            yield None
        while at < len(buffer):
            end, step = self._cut(buffer, at, may_take) if self._protocol.takes_bulk else (at, None)
            if end == at:
                end = _end_of_packet(buffer, at)
                if end > len(buffer) and self._may_wait(buffer, at, end):
                    self._left = buffer[at:]
                    self._protocol.note_waiting(min(len(data), len(self._left)), now_ms)
                    return
            if step is None:
                self._protocol.receive_data(buffer[at:end], now_ms)
                self._owed = max(0, end - len(buffer))
                self._begun = len(buffer) - at if self._owed else 0
            else:
                self._protocol.note_received(now_ms)
            at = end
            yield step

    def _cut(
        self, buffer: bytes, at: int, may_take: Callable[[Iterable[str]], bool]
    ) -> tuple[int, Publishes | Answers | None]:
        """Returns where the packets that may go the hot path end, and their step if the protocol core takes it."""
        first_byte = buffer[at]
        if at < self._refused_to:
            return at, None
        if first_byte in FIRST_BYTES:
            answers = cut_answers(buffer, at)
            if answers.identifiers and self._take(answers):
                return answers.end, answers
            self._refused_to = answers.end
        elif first_byte in (QOS_1, QOS_2) and self._cuts_publishes:
            qos = first_byte >> 1 & 3
            end, identifiers, topics, size, own = cut(buffer, at, self._protocol.protocol_level, self._topics)
            if identifiers and may_take(topics) and self._protocol.take_publishes(identifiers, qos):
                return end, Publishes(buffer[at:end], qos, identifiers, topics, size, own)
            self._refused_to = end
        return at, None

    def _take(self, answers: Answers) -> bool:
        protocol, identifiers = self._protocol, answers.identifiers
        if answers.packet_type == PUBACK:
            return protocol.take_pubacks(identifiers)
        if answers.packet_type == PUBREC:
            return protocol.take_pubrecs(identifiers)
        if answers.packet_type == PUBREL:
            return protocol.take_pubrels(identifiers)
        return protocol.take_pubcomps(identifiers)

    def _may_wait(self, buffer: bytes, at: int, end: int) -> bool:
        """Whether the beginning of a packet is kept here until the rest comes, as it may then go the hot path."""
        if end == LENGTH_CUT_OFF:
            return True
        if buffer[at] in FIRST_BYTES:
            could_be_cut = end - at == SIZE
        else:
            could_be_cut = buffer[at] in (QOS_1, QOS_2) and self._cuts_publishes and end - at <= PACKET_SIZE_MAX
        return could_be_cut and self._protocol.takes_bulk


LENGTH_CUT_OFF = 1 << 60


def _end_of_packet(buffer: bytes, at: int) -> int:
    """Where the packet at a place ends, LENGTH_CUT_OFF where that is not known yet.

    For a length that is malformed it is behind that, so that the protocol core sees and refuses it.
    """
    length = shift = 0
    for place in range(at + 1, min(at + 5, len(buffer))):
        length |= (buffer[place] & 0x7F) << shift
        if buffer[place] < 0x80:
            is_longer_than_need_be = shift and not buffer[place]  # [MQTT-1.5.5-1]
            return place + 1 if is_longer_than_need_be else place + 1 + length
        shift += 7
    return at + 5 if len(buffer) >= at + 5 else LENGTH_CUT_OFF
