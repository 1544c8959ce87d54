"""One stream of a link, from its start to its end: what the frames I, RR, RNR and REJ mean."""

from wire.link_frames import FINAL, INFO, POLL, REJ, RNR, RR, Frame, encode_frame
from wire.link_halves import TIMEOUT_MAX_MS, InStream, OutStream

POLL_INTERVAL_MAX_MS = 100  # so that a line that was dead carries again 200 ms after it lives again
PAUSED_INTERVAL_MS = 1_000  # whoever made us pause tells us himself when to go on; only his restart needs our asking


class Stream:
    """Both directions of a stream.

    Args:
        mtu, window: what both sides agreed on.
        credit: bytes that the peer has room for.
        buffer_bytes: our own room for what the application has not taken.
        paused: whether the peer shall hold its I frames.
    """

    def __init__(self, mtu: int, window: int, credit: int, buffer_bytes: int, paused: bool) -> None:
        self.frames: list = []  # encoded, ready for the line
        self.paused = paused
        self._buffer_bytes = buffer_bytes
        self._out = OutStream(mtu, window, credit)
        self._in = InStream(window, buffer_bytes)
        self._told_order = 0  # of the poll whose answer shows that the peer knows whether to hold its I frames
        self._told = True  # the peer knows
        self._answer: int | None = None  # the number of a poll that waits for our answer
        self._acknowledge = False
        self._resent_last = False  # the last I frame was a resent one
        if paused:
            self.hold(True)

    @property
    def waiting(self) -> bool:
        """Whether only the peer can bring things forward."""
        return not self._told or (self._out.waiting and not self.paused)

    @property
    def quiet(self) -> bool:
        """Whether the peer has said that it holds its I frames."""
        return self.paused and self._told

    @property
    def peer_paused(self) -> bool:
        """Whether we hold our I frames."""
        return self._out.peer_paused

    @property
    def timeout_ms(self) -> int:
        """How long an acknowledgement may take before it is asked for."""
        if not self._told and not self.paused:
            return POLL_INTERVAL_MAX_MS
        return PAUSED_INTERVAL_MS if self._told and self._out.peer_paused else self._out.timeout_ms

    @property
    def interval_max_ms(self) -> int:
        """Between two questions."""
        if not self._told and self.paused:
            return TIMEOUT_MAX_MS  # the answers to all questions have to come before the line is silent
        return PAUSED_INTERVAL_MS if self._told and self._out.peer_paused else POLL_INTERVAL_MAX_MS

    @property
    def queued(self) -> int:
        """Bytes that have not been sent yet."""
        return self._out.queued

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._out.write(data)

    def take(self) -> bytes:
        """All bytes that have come in order."""
        data = self._in.take()
        if data and self._in.credit_told < self._buffer_bytes // 2:
            self._acknowledge = True  # the peer may wait for room
        return data

    def hold(self, paused: bool) -> None:
        """Tells the peer whether it shall hold its I frames; while it does we hold ours, lest answers come."""
        self.paused = paused
        self._resent_last = False
        self._told = False
        self._told_order = self._out.order + 1
        self.poll()

    def handle(self, frame: Frame, now_ms: int) -> bool:
        """True when the peer has said something new, and all that we wait to hear before we ask again."""
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
        """Puts into `frames` what goes next: what the peer waits to hear, then one I frame."""
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
            self.poll()  # nothing follows that would show its loss

    def poll(self) -> None:
        """Asks what has arrived."""
        order = self._out.poll_sent()
        self._send_supervisory(POLL, order & 0xFF)
        if self.paused and not self._told:
            self._told_order = order

    def _send_supervisory(self, bit: int, number: int) -> None:
        kind = RNR if self.paused else REJ if self._in.gap else RR
        self._send(kind | bit, number, self._in.held_bitmap())

    def _send(self, kind: int, seq: int, payload: bytes) -> None:
        self.frames.append(encode_frame(kind, seq, self._in.expected, self._in.tell_credit(), payload))
