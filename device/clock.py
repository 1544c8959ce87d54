"""What time it is on the board: the uptime always, UTC once somebody has told it.

A moment is `(boot_id, uptime_ms)`. Whoever knows UTC ties one uptime to it: an anchor. From then on moments have UTC
by their distance from the anchor; those before get it where the readings are kept, by the anchor's own message. A
message that was made is never changed, and moments are compared by uptime alone: UTC may step.
"""

EARLIEST_UNIX_MS = 1_767_225_600_000  # 2026: a clock that tells less was never set
EPOCH_2000_S = 946_684_800  # from 1970
CRYSTAL_PPM = 100  # how far a board's crystal may be off
SLEEP_PPM = 20_000  # and the RC oscillator that counts through deep sleep
GATEWAY, NTP, SYSTEM, NONE = "gateway", "ntp", "system", "none"
KINDS = (GATEWAY, NONE, NTP, SYSTEM)
"""Where a configuration may say that UTC comes from."""


class Uptime:
    """Milliseconds since `start_ms`; goes on where the board's ticks wrap, after 2**30 ms (12 days) on most.

    Args:
        ticks_ms: `time.ticks_ms` of the board.
        ticks_diff: its `time.ticks_diff`.
    """

    WRAP_MS = 1 << 30
    CALL_MS = WRAP_MS // 4  # `now_ms` has to be called more often than half the period

    def __init__(self, ticks_ms, ticks_diff, start_ms: int = 0) -> None:
        self._ticks_ms, self._ticks_diff = ticks_ms, ticks_diff
        self._ms = start_ms
        self._ticks = ticks_ms()

    def now_ms(self) -> int:
        ticks = self._ticks_ms()
        self._ms += self._ticks_diff(ticks, self._ticks)
        self._ticks = ticks
        return self._ms


class Clock:
    """UTC by an anchor.

    Args:
        boot_id: of the uptime's life: the same after a deep sleep, through which the uptime goes on.
        source: whom it believes, GATEWAY or NTP; None: nobody.
    """

    def __init__(self, boot_id: int, source: str | None = None) -> None:
        self.boot_id = boot_id
        self.source = source
        self.untold = False  # whether no message has the anchor yet
        self.anchor: tuple | None = None  # uptime, UTC and how far that may be off when it was told (all ms)

    def unix_ms(self, uptime_ms: int) -> int | None:
        """UTC of a moment; None while it is not known."""
        if self.anchor is None:
            return None
        anchor_ms, unix_ms, _ = self.anchor
        return unix_ms + uptime_ms - anchor_ms

    def offer(self, source: str, unix_ms: int, asked_ms: int, told_ms: int) -> bool:
        """Somebody tells UTC. It becomes the anchor where there was none, where it is twice as sure as the one there
        is, and where it contradicts that: a clock has stepped, or crystals have drifted apart. Returns whether it did.

        Args:
            unix_ms: UTC of a moment between two uptimes: `asked_ms`, when it was asked for, and `told_ms`.
        """
        if source != self.source or unix_ms < EARLIEST_UNIX_MS:
            return False
        error_ms = (told_ms - asked_ms + 1) // 2
        if self.anchor is not None:
            known_ms = self.unix_ms(told_ms - error_ms)
            off_ms = self.error_ms(told_ms)
            assert known_ms is not None
            if 2 * error_ms >= off_ms and abs(unix_ms - known_ms) <= error_ms + self.anchor[2] + 1:
                return False
        self.anchor = (told_ms - error_ms, unix_ms, error_ms)
        self.untold = True
        return True

    def error_ms(self, uptime_ms: int) -> int:
        """How far UTC of a moment may be off. There has to be an anchor."""
        assert self.anchor is not None
        anchor_ms, _, error_ms = self.anchor
        return error_ms + abs(uptime_ms - anchor_ms) * CRYSTAL_PPM // 1_000_000

    def resume(self, anchor: tuple, uptime_ms: int, slept_ms: int) -> None:
        """After a deep sleep: what was known before it, and is less sure now."""
        anchor_ms, unix_ms, error_ms = anchor
        error_ms += slept_ms * SLEEP_PPM // 1_000_000
        self.anchor = (uptime_ms, unix_ms + uptime_ms - anchor_ms, error_ms)


class SystemClock(Clock):
    """UTC by the board's own clock, which somebody keeps right; one that was never set tells nothing.

    Args:
        read_unix_ms: tells what it shows.
    """

    def __init__(self, boot_id: int, read_unix_ms) -> None:
        super().__init__(boot_id)
        self._read_unix_ms = read_unix_ms

    def unix_ms(self, uptime_ms: int) -> int | None:
        """Of now, whatever the uptime."""
        unix_ms = self._read_unix_ms()
        return unix_ms if unix_ms >= EARLIEST_UNIX_MS else None


def epoch_offset_s(gmtime) -> int:
    """What to add to the board's `time.time()` for seconds since 1970: boards count from there or from 2000."""
    return EPOCH_2000_S if gmtime(0)[0] == 2000 else 0


def earliest(timers_ms: list) -> int | None:
    """The first of these moments; None stands for never."""
    return min([timer_ms for timer_ms in timers_ms if timer_ms is not None], default=None)
