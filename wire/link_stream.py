"""One stream of a link, from its start to its end: what the frames I, RR, RNR and REJ mean."""

from wire.link_frames import FINAL, INFO, POLL, REJ, RNR, RR, Frame, encode_frame
from wire.link_halves import InStream, OutStream


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
        self.quiet = False
        self._buffer_bytes = buffer_bytes
        self._out = OutStream(mtu, window, credit)
        self._in = InStream(window, buffer_bytes)
        self._pause_order = 0
        self._answer: int | None = None  # the number of a poll that waits for our answer
        self._acknowledge = False
        if paused:
            self.poll()

    @property
    def waiting(self) -> bool:
        """Whether only the peer can bring things forward."""
        return self._out.waiting or (self.paused and not self.quiet)

    @property
    def timeout_ms(self) -> int:
        """How long an acknowledgement may take before it is asked for."""
        return self._out.timeout_ms

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

    def pause(self) -> None:
        self.paused = True
        self.quiet = False
        self._pause_order = self.poll()

    def resume(self) -> None:
        self.paused = False
        self.quiet = False
        self._acknowledge = True

    def handle(self, frame: Frame, now_ms: int) -> bool:
        """True when the peer has said something new about what is on the way to it."""
        held = 0
        if frame.type != INFO:
            held = frame.payload[0] if frame.payload else 0
            self._out.peer_paused = frame.type == RNR
        progress = self._out.acknowledge(frame.ack, held, frame.credit, now_ms)
        if frame.final:
            self.quiet = self._out.poll_answered(frame.seq) >= self._pause_order and self.paused
            progress = True
        if frame.type == INFO:
            self._in.receive(frame.seq, frame.payload)
            self._acknowledge = True
        if frame.poll:
            self._answer = frame.seq
        return progress

    def fill(self, now_ms: int) -> None:
        """Puts into `frames` what may go now: what the peer waits to hear first, then its I frames."""
        segments = self._out.segments_to_send(now_ms)
        if self._answer is not None:
            self._send_supervisory(FINAL, self._answer)
        elif self._acknowledge and (not segments or self._in.gap or self.paused):
            self._send_supervisory(0, 0)
        self._answer = None
        self._acknowledge = False
        for segment in segments:
            self._send(INFO, segment.seq, segment.payload)
        if segments and segments[-1].resent:
            self.poll()  # nothing follows that would show its loss

    def poll(self) -> int:
        """Asks what has arrived; returns the order of the question among all that was sent."""
        order = self._out.poll_sent()
        self._send_supervisory(POLL, order & 0xFF)
        return order

    def _send_supervisory(self, bit: int, number: int) -> None:
        kind = RNR if self.paused else REJ if self._in.gap else RR
        self._send(kind | bit, number, self._in.held_bitmap())

    def _send(self, kind: int, seq: int, payload: bytes) -> None:
        self.frames.append(encode_frame(kind, seq, self._in.expected, self._in.tell_credit(), payload))
