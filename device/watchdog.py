"""In the place of `Watchdog` of `device.boards`."""


class NoWatchdog:
    """Of a board without one, or of a device that wants none."""

    def feed(self) -> None:
        pass

    def lengthen(self, most_ms: int) -> None:
        pass

    def shorten(self) -> None:
        pass
