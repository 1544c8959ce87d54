"""The two directions of a link's stream, as one side sees them: what goes out and what comes in."""

TIMEOUT_FIRST_MS, TIMEOUT_MIN_MS, TIMEOUT_MAX_MS = 500, 50, 2_000


class Segment:
    """A piece of the stream that the peer has not acknowledged."""

    def __init__(self, seq: int, payload: bytes) -> None:
        self.seq = seq
        self.payload = payload
        self.order = 0  # of its last sending, among all sendings
        self.sent_ms = 0
        self.resent = False
        self.timed = True  # its acknowledgement tells the round trip: it was not asked for
        self.held = False  # the peer has it, behind a gap


class OutStream:
    """What is queued and what is on the way.

    Args:
        mtu: bytes of the longest segment.
        window: segments on the way at most.
        credit: bytes that the peer has room for.
    """

    def __init__(self, mtu: int, window: int, credit: int) -> None:
        self.credit = credit
        self.peer_paused = False
        self.timeout_ms = TIMEOUT_FIRST_MS
        self._mtu = mtu
        self._window = window
        self._queue = bytearray()
        self._on_the_way: list = []  # Segments, oldest first
        self._next_seq = 0
        self.order = 0  # of the last sending, of a segment or a poll
        self._arrived_order = 0  # everything sent before this has arrived or is lost
        self._round_trip_ms: int | None = None
        self._variation_ms = 0

    @property
    def queued(self) -> int:
        """Bytes that have not been sent yet."""
        return len(self._queue)

    @property
    def waiting(self) -> bool:
        """Whether only the peer can bring things forward."""
        return bool(self._on_the_way or self._queue)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._queue += data

    def next_segment(self, now_ms: int) -> Segment | None:
        """What goes on the line now: what is lost, then what is new; None while nothing may go."""
        if self.peer_paused:
            return None
        segment = self._next_lost() or self._next_new()
        if segment is not None:
            self.order += 1
            segment.order = self.order
            segment.sent_ms = now_ms
        return segment

    def _next_lost(self) -> Segment | None:
        for segment in self._on_the_way:
            if segment.order < self._arrived_order and not segment.held:
                segment.resent = True
                segment.timed = False
                return segment
        return None

    def _next_new(self) -> Segment | None:
        if not self._queue or len(self._on_the_way) == self._window:
            return None
        length = min(self._mtu, len(self._queue))
        if length + sum([len(segment.payload) for segment in self._on_the_way]) > self.credit:
            return None
        segment = Segment(self._next_seq, bytes(self._queue[:length]))
        self._queue[:length] = b""
        self._next_seq = (self._next_seq + 1) & 0xFF
        self._on_the_way.append(segment)
        return segment

    def acknowledge(self, ack: int, held: int, credit: int, now_ms: int) -> bool:
        """The peer has all before `ack` and, bit by bit of `held`, some after it. True when that is news."""
        oldest = (self._next_seq - len(self._on_the_way)) & 0xFF
        count = (ack - oldest) & 0xFF
        if count > len(self._on_the_way):
            return False
        self.credit = credit
        for segment in self._on_the_way[:count]:
            self._arrived_order = max(self._arrived_order, segment.order)
            if segment.timed:
                self._measure(now_ms - segment.sent_ms)
        self._on_the_way = self._on_the_way[count:]
        for segment in self._on_the_way[1:]:
            if held & 1:
                segment.held = True
                self._arrived_order = max(self._arrived_order, segment.order)
            held >>= 1
        return count > 0

    def poll_sent(self) -> int:
        """Returns the order of a poll that goes out now; its number on the line is the lowest byte."""
        self.order += 1
        for segment in self._on_the_way:
            segment.timed = False
        return self.order

    def poll_answered(self, number: int) -> int:
        """The answer to a poll shows that nothing sent before it is still on its way; returns the poll's order."""
        order = self.order - ((self.order - number) & 0xFF)
        self._arrived_order = max(self._arrived_order, order)
        return order

    def _measure(self, round_trip_ms: int) -> None:
        # RFC 6298, in whole milliseconds
        if self._round_trip_ms is None:
            self._round_trip_ms = round_trip_ms
            self._variation_ms = round_trip_ms // 2
        else:
            error_ms = round_trip_ms - self._round_trip_ms
            self._round_trip_ms += error_ms // 8
            self._variation_ms += (abs(error_ms) - self._variation_ms) // 4
        timeout_ms = self._round_trip_ms + 4 * self._variation_ms
        self.timeout_ms = min(max(timeout_ms, TIMEOUT_MIN_MS), TIMEOUT_MAX_MS)


class InStream:
    """What has come in order and waits for the application, and what came behind a gap.

    Args:
        window: segments after the expected one that are kept, less one.
        buffer_bytes: room for what the application has not taken.
    """

    def __init__(self, window: int, buffer_bytes: int) -> None:
        self.expected = 0
        self.credit_told = buffer_bytes
        self._window = window
        self._buffer_bytes = buffer_bytes
        self._ready = bytearray()
        self._held: dict = {}  # seq: payload

    @property
    def gap(self) -> bool:
        """Whether something arrived after a piece that did not."""
        return bool(self._held)

    def receive(self, seq: int, payload: bytes) -> None:
        """Takes a segment; one that came before, or for which there is no room, is dropped."""
        ahead = (seq - self.expected) & 0xFF
        kept = len(self._ready) + sum([len(held) for held in self._held.values()])
        if ahead >= self._window or kept + len(payload) > self._buffer_bytes:
            return
        self._held[seq] = payload
        while self.expected in self._held:
            self._ready += self._held.pop(self.expected)
            self.expected = (self.expected + 1) & 0xFF

    def take(self) -> bytes:
        """All bytes that are in order."""
        data = bytes(self._ready)
        self._ready = bytearray()
        return data

    def held_bitmap(self) -> bytes:
        """One byte, bit i for the segment 1 + i after the expected one; nothing where there is no gap."""
        if not self._held:
            return b""
        bits = 0
        for seq in self._held:
            bits |= 1 << ((seq - self.expected - 1) & 0xFF)
        return bytes((bits,))

    def tell_credit(self) -> int:
        """Room in bytes that the next frame shall grant."""
        self.credit_told = self._buffer_bytes - len(self._ready)
        return self.credit_told
