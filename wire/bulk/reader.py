"""The bytes of one connection, cut into steps: many packets at once, or one for the protocol core to read."""

from collections.abc import Callable, Collection, Container, Iterator, Mapping
from typing import NamedTuple

from wire.bulk.connection import (
    ACKNOWLEDGEMENTS,
    ANSWER_SIZE,
    Acknowledgements,
    BulkConnection,
    cut_acknowledgements,
)
from wire.bulk.property_block import EncodedIdentity
from wire.bulk.publishes import FIRST_BYTES as PUBLISHES
from wire.bulk.publishes import PACKET_SIZE_MAX, cut_publishes

LENGTH_CUT_OFF = 1 << 60


class Publishes(NamedTuple):
    """PUBLISHes of one QoS that the protocol core has noted, as bytes.

    `payload_size` is the size of all payloads together, `content_size` the size of payloads, topic names and
    properties. `identities` has the identity of each, or is empty.
    """

    packets: bytes
    qos: int
    identifiers: list[int]
    topics: dict[str, None]
    payload_size: int
    content_size: int
    identities: list[EncodedIdentity]


class BulkReader:
    """Cuts one connection's incoming bytes.

    Args:
        protocol: the connection's protocol core.
        topics: the topic names that the peer may publish to, by their bytes; the application adds to them.
        origins: the origins that an identity of the peer may name; the application adds to them.
    """

    __slots__ = (
        "_begun",
        "_cuts_publishes",
        "_left",
        "_missing",
        "_origins",
        "_protocol",
        "_refused_to",
        "_topics",
    )

    def __init__(self, protocol: BulkConnection, topics: Mapping[bytes, str], origins: Container[bytes]) -> None:
        self._protocol = protocol
        self._topics = topics
        self._origins = origins
        self._left = b""
        self._missing = 0  # bytes still to come of a packet whose beginning the protocol core has
        self._begun = 0  # bytes of it that the protocol core has
        self._refused_to = 0  # the protocol core reads up to here packet by packet: it refused these packets together
        self._cuts_publishes = protocol.maximum_packet_size >= PACKET_SIZE_MAX

    @property
    def is_within_packet(self) -> bool:
        """Whether the protocol core has the beginning of a packet, and its end has not come."""
        return self._missing > 0

    @property
    def kept(self) -> int:
        """Bytes that have come of a packet whose end has not."""
        return self._begun + len(self._left)

    def feed(
        self, data: bytes, now_ms: int, may_take: Callable[[Collection[str]], bool]
    ) -> Iterator[Publishes | Acknowledgements | None]:
        """Yields the steps in what has come; None where the protocol core has to be asked for its events.

        Later bytes are parsed after the caller has handled a step, as the step may change state. A caller that ends
        the connection stops the iteration.

        Args:
            data: what has come.
            now_ms: the time, as for `Connection.receive_data`.
            may_take: says whether messages of these topics may be taken without a check of each.
        """
        buffer = self._left + data if self._left else data
        self._left = b""
        self._refused_to = 0
        at = min(self._missing, len(buffer))
        if at:
            self._missing -= at
            self._begun = self._begun + at if self._missing else 0
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
                self._missing = max(0, end - len(buffer))
                self._begun = len(buffer) - at if self._missing else 0
            else:
                self._protocol.note_received(now_ms)
            at = end
            yield step

    def _cut(
        self, buffer: bytes, at: int, may_take: Callable[[Collection[str]], bool]
    ) -> tuple[int, Publishes | Acknowledgements | None]:
        """Returns where the packets end that are taken together, and their step; `at` and None where none are."""
        first_byte = buffer[at]
        if at < self._refused_to:
            return at, None
        if first_byte in ACKNOWLEDGEMENTS:
            acknowledgements = cut_acknowledgements(buffer, at)
            end, packet_type, identifiers = acknowledgements
            if identifiers and self._protocol.take_acknowledgements(packet_type, identifiers):
                return end, acknowledgements
            self._refused_to = end
        elif first_byte in PUBLISHES and self._cuts_publishes:
            qos = PUBLISHES[first_byte]
            level = self._protocol.protocol_level
            cut = cut_publishes(buffer, at, level, self._topics, self._origins)
            identifiers = cut.identifiers
            if identifiers and may_take(cut.topics) and self._protocol.take_publishes(identifiers, qos):
                return cut.end, Publishes(buffer[at : cut.end], qos, *cut[1:])
            self._refused_to = cut.end
        return at, None

    def _may_wait(self, buffer: bytes, at: int, end: int) -> bool:
        """Whether the beginning of a packet is kept here until the rest comes: then it may be taken with others."""
        if end == LENGTH_CUT_OFF:
            return True
        if buffer[at] in ACKNOWLEDGEMENTS:
            could_be_cut = end - at == ANSWER_SIZE
        else:
            could_be_cut = buffer[at] in PUBLISHES and self._cuts_publishes and end - at <= PACKET_SIZE_MAX
        return could_be_cut and self._protocol.takes_bulk


def _end_of_packet(buffer: bytes, at: int) -> int:
    """Returns where the packet at a place ends, LENGTH_CUT_OFF where its length is cut off.

    A malformed length ends behind its last digit, so that the protocol core sees and refuses it.
    """
    length = shift = 0
    for place in range(at + 1, min(at + 5, len(buffer))):
        length |= (buffer[place] & 0x7F) << shift
        if buffer[place] < 0x80:
            is_longer_than_need_be = shift and not buffer[place]  # [MQTT-1.5.5-1]
            return place + 1 if is_longer_than_need_be else place + 1 + length
        shift += 7
    return at + 5 if len(buffer) >= at + 5 else LENGTH_CUT_OFF
