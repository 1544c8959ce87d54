"""What a device uses instead of the `Watchdog` of `device.boards` if it has none."""


class NoWatchdog:
    """Does nothing: the board has no watchdog, or the configuration wants none."""

    def feed(self) -> None:
        pass

    def lengthen(self, most_ms: int) -> None:
        pass

    def shorten(self) -> None:
        pass
