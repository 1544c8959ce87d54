"""One timer that rings at the earliest of the times that are asked for."""

import asyncio
from collections.abc import Callable


class Alarm:
    """Rings once; whoever wants it to ring again sets it again.

    Args:
        ring: called when the time has come.
    """

    def __init__(self, ring: Callable[[], None]) -> None:
        self._ring = ring
        self._timer: asyncio.TimerHandle | None = None
        self._at_s = 0.0  # uvloop's handle of a time that has passed does not tell it

    def set(self, at_s: float) -> None:
        """Rings at a time of the event loop's clock, in seconds, or as soon as it was to ring anyway."""
        if self._timer is None or at_s < self._at_s:
            self.cancel()
            self._at_s = at_s
            self._timer = asyncio.get_running_loop().call_at(at_s, self._call)

    def cancel(self) -> None:
        """Does not ring until it is set again."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _call(self) -> None:
        self._timer = None
        self._ring()
