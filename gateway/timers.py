"""One timer for all connections: one for each of them, set anew by each packet, would take more than it is worth."""

import asyncio
from typing import Protocol

from gateway.alarm import Alarm

TICK_MS = 250  # so much later than it wants to somebody may be called


class Timed(Protocol):
    """Who wants to be called at a time of its own, which it may put off without a word; ``tick`` is the timers'."""

    tick: int

    def handle_timer(self, now_ms: int) -> int | None:
        """Acts where its time has come; returns when it wants to be called again, None for not at all."""


class Timers:
    """Calls each at its time, in milliseconds of the event loop's clock."""

    def __init__(self) -> None:
        self._by_tick: dict[int, dict[Timed, None]] = {}
        self._alarm = Alarm(self._call)

    def set(self, timed: Timed, due_ms: int | None) -> None:
        """Calls somebody at another time than before, or not at all; it is kept in memory until then."""
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
                    if timed.tick == tick:  # still: one may have ended another
                        self.set(timed, None)
                        self.set(timed, timed.handle_timer(now_ms))
        finally:  # whoever fails has no time any more, and does not cost others theirs
            if self._by_tick:
                self._arm()

    def close(self) -> None:
        """Calls nobody any more, until somebody is set."""
        self._alarm.cancel()
