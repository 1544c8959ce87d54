"""The time on the board: always the uptime, and UTC once a gateway or a time server has told it.

A moment is `(boot_id, uptime_ms)`. When a source tells UTC, the device notes an anchor: one uptime and its UTC. The UTC
of every later moment follows from its distance to the anchor. Readings that were made before the anchor get their UTC
where they are stored in the end, from a message that contains the anchor: the device never changes a message that it
has made. Moments are compared by uptime alone, because UTC may step.
"""

EARLIEST_UNIX_MS = 1_767_225_600_000  # 2026-01-01: a clock that shows an earlier time was never set
EPOCH_2000_S = 946_684_800  # 2000-01-01 in seconds since 1970
CRYSTAL_PPM = 100  # largest error of a board's crystal
SLEEP_PPM = 20_000  # largest error of the RC oscillator that counts during deep sleep
GATEWAY, NTP, SYSTEM, NONE = "gateway", "ntp", "system", "none"
KINDS = (GATEWAY, NONE, NTP, SYSTEM)
"""The sources of UTC from which a configuration chooses."""


class Uptime:
    """Milliseconds of uptime, beginning with `start_ms`; it does not wrap when the board's ticks do (often 2**30 ms).

    Args:
        ticks_ms: `time.ticks_ms` of the board.
        ticks_diff: its `time.ticks_diff`.
    """

    WRAP_MS = 1 << 30
    CALL_MS = WRAP_MS // 4  # `now_ms` must be called at least once in half a period of the ticks

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
    """Converts uptime to UTC by an anchor.

    Args:
        boot_id: identifies the uptime. It stays the same through a deep sleep, during which the uptime goes on.
        source: the only source that is believed, GATEWAY or NTP; None: none is.
    """

    def __init__(self, boot_id: int, source: str | None = None) -> None:
        self.boot_id = boot_id
        self.source = source
        self.untold = False  # whether there is an anchor that no message contains yet
        self.anchor: tuple | None = None  # uptime, its UTC, and the largest error of that (all in ms)

    def unix_ms(self, uptime_ms: int) -> int | None:
        """UTC of a moment; None while it is not known."""
        if self.anchor is None:
            return None
        anchor_ms, unix_ms, _ = self.anchor
        return unix_ms + uptime_ms - anchor_ms

    def offer(self, source: str, unix_ms: int, asked_ms: int, told_ms: int) -> bool:
        """Takes UTC from a source, and returns whether it became the new anchor.

        It becomes the anchor if there is none, if it is more than twice as exact as the present one, or if it
        contradicts that one: then a clock was set, or the clocks have drifted apart.

        Args:
            source: GATEWAY or NTP.
            unix_ms: UTC of some moment between `asked_ms` and `told_ms`.
            asked_ms: uptime when the source was asked.
            told_ms: uptime when its answer came.
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
        """Returns the largest error of the UTC of a moment, in ms. To be called only when there is an anchor."""
        assert self.anchor is not None
        anchor_ms, _, error_ms = self.anchor
        return error_ms + abs(uptime_ms - anchor_ms) * CRYSTAL_PPM // 1_000_000

    def resume(self, anchor: tuple, uptime_ms: int, slept_ms: int) -> None:
        """Sets the anchor from before a deep sleep; its error grows with the time slept."""
        anchor_ms, unix_ms, error_ms = anchor
        error_ms += slept_ms * SLEEP_PPM // 1_000_000
        self.anchor = (uptime_ms, unix_ms + uptime_ms - anchor_ms, error_ms)


class SystemClock(Clock):
    """UTC of the board's own clock, which its operating system sets; a clock that was never set gives no UTC.

    Args:
        read_unix_ms: returns the time that the board's clock shows, in ms since 1970.
    """

    def __init__(self, boot_id: int, read_unix_ms) -> None:
        super().__init__(boot_id)
        self._read_unix_ms = read_unix_ms

    def unix_ms(self, uptime_ms: int) -> int | None:
        """Returns the present UTC, whatever the uptime; None if the clock was never set."""
        unix_ms = self._read_unix_ms()
        return unix_ms if unix_ms >= EARLIEST_UNIX_MS else None


def epoch_offset_s(gmtime) -> int:
    """Returns what to add to the board's `time.time()` to get seconds since 1970: some boards count from 2000."""
    return EPOCH_2000_S if gmtime(0)[0] == 2000 else 0


def earliest(timers_ms: list) -> int | None:
    """Returns the earliest of these moments; None stands for never."""
    return min([timer_ms for timer_ms in timers_ms if timer_ms is not None], default=None)
