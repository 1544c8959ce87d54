"""The bytes of one connection, cut into steps: many PUBLISHes as rows, or a packet for the protocol core to read."""

from collections.abc import Iterator

from cloud.landing.publishes import FIRST_BYTE, LEAST, PACKET_SIZE_MAX, Published, find_publishes, to_rows
from wire.bulk.connection import BulkClientConnection

LENGTH_DIGITS_MAX = 4
LENGTH_CUT_OFF = 1 << 60


class PublishReader:
    """Cuts what a broker sends to a lander of this name."""

    def __init__(self, client: BulkClientConnection, lander: str) -> None:
        self._client = client
        self._lander = lander
        self._left = b""  # the beginning of a packet that the protocol core has not seen
        self._missing = 0  # bytes still to come of a packet whose beginning it has seen

    def feed(self, data: bytes, now_ms: int) -> Iterator[Published | None]:
        """Yields the steps in what has come; None where the protocol core has to be asked for its events.

        Later bytes are read after the caller has handled a step, as the step may change state.
        """
        buffer = self._left + data if self._left else data
        self._left = b""
        at = min(self._missing, len(buffer))
        if at:
            self._missing -= at
            self._client.receive_data(buffer[:at], now_ms)
            yield None
        while at < len(buffer):
            starts, end = find_publishes(buffer, at) if self._client.takes_bulk else ([], at)
            published = to_rows(buffer, starts, end, self._lander) if len(starts) >= LEAST else None
            if published is not None and self._client.take_publishes(published.identifiers, 1):
                self._client.note_received(now_ms)
                at = end
                yield published
                continue
            if not starts:
                end = at + _size(buffer, at)
                if end > len(buffer) and self._may_wait(buffer, at, end):
                    self._left = buffer[at:]
                    self._client.note_waiting(len(data), now_ms)
                    return
            self._missing = max(0, end - len(buffer))
            self._client.receive_data(buffer[at:end], now_ms)
            at = end
            yield None

    def _may_wait(self, buffer: bytes, at: int, end: int) -> bool:
        """Whether the beginning of a packet is kept until the rest comes: its length, or a PUBLISH for a row."""
        if end >= LENGTH_CUT_OFF:
            return True
        return self._client.takes_bulk and buffer[at] == FIRST_BYTE and end - at <= PACKET_SIZE_MAX


def _size(buffer: bytes, at: int) -> int:
    """Returns the bytes of the packet at a place, LENGTH_CUT_OFF if they are not known yet.

    A malformed length ends behind its last digit, so that the protocol core sees and refuses it.
    """
    length = 0
    for digit in range(LENGTH_DIGITS_MAX):
        place = at + 1 + digit
        if place >= len(buffer):
            return LENGTH_CUT_OFF
        length |= (buffer[place] & 0x7F) << 7 * digit
        if buffer[place] < 0x80:
            return 2 + digit + length
    return 1 + LENGTH_DIGITS_MAX
