"""One stream of a link, from its start to its end: it sends and handles the frames I, RR, RNR and REJ."""

from wire.link.frames import FINAL, INFO, POLL, REJ, RNR, RR, Frame, encode_frame

TIMEOUT_FIRST_MS, TIMEOUT_MIN_MS, TIMEOUT_MAX_MS = 500, 50, 2_000
POLL_INTERVAL_MAX_MS = 100  # a line that works again carries data within 200 ms
PAUSED_INTERVAL_MS = 1_000  # the peer ends a pause with a frame; these polls find a peer that has restarted instead


class Stream:
    """Both directions of a stream.

    Args:
        mtu: bytes of the longest payload, as both sides agreed.
        window: the most unacknowledged I frames, as both sides agreed.
        credit: bytes that the peer has room for.
        buffer_bytes: our room for received bytes that the application has not taken.
        paused: whether the stream starts with a pause, in which neither side sends I frames.
    """

    def __init__(self, mtu: int, window: int, credit: int, buffer_bytes: int, paused: bool) -> None:
        self.frames: list = []  # encoded, ready for the line
        self.paused = paused
        self._buffer_bytes = buffer_bytes
        self._out = OutStream(mtu, window, credit)
        self._in = InStream(window, buffer_bytes)
        self._told_order = 0  # the poll with this order, or a later one, tells the peer whether to pause
        self._told = True  # whether the peer has answered such a poll
        self._answer: int | None = None  # the number of the peer's poll, until our side has answered it
        self._acknowledge = False  # whether an acknowledgement is due
        self._resent_last = False  # whether the last I frame was a repetition
        if paused:
            self.hold(True)

    @property
    def waiting(self) -> bool:
        """Whether our side waits for a frame of the peer, and must ask for it when it does not come."""
        return not self._told or (self._out.waiting and not self.paused)

    @property
    def quiet(self) -> bool:
        """Whether a pause was asked for, and the peer has confirmed that it sends no I frames."""
        return self.paused and self._told

    @property
    def peer_paused(self) -> bool:
        """Whether the peer has asked for a pause, in which our side sends no I frames."""
        return self._out.peer_paused

    @property
    def timeout_ms(self) -> int:
        """The time from a frame to the first poll for its acknowledgement."""
        if not self._told and not self.paused:
            return POLL_INTERVAL_MAX_MS
        return PAUSED_INTERVAL_MS if self._told and self._out.peer_paused else self._out.timeout_ms

    @property
    def interval_max_ms(self) -> int:
        """The longest time between two polls."""
        if not self._told and self.paused:
            return TIMEOUT_MAX_MS  # few polls, because the line is quiet only after the answers to all of them
        return PAUSED_INTERVAL_MS if self._told and self._out.peer_paused else POLL_INTERVAL_MAX_MS

    @property
    def queued(self) -> int:
        """Bytes that have not been sent yet."""
        return self._out.queued

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._out.write(data)

    def take(self) -> bytes:
        """Returns all bytes that were received in order."""
        data = self._in.take()
        if data and self._in.credit_told < self._buffer_bytes // 2:
            self._acknowledge = True  # the peer may wait for more credit
        return data

    def hold(self, paused: bool) -> None:
        """Begins or ends a pause: tells the peer, and stops our own I frames too, because they need answers."""
        self.paused = paused
        self._resent_last = False
        self._told = False
        self._told_order = self._out.order + 1
        self.poll()

    def handle(self, frame: Frame, now_ms: int) -> bool:
        """Handles a frame; returns whether it brought news, and no answer about a pause is missing.

        Then the time to the next poll starts anew.
        """
        held = 0
        progress = False
        if frame.type != INFO:
            held = frame.payload[0] if frame.payload else 0
            progress = self._out.peer_paused != (frame.type == RNR)
            self._out.peer_paused = frame.type == RNR
        if self._out.acknowledge(frame.ack, held, frame.credit, now_ms):
            progress = True
        if frame.final:
            if self._out.poll_answered(frame.seq) >= self._told_order:
                self._told = True
            progress = True
        if frame.type == INFO:
            self._in.receive(frame.seq, frame.payload)
            self._acknowledge = True
        if frame.poll:
            self._answer = frame.seq
        return progress and self._told

    def fill(self, now_ms: int) -> None:
        """Adds the next frames to `frames`: the answer or acknowledgement that is due, then one I frame."""
        segment = None if self.paused else self._out.next_segment(now_ms)
        if self._answer is not None:
            self._send_supervisory(FINAL, self._answer)
        elif self._acknowledge and (segment is None or self._in.gap or self.paused):
            self._send_supervisory(0, 0)
        self._answer = None
        self._acknowledge = False
        if segment is not None:
            self._send(INFO, segment.seq, segment.payload)
            self._resent_last = segment.resent
        elif self._resent_last:
            self._resent_last = False
            self.poll()  # no later frame would show that the repetition is lost

    def poll(self) -> None:
        """Asks the peer which frames have arrived."""
        order = self._out.poll_sent()
        self._send_supervisory(POLL, order & 0xFF)
        if self.paused and not self._told:
            self._told_order = order

    def _send_supervisory(self, bit: int, number: int) -> None:
        kind = RNR if self.paused else REJ if self._in.gap else RR
        self._send(kind | bit, number, self._in.held_bitmap())

    def _send(self, kind: int, seq: int, payload: bytes) -> None:
        self.frames.append(encode_frame(kind, seq, self._in.expected, self._in.tell_credit(), payload))


class Segment:
    """A piece of the stream that was sent, and that the peer has not acknowledged."""

    def __init__(self, seq: int, payload: bytes) -> None:
        self.seq = seq
        self.payload = payload
        self.order = 0  # the number of its last transmission; all transmissions are counted
        self.sent_ms = 0
        self.resent = False
        self.timed = True  # its acknowledgement measures the round trip; false once it was repeated or asked for
        self.held = False  # whether the peer has it, but lacks a segment before it


class OutStream:
    """The bytes that wait to be sent, and the segments that wait for their acknowledgement.

    Args:
        mtu: bytes of the longest segment.
        window: the most unacknowledged segments.
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
        self.order = 0  # the number of the last transmission, of a segment or a poll
        self._arrived_order = 0  # every transmission with a lower number has arrived or is lost
        self._round_trip_ms: int | None = None
        self._variation_ms = 0

    @property
    def queued(self) -> int:
        """Bytes that have not been sent yet."""
        return len(self._queue)

    @property
    def waiting(self) -> bool:
        """Whether bytes wait to be sent or acknowledged."""
        return bool(self._on_the_way or self._queue)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._queue += data

    def next_segment(self, now_ms: int) -> Segment | None:
        """Returns the segment to send now, a lost one before a new one; None if none may be sent."""
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
        """Handles an acknowledgement of the segments before `ack`; returns whether it acknowledges any new one.

        `held` is the bitmap of InStream.held_bitmap: the segments after `ack` that the peer has.
        """
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
        """Counts a poll that is sent now, and returns its order; the poll carries the lowest byte of it."""
        self.order += 1
        for segment in self._on_the_way:
            segment.timed = False
        return self.order

    def poll_answered(self, number: int) -> int:
        """Handles the answer to a poll and returns the poll's order.

        Every segment sent before the poll has arrived or is lost, because the line keeps the order.
        """
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
    """The received bytes that wait for the application, and the segments that arrived before a missing one.

    Args:
        window: how many segments are accepted, counted from the next expected one.
        buffer_bytes: the room for received bytes that the application has not taken.
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
        """Whether a segment is missing before one that has arrived."""
        return bool(self._held)

    def receive(self, seq: int, payload: bytes) -> None:
        """Takes a segment; drops it if it came before or there is no room for it."""
        ahead = (seq - self.expected) & 0xFF
        kept = len(self._ready) + sum([len(held) for held in self._held.values()])
        if ahead >= self._window or kept + len(payload) > self._buffer_bytes:
            return
        self._held[seq] = payload
        while self.expected in self._held:
            self._ready += self._held.pop(self.expected)
            self.expected = (self.expected + 1) & 0xFF

    def take(self) -> bytes:
        """Returns all bytes that were received in order."""
        data = bytes(self._ready)
        self._ready = bytearray()
        return data

    def held_bitmap(self) -> bytes:
        """Returns one byte, whose bit i stands for the segment 1 + i after the expected one; b"" without a gap."""
        if not self._held:
            return b""
        bits = 0
        for seq in self._held:
            bits |= 1 << ((seq - self.expected - 1) & 0xFF)
        return bytes((bits,))

    def tell_credit(self) -> int:
        """Returns the room in bytes, which the next frame grants to the peer."""
        self.credit_told = self._buffer_bytes - len(self._ready)
        return self.credit_told
