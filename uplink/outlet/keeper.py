"""Decides which messages of a route are backfill: they waited too long to be live ones."""

import time
from collections import deque
from collections.abc import Awaitable, Callable

from gateway.store import LaneCursor, MessageLog, hand_over

BEHIND_S = 2.0  # a message that was not handed out for so long is no longer live
LOOKS_MOST = 8  # kept, of at most one in each LOOK_S
LOOK_S = 0.5


class LaneKeeper:
    """Hands over to the backfill what waits too long in the live lane, while the route is connected.

    Before a connection that is all that waits already too long. So what is stored during a loss of a second stays live,
    and goes in order.

    Args:
        log: the gateway's store.
        live, backfill: the cursors of the two lanes.
        renumber: ends the route numbers that the live lane has given so far.
        is_live_first: False for a route that goes back to one order: nothing joins the backfill any more.
        clock: returns seconds.
    """

    def __init__(
        self,
        log: MessageLog,
        live: LaneCursor,
        backfill: LaneCursor,
        renumber: Callable[[], Awaitable[None]],
        *,
        is_live_first: bool,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._log = log
        self._live = live
        self._backfill = backfill
        self._renumber = renumber
        self._is_live_first = is_live_first
        self._clock = clock
        self._looks: deque[tuple[float, int]] = deque()  # when, and the newest position then
        self._begun_at = log.head

    async def look(self, *, is_connected: bool) -> None:
        """Notes how far the log is, and hands over what waits too long. Raises sqlite3.Error."""
        now_s = self._clock()
        if not self._looks or now_s - self._looks[-1][0] >= LOOK_S:
            self._looks.append((now_s, self._log.head))
            if len(self._looks) > LOOKS_MOST:
                self._begun_at = max(self._begun_at, self._looks.popleft()[1])
        if is_connected and self._is_live_first and self._live.unread_from < self._old_up_to(now_s):
            # What a former process has sent gets other numbers in the backfill, and fresh messages would get its own.
            if (joining := self._live.may_join_backfill) is not None and self._live.may_have_sent(joining[0]):
                await self._renumber()
            await hand_over(self._log, self._live, self._backfill)
        self.trim()

    def _old_up_to(self, now_s: float) -> int:
        """Returns the newest position that is too old to be live."""
        return max([self._begun_at, *(head for looked_s, head in self._looks if looked_s <= now_s - BEHIND_S)])

    def trim(self) -> None:
        """Forgets the ranges of the backfill that are done, as the saved places of both lanes say."""
        saved = [self._log.saved_position(cursor.place) for cursor in (self._live, self._backfill)]
        self._live.backfill.trim(min(saved))
