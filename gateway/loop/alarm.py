"""A timer that is set anew each time."""

import asyncio
from collections.abc import Callable


class Alarm:
    """Calls a function once at a set time; it has to be set again for the next call.

    Args:
        ring: the function.
    """

    def __init__(self, ring: Callable[[], None]) -> None:
        self._ring = ring
        self._timer: asyncio.TimerHandle | None = None
        self._at_s = 0.0  # uvloop's handle of a time that has passed does not tell it

    def set(self, at_s: float) -> None:
        """Sets the time, in seconds of the event loop's clock; an earlier time that is already set stays."""
        if self._timer is None or at_s < self._at_s:
            self.cancel()
            self._at_s = at_s
            self._timer = asyncio.get_running_loop().call_at(at_s, self._call)

    def cancel(self) -> None:
        """Removes the time that was set."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _call(self) -> None:
        self._timer = None
        self._ring()
