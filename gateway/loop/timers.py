"""One timer for many: each connection, for example, would have to set a timer of its own anew with each packet."""

import asyncio
from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import Protocol

from gateway.loop.alarm import Alarm
from gateway.loop.pace import Slice

TICK_MS = 250  # the timers' resolution: callbacks run up to this late
PERIOD_S = 0.015  # from one slice of callbacks to the next one, if more are due at once than a slice takes
GONE_MOST = 64  # ticks without an object that stay in the heap, besides as many as have one


class Timed(Protocol):
    """An object with a timer. ``tick`` belongs to ``Timers``.

    When its time comes it may find that the time has moved, and return the new one.
    """

    tick: int

    def handle_timer(self, now_ms: int) -> int | None:
        """Acts if its time has come; returns its next time in ms of the loop's clock, None for none."""


class Timers:
    """Calls each object at its time, in milliseconds of the event loop's clock.

    Clients choose many of these times, and thousands may fall due together: they are called slice by slice, with time
    for other tasks and for commits in between.
    """

    def __init__(self) -> None:
        self._by_tick: dict[int, dict[Timed, None]] = {}
        self._ticks: list[int] = []  # a heap of these ticks, and of some that no object has any more
        self._rests_until_s = 0.0
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
            if timed.tick not in self._by_tick:
                self._begin_tick(timed.tick)
            self._by_tick[timed.tick][timed] = None
            self._arm()

    def set_in(self, timed: Timed, wait_s: float) -> None:
        """Sets an object's time to ``wait_s`` seconds from now."""
        self.set(timed, int(1000 * (asyncio.get_running_loop().time() + wait_s)))

    def _begin_tick(self, tick: int) -> None:
        self._by_tick[tick] = {}
        heappush(self._ticks, tick)
        if len(self._ticks) > 2 * len(self._by_tick) + GONE_MOST:
            self._ticks = list(self._by_tick)
            heapify(self._ticks)

    def _first_tick(self) -> int | None:
        while self._ticks and self._ticks[0] not in self._by_tick:
            heappop(self._ticks)
        return self._ticks[0] if self._ticks else None

    def _arm(self) -> None:
        if tick := self._first_tick():
            self._alarm.set(max(tick * TICK_MS / 1000, self._rests_until_s))

    def _call(self) -> None:
        now_s = asyncio.get_running_loop().time()
        now_ms, slice_ = int(now_s * 1000), Slice()
        self._rests_until_s = now_s + PERIOD_S
        try:
            while (tick := self._first_tick()) and tick * TICK_MS <= now_ms:
                timed = next(iter(self._by_tick[tick]))
                self.set(timed, None)
                self.set(timed, timed.handle_timer(now_ms))
                if slice_.is_over:
                    break
        finally:  # an object that raises loses its time, and the others keep theirs
            self._arm()

    def close(self) -> None:
        """Stops calling; the next ``set`` starts it again."""
        self._alarm.cancel()


class Timer:
    """Calls a function once when its time in ``Timers`` has come.

    Args:
        call: the function.
    """

    __slots__ = ("_call", "tick")

    def __init__(self, call: Callable[[], object]) -> None:
        self._call = call
        self.tick = 0

    def handle_timer(self, now_ms: int) -> None:
        """See ``Timed``."""
        self._call()
