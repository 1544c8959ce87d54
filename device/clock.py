"""What time a device writes into its readings, and which moment comes first."""

from device.boards import unix as board


class SystemClock:
    """The board's own clock, which somebody keeps right."""

    def unix_seconds(self) -> float | None:
        return board.unix_seconds()


class NoClock:
    """Only the uptime is known."""

    def unix_seconds(self) -> float | None:
        return None


def earliest(timers_ms: list) -> int | None:
    """The first of these moments; None stands for never."""
    return min([timer_ms for timer_ms in timers_ms if timer_ms is not None], default=None)


CLOCKS = {"system": SystemClock, "none": NoClock}
