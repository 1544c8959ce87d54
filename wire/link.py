"""The serial link: an ordered stream of bytes over a line that loses, garbles and delays, and that never gives up.

HDLC's balanced mode with selective resend. No IO and no clock, like the connections of MQTT.

    CLOSED --open--> OPENING --the peer echoes our token--> UP
       ^                ^                                    |
       +-----close------+--open, DISC, the peer starts afresh+

**Start.** Each side names its end of a stream by a token (boot_id, era), fresh each time it starts one. SABM says
"my token, and yours as far as I know"; UA answers it the same way. A side is UP once it sees its own token come
back: what it reads from then on was sent by a peer that knows this stream, and the line keeps order, so bytes of an
earlier stream can never slip in. A new token from the peer means that it started afresh: we do too.

**Transfer.** I frames carry a sequence number; at most `window` are unacknowledged and they fit the peer's credit.
RR acknowledges all before `ack`; REJ as well, and its payload, one byte, shows which of the seven after `ack`
arrived all the same. The line keeps order, so whatever was sent before something that arrived and did not arrive
itself is lost, and is sent again. What the peer says nothing about is asked for with POLL after an adaptive time, and
answered with FINAL and the poll's number.

**Pause.** RNR keeps the peer from sending I frames until RR.
"""

from struct import pack, unpack

from wire.errors import LocalProtocolError
from wire.link_frames import (
    CREDIT_MAX,
    CREDIT_UNIT,
    DISC,
    FINAL,
    INFO,
    POLL,
    REJ,
    RNR,
    RR,
    SABM,
    UA,
    UI,
    VERSION,
    Frame,
    FrameDecoder,
    encode_frame,
)
from wire.link_streams import InStream, OutStream

CLOSED, OPENING, UP = range(3)

WINDOW_MAX = 8  # REJ's payload shows seven frames after the missing one
MTU_MIN, MTU_MAX = 16, 1024
OPEN_INTERVAL_FIRST_MS, OPEN_INTERVAL_LAST_MS = 50, 2_000
POLL_INTERVAL_MAX_MS = 100  # so that a line that was dead carries again 200 ms after it lives again
NO_TOKEN = b"\0\0\0\0\0\0"
_HANDSHAKE = ">6s6sHB"  # own token, peer's token, mtu, window
HANDSHAKE_BYTES = 15


class LinkUp:
    """A fresh stream starts, with an empty past on both sides; whatever spoke over the earlier one is gone."""

    def __init__(self, peer_boot_id: int, era: int) -> None:
        self.peer_boot_id = peer_boot_id
        self.era = era  # this side's number of the stream


class LinkDown:
    """The stream has ended; `text` says why. Another one follows unless we closed the link."""

    def __init__(self, text: str) -> None:
        self.text = text


class LinkData:
    """Bytes of the stream, in order, each once."""

    def __init__(self, data: bytes) -> None:
        self.data = data


class LinkLog:
    """Bytes that the peer sent beside the stream with `send_log`; they may be lost."""

    def __init__(self, data: bytes) -> None:
        self.data = data


class Link:
    """One end of the line; both ends call `open`. Events: LinkUp, LinkData, LinkLog, LinkDown.

    After every call write `data_to_send()` to the line and ask `next_timer_ms()` anew.

    Args:
        boot_id: u32 that differs each time this side starts.
        mtu: bytes of the longest payload that this side takes.
        window: I frames on the way at most; the smaller of both sides' is used.
    """

    def __init__(self, boot_id: int, *, mtu: int = 256, window: int = WINDOW_MAX) -> None:
        if not (MTU_MIN <= mtu <= MTU_MAX and 1 <= window <= WINDOW_MAX):
            raise LocalProtocolError(f"mtu {mtu} or window {window} is out of range")
        self.mtu = mtu
        self.window = window
        self.paused = False
        self.quiet = False
        self._boot_id = boot_id
        self._era = 0
        self._token = NO_TOKEN
        self._peer_token = NO_TOKEN
        self._state = CLOSED
        self._decoder = FrameDecoder(mtu)
        self._buffer_bytes = min(2 * window * mtu, CREDIT_MAX * CREDIT_UNIT)
        self._out = OutStream(mtu, window)
        self._in = InStream(window, self._buffer_bytes)
        self._frames: list = []  # encoded, ready for the line
        self._events: list = []
        self._told_era: int | None = None  # of the stream that the application knows from the events it took
        self._foreign_version: int | None = None
        self._now_ms = 0
        self._timer_ms: int | None = None
        self._interval_ms = OPEN_INTERVAL_FIRST_MS
        self._pause_order = 0
        self._answer: int | None = None  # the number of a poll that waits for our answer
        self._acknowledge = False

    def open(self, now_ms: int) -> None:
        """Starts a fresh stream, and tries for ever; also the way to end one and begin the next."""
        self._now_ms = now_ms
        self._start_afresh("opened anew")
        self._send_handshake(SABM)

    def close(self) -> None:
        """Ends the stream and goes silent; a DISC waits in `data_to_send`."""
        if self._state == UP:
            self._send_handshake(DISC)
        self._end_stream("closed")
        self._state = CLOSED
        self._timer_ms = None

    @property
    def send_room(self) -> int:
        """Bytes to send that this side still likes to queue; 0 unless the stream is up."""
        if self._told_era != self._era or self._state != UP:
            return 0
        return max(0, self._buffer_bytes - self._out.queued)

    def send(self, data: bytes | bytearray | memoryview, now_ms: int) -> None:
        """Queues bytes of any length. Raises LocalProtocolError outside LinkUp .. LinkDown."""
        self._now_ms = now_ms
        if self._told_era is None:
            raise LocalProtocolError("the link is down")
        if self._told_era == self._era and self._state == UP:  # else the stream has ended, as an event will say
            self._out.write(data)

    def send_log(self, data: bytes) -> None:
        """Sends up to `mtu` bytes beside the stream, unless the link is closed; they may be lost."""
        if self._state != CLOSED:
            self._frames.append(self._frame(UI, 0, data[: self.mtu]))

    def pause(self, now_ms: int) -> None:
        """Asks the peer to hold its I frames; once it does, `quiet` is True and the line may be left unread."""
        self._now_ms = now_ms
        self.paused = True
        self.quiet = False
        if self._state == UP:
            self._pause_order = self._poll()

    def resume(self, now_ms: int) -> None:
        """Lets the peer send again."""
        self._now_ms = now_ms
        self.paused = False
        self.quiet = False
        self._acknowledge = True

    def receive_data(self, data: bytes | bytearray | memoryview, now_ms: int) -> None:
        """Takes bytes off the line; never raises for what is in them."""
        self._now_ms = now_ms
        for frame in self._decoder.feed(data):
            if self._state != CLOSED:
                self._handle(frame)

    def next_event(self) -> LinkUp | LinkData | LinkLog | LinkDown | None:
        """The next event, or None until more comes off the line."""
        if self._events:
            event = self._events.pop(0)
            if isinstance(event, LinkUp):
                self._told_era = event.era
            elif isinstance(event, LinkDown):
                self._told_era = None
            return event
        data = self._in.take()
        if data:
            if self._in.credit_told < self._buffer_bytes // 2:
                self._acknowledge = True  # the peer may wait for room
            return LinkData(data)
        return None

    def data_to_send(self) -> bytes:
        """All bytes that wait for the line; b"" when none do."""
        if self._state == UP:
            self._fill()
        if not self._frames:
            return b""
        data = b"".join(self._frames)
        self._frames = []
        return data

    def next_timer_ms(self) -> int | None:
        """When `handle_timer` wants to be called, in the time of `now_ms`; None: not before something happens."""
        if self._state == CLOSED:
            return None
        if self._state == UP and not self._out.waiting and (self.quiet or not self.paused):
            self._timer_ms = None
        elif self._timer_ms is None:
            self._timer_ms = self._now_ms + self._interval_ms
        return self._timer_ms

    def handle_timer(self, now_ms: int) -> None:
        """Asks the peer again, to open or to say what has arrived."""
        self._now_ms = now_ms
        timer_ms = self.next_timer_ms()
        if timer_ms is None or now_ms < timer_ms:
            return
        if self._state == OPENING:
            self._send_handshake(SABM)
            longest_ms = OPEN_INTERVAL_LAST_MS
        else:
            self._poll()
            longest_ms = POLL_INTERVAL_MAX_MS
        self._timer_ms = now_ms + self._interval_ms
        self._interval_ms = min(2 * self._interval_ms, longest_ms)

    # Starting and ending.

    def _start_afresh(self, text: str) -> None:
        self._end_stream(text)
        self._era = (self._era + 1) & 0xFFFF
        self._token = pack(">IH", self._boot_id, self._era)
        self._peer_token = NO_TOKEN
        self._state = OPENING
        self._interval_ms = OPEN_INTERVAL_FIRST_MS
        self._timer_ms = self._now_ms + self._interval_ms

    def _end_stream(self, text: str) -> None:
        if self._state == UP:
            data = self._in.take()
            if data:
                self._events.append(LinkData(data))
            self._events.append(LinkDown(text))
        self._out = OutStream(self.mtu, self.window)
        self._in = InStream(self.window, self._buffer_bytes)
        self._answer = None
        self._acknowledge = False

    def _send_handshake(self, kind: int) -> None:
        payload = pack(_HANDSHAKE, self._token, self._peer_token, self.mtu, self.window)
        self._frames.append(self._frame(kind, 0, payload))

    def _handle_handshake(self, frame: Frame) -> None:
        if len(frame.payload) != HANDSHAKE_BYTES:
            return
        token, echo, mtu, window = unpack(_HANDSHAKE, frame.payload)
        if mtu < MTU_MIN or window < 1:
            return
        if self._state == UP and token != self._peer_token:
            self._start_afresh("the peer started afresh")
        if self._state == UP:
            if frame.type == SABM:
                self._send_handshake(UA)
        elif echo == self._token:
            self._peer_token = token
            self._state = UP
            self._out = OutStream(min(mtu, self.mtu), min(window, self.window))
            self._out.credit = frame.credit
            self._interval_ms = self._out.timeout_ms
            self._timer_ms = None
            self._events.append(LinkUp(unpack(">I", token[:4])[0], self._era))
            self._send_handshake(UA)
            self._pause_order = 0
            if self.paused:
                self._poll()
        elif frame.type == SABM:
            self._peer_token = token
            self._send_handshake(UA)

    def _report_version(self, version: int) -> None:
        if version != self._foreign_version:
            self._foreign_version = version
            self._events.append(LinkDown(f"the peer speaks version {version} of the link, not {VERSION}"))

    def _handle_disc(self, frame: Frame) -> None:
        if self._state == UP and frame.payload[:6] == self._peer_token:
            self._start_afresh("the peer closed the link")

    # While up.

    def _handle(self, frame: Frame) -> None:
        if frame.version != VERSION:
            self._report_version(frame.version)
        elif frame.type in (SABM, UA):
            self._handle_handshake(frame)
        elif frame.type == DISC:
            self._handle_disc(frame)
        elif frame.type == UI:
            self._events.append(LinkLog(frame.payload))
        elif self._state == UP:
            self._handle_transfer(frame)

    def _handle_transfer(self, frame: Frame) -> None:
        held = frame.payload[0] if frame.type != INFO and frame.payload else 0
        if frame.type != INFO:
            self._out.peer_paused = frame.type == RNR
        progress = self._out.acknowledge(frame.ack, held, frame.credit, self._now_ms)
        if frame.final:
            self.quiet = self._out.poll_answered(frame.seq) >= self._pause_order and self.paused
            progress = True
        if progress:
            self._interval_ms = self._out.timeout_ms
            self._timer_ms = None
        if frame.type == INFO:
            self._in.receive(frame.seq, frame.payload)
            self._acknowledge = True
        if frame.poll:
            self._answer = frame.seq

    def _fill(self) -> None:
        """Puts on the line what may go now: what the peer waits to hear first, then its I frames."""
        segments = self._out.segments_to_send(self._now_ms)
        if self._answer is not None:
            self._send_supervisory(FINAL, self._answer)
        elif self._acknowledge and (not segments or self._in.gap or self.paused):
            self._send_supervisory(0, 0)
        self._answer = None
        self._acknowledge = False
        for segment in segments:
            self._frames.append(self._frame(INFO, segment.seq, segment.payload))
        if segments and segments[-1].resent:
            self._poll()  # nothing follows that would show its loss

    def _poll(self) -> int:
        order = self._out.poll_sent()
        self._send_supervisory(POLL, order & 0xFF)
        return order

    def _send_supervisory(self, bit: int, number: int) -> None:
        kind = RNR if self.paused else REJ if self._in.gap else RR
        self._frames.append(self._frame(kind | bit, number, self._in.held_bitmap()))

    def _frame(self, kind: int, seq: int, payload: bytes) -> bytes:
        return encode_frame(kind, seq, self._in.expected, self._in.tell_credit(), payload)
