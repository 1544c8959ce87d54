"""The serial link: an ordered stream of bytes over a line that loses, corrupts and delays bytes. It never gives up.

It is HDLC's balanced mode with selective resend. It does no IO and has no clock, like the MQTT connections.

    CLOSED --open--> OPENING --the peer echoes our token--> UP
       ^                ^                                    |
       +-----close------+--open, DISC, the peer starts afresh+

**Start.** Each side identifies its end of a stream by a token (boot_id, era), a new one for each stream. SABM carries
the sender's token and the peer's token, if the sender knows it; UA answers with the same fields. A side is UP once its
own token comes back. From then on it reads only bytes of a peer that knows this stream: the line keeps the order, so
bytes of an earlier stream cannot follow. A new token from the peer means that the peer has started a new stream: then
this side does too.

**Transfer.** I frames carry a sequence number; at most `window` are unacknowledged, and they fit into the peer's
credit. RR acknowledges all frames before `ack`. REJ does that too, and its payload of one byte shows which of the
seven frames after `ack` have arrived. The line keeps the order: if a frame has arrived, all frames sent before it have
either arrived or are lost, and the lost ones are sent again. If the peer does not answer for an adaptive time, POLL
asks it; it answers with FINAL and the poll's number.

**Pause.** RNR with POLL stops the peer from sending until RR; its FINAL says that nothing is on the line any more.

**Versions.** The format of the handshake never changes, except that bytes may be added at its end. It names the newest
link version of its sender; both sides use the older of the two.
"""

from struct import pack, unpack

from wire.errors import LocalProtocolError
from wire.link.frames import CREDIT_MAX, CREDIT_UNIT, DISC, SABM, UA, UI, VERSION, Frame, FrameDecoder, encode_frame
from wire.link.stream import Stream

WINDOW_MAX = 8  # REJ's payload shows seven frames after the missing one
MTU_MIN, MTU_MAX = 16, 1024
OPEN_INTERVAL_FIRST_MS, OPEN_INTERVAL_LAST_MS = 50, 2_000
LOGS_WAITING_MAX = 8  # in each direction, so that log lines that nothing takes do not fill the memory
EVENTS_WAITING_MAX = 8  # beyond it the peer's starts and ends count as lost on the line; the peer repeats a start
NO_TOKEN = b"\0\0\0\0\0\0"
_HANDSHAKE = ">6s6sHBB"  # own token, peer's token, mtu, window, newest version
HANDSHAKE_BYTES = 16


class LinkUp:
    """Event: a new stream starts, empty on both sides; any connection over the earlier stream has ended."""

    def __init__(self, peer_boot_id: int, era: int) -> None:
        self.peer_boot_id = peer_boot_id
        self.era = era  # this side's number of the stream


class LinkDown:
    """Event: the stream has ended; `text` says why. A new stream follows unless this side closed the link."""

    def __init__(self, text: str) -> None:
        self.text = text


class LinkData:
    """Event: bytes of the stream, in order and without repetition."""

    def __init__(self, data: bytes) -> None:
        self.data = data


class LinkLog:
    """Event: a log line that the peer sent with `send_log`, outside the stream; such lines may be lost."""

    def __init__(self, data: bytes) -> None:
        self.data = data


class Link:
    """One end of the line; both ends call `open`. Events: LinkUp, LinkData, LinkLog, LinkDown.

    After every call write `data_to_send()` to the line until it is b"", and ask `next_timer_ms()` anew.

    Args:
        boot_id: u32 that is different each time this side starts.
        mtu: bytes of the longest payload that this side accepts.
        window: the most unacknowledged I frames; the smaller value of the two sides is used.
    """

    def __init__(self, boot_id: int, *, mtu: int = 256, window: int = WINDOW_MAX) -> None:
        if not (MTU_MIN <= mtu <= MTU_MAX and 1 <= window <= WINDOW_MAX):
            raise LocalProtocolError(f"mtu {mtu} or window {window} is out of range")
        self.mtu = mtu
        self.window = window
        self.paused = False
        self._boot_id = boot_id
        self._era = 0
        self._token = NO_TOKEN
        self._peer_token = NO_TOKEN
        self._open = False
        self._stream: Stream | None = None  # None unless the link is up
        self._decoder = FrameDecoder(mtu)
        self._buffer_bytes = min(2 * window * mtu, CREDIT_MAX * CREDIT_UNIT)
        self._handshakes: list = []  # (kind, encoded frame), the last one of each kind; sent before the stream's frames
        self._logs: list = []  # encoded log frames, to be sent unless the peer pauses
        self._events: list = []
        self._logs_taken = 0  # LinkLog events in `_events`
        self._told_era: int | None = None  # era of the stream that the application knows from its events
        self._foreign_version: int | None = None
        self._now_ms = 0
        self._timer_ms: int | None = None
        self._interval_ms = OPEN_INTERVAL_FIRST_MS

    def open(self, now_ms: int) -> None:
        """Starts a new stream, and tries for ever; ends the present stream if there is one."""
        self._now_ms = now_ms
        self._start_afresh("opened anew")
        self._send_handshake(SABM)

    def close(self) -> None:
        """Ends the stream and sends nothing more after a DISC, which `data_to_send` returns."""
        was_up = self._stream is not None
        self._end_stream("closed")
        if was_up:
            self._send_handshake(DISC)
        self._open = False
        self._timer_ms = None

    @property
    def send_room(self) -> int:
        """How many more bytes the application should queue now; 0 unless the stream is up."""
        if self._stream is None or self._told_era != self._era:
            return 0
        return max(0, self._buffer_bytes - self.queued)

    @property
    def damaged_bytes(self) -> int:
        """Received bytes that belonged to no valid frame."""
        return self._decoder.damaged_bytes

    @property
    def queued(self) -> int:
        """Bytes of the stream that have not been sent yet."""
        return 0 if self._stream is None else self._stream.queued

    def send(self, data: bytes | bytearray | memoryview, now_ms: int) -> None:
        """Queues bytes of any length. Raises LocalProtocolError outside LinkUp .. LinkDown."""
        self._now_ms = now_ms
        if self._told_era is None:
            raise LocalProtocolError("the link is down")
        if self._stream is not None and self._told_era == self._era:  # otherwise a LinkDown event waits
            self._stream.write(data)

    def send_log(self, data: bytes) -> None:
        """Sends up to `mtu` bytes outside the stream, unless the link is closed; they may be lost."""
        if self._open and len(self._logs) < LOGS_WAITING_MAX:
            self._logs.append(encode_frame(UI, 0, 0, self._buffer_bytes, data[: self.mtu]))

    def pause(self, now_ms: int) -> None:
        """Stops both sides from sending I frames; once `quiet` is True the line may be left unread."""
        self._hold(True, now_ms)

    def resume(self, now_ms: int) -> None:
        """Lets both sides send again."""
        self._hold(False, now_ms)

    def _hold(self, paused: bool, now_ms: int) -> None:
        self._now_ms = now_ms
        self.paused = paused
        if self._stream is not None:
            self._stream.hold(paused)
            self._timer_ms = None
            self._interval_ms = self._stream.timeout_ms

    @property
    def quiet(self) -> bool:
        """Whether the line may be left unread after `pause`: the peer has stopped sending, or there is no stream."""
        return self.paused and (self._stream is None or self._stream.quiet)

    def receive_data(self, data: bytes | bytearray | memoryview, now_ms: int) -> None:
        """Takes bytes that came over the line; it never raises, whatever they are."""
        self._now_ms = now_ms
        for frame in self._decoder.feed(data):
            if self._open:
                self._handle(frame)

    def next_event(self) -> LinkUp | LinkData | LinkLog | LinkDown | None:
        """Returns the next event, or None until more bytes come."""
        if self._events:
            event = self._events.pop(0)
            if isinstance(event, LinkUp):
                self._told_era = event.era
            elif isinstance(event, LinkDown):
                self._told_era = None
            elif isinstance(event, LinkLog):
                self._logs_taken -= 1
            return event
        data = self._stream.take() if self._stream is not None else b""
        return LinkData(data) if data else None

    def data_to_send(self) -> bytes:
        """Returns the bytes to write next, with one I frame at most; b"" if there are none.

        Call it again when the line has taken these bytes: more urgent frames can then overtake waiting I frames.
        """
        frames = [frame for _, frame in self._handshakes]
        self._handshakes = []
        if self._stream is not None:
            self._stream.fill(self._now_ms)
            frames += self._stream.frames
            self._stream.frames = []
        if self._stream is None or not (self.paused or self._stream.peer_paused):
            frames += self._logs
            self._logs = []
        return b"".join(frames)

    def next_timer_ms(self) -> int | None:
        """Returns when `handle_timer` must be called, in the time of `now_ms`; None: not before something happens."""
        if self._stream is not None:
            if not self._stream.waiting:
                self._timer_ms = None
            elif self._timer_ms is None:
                self._timer_ms = self._now_ms + self._interval_ms
        return self._timer_ms

    def handle_timer(self, now_ms: int) -> None:
        """Repeats the SABM, or asks the peer with a POLL what has arrived."""
        self._now_ms = now_ms
        timer_ms = self.next_timer_ms()
        if timer_ms is None or now_ms < timer_ms:
            return
        if self._stream is None:
            self._send_handshake(SABM)
            longest_ms = OPEN_INTERVAL_LAST_MS
        else:
            self._stream.poll()
            longest_ms = self._stream.interval_max_ms
        self._timer_ms = now_ms + self._interval_ms
        self._interval_ms = min(2 * self._interval_ms, longest_ms)

    # Starting and ending.

    def _start_afresh(self, text: str) -> None:
        self._end_stream(text)
        self._era = (self._era + 1) & 0xFFFF
        self._token = pack(">IH", self._boot_id, self._era)
        self._peer_token = NO_TOKEN
        self._open = True
        self._interval_ms = OPEN_INTERVAL_FIRST_MS
        self._timer_ms = self._now_ms + self._interval_ms

    def _end_stream(self, text: str) -> None:
        if self._stream is not None:
            data = self._stream.take()
            if data:
                self._events.append(LinkData(data))
            self._events.append(LinkDown(text))
        self._stream = None

    def _send_handshake(self, kind: int) -> None:
        payload = pack(_HANDSHAKE, self._token, self._peer_token, self.mtu, self.window, VERSION)
        # An earlier one that the line has not taken says what is no longer true.
        self._handshakes = [one for one in self._handshakes if one[0] != kind]
        self._handshakes.append((kind, encode_frame(kind, 0, 0, self._buffer_bytes, payload)))

    def _handle_handshake(self, frame: Frame) -> None:
        if len(frame.payload) < HANDSHAKE_BYTES:
            return
        token, echo, mtu, window, version = unpack(_HANDSHAKE, frame.payload[:HANDSHAKE_BYTES])
        if mtu < MTU_MIN or window < 1 or version < VERSION:
            return
        if self._stream is not None and token != self._peer_token:
            self._start_afresh("the peer started afresh")
        if self._stream is not None:
            if frame.type == SABM:
                self._send_handshake(UA)
        elif echo == self._token:
            self._peer_token = token
            self._send_handshake(UA)
            mtu, window = min(mtu, self.mtu), min(window, self.window)
            self._stream = Stream(mtu, window, frame.credit, self._buffer_bytes, self.paused)
            self._interval_ms = self._stream.timeout_ms
            self._timer_ms = None
            self._events.append(LinkUp(unpack(">I", token[:4])[0], self._era))
        elif frame.type == SABM:
            self._peer_token = token
            self._send_handshake(UA)

    def _report_version(self, version: int) -> None:
        if version != self._foreign_version:
            self._foreign_version = version
            self._events.append(LinkDown(f"the peer speaks version {version} of the link, not {VERSION}"))

    def _handle(self, frame: Frame) -> None:
        has_room = len(self._events) < EVENTS_WAITING_MAX
        if frame.version != VERSION:
            if has_room:
                self._report_version(frame.version)
        elif frame.type in (SABM, UA):
            if has_room:
                self._handle_handshake(frame)
        elif frame.type == UI:
            if self._logs_taken < LOGS_WAITING_MAX:
                self._logs_taken += 1
                self._events.append(LinkLog(frame.payload))
        elif self._stream is None:
            return
        elif frame.type == DISC:
            if has_room and frame.payload[:6] == self._peer_token:
                self._start_afresh("the peer closed the link")
        elif self._stream.handle(frame, self._now_ms):
            self._interval_ms = self._stream.timeout_ms
            self._timer_ms = None
