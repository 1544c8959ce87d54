"""One timer for all connections: each of them would have to set a timer of its own anew with each packet."""

import asyncio
from collections.abc import Callable
from typing import Protocol

TICK_MS = 250  # the timers' resolution: callbacks run up to this late


class Timed(Protocol):
    """An object with a timer. ``tick`` belongs to ``Timers``.

    When its time comes it may find that the time has moved, and return the new one.
    """

    tick: int

    def handle_timer(self, now_ms: int) -> int | None:
        """Acts if its time has come; returns its next time in ms of the loop's clock, None for none."""


class Timers:
    """Calls each object at its time, in milliseconds of the event loop's clock."""

    def __init__(self) -> None:
        self._by_tick: dict[int, dict[Timed, None]] = {}
        self._alarm = Alarm(self._call)

    def set(self, timed: Timed, due_ms: int | None) -> None:
        """Sets an object's time, which replaces the one before; None removes it. Holds the object until then."""
        if timed.tick:
            at_same_time = self._by_tick[timed.tick]
            del at_same_time[timed]
            if not at_same_time:
                del self._by_tick[timed.tick]
        timed.tick = 0 if due_ms is None else due_ms // TICK_MS + 1
        if timed.tick:
            self._by_tick.setdefault(timed.tick, {})[timed] = None
            self._arm()

    def _arm(self) -> None:
        self._alarm.set(min(self._by_tick) * TICK_MS / 1000)

    def _call(self) -> None:
        now_ms = int(asyncio.get_running_loop().time() * 1000)
        try:
            for tick in [tick for tick in self._by_tick if tick * TICK_MS <= now_ms]:
                for timed in list(self._by_tick.get(tick, ())):
                    if timed.tick == tick:  # it may have been removed by one of those called before it
                        self.set(timed, None)
                        self.set(timed, timed.handle_timer(now_ms))
        finally:  # an object that raises loses its time, and the others keep theirs
            if self._by_tick:
                self._arm()

    def close(self) -> None:
        """Stops calling; the next ``set`` starts it again."""
        self._alarm.cancel()


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
