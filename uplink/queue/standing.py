"""A route that stands: the other end can be reached, and takes no messages now."""

import asyncio
import logging
import time
from collections.abc import Callable

from gateway.routes import RouteState
from wire.backoff import Backoff

PAUSE_SHORTEST_MS, PAUSE_LONGEST_MS = 500, 30_000

logger = logging.getLogger(__name__)


class Standing:
    """The pauses of one connection, in which no messages go out; the route's state says why.

    Args:
        state: the route's.
        backoff: the waits between connections, which begin anew with each success.
        pause: called when a pause begins.
        go_on: called when it is over.
    """

    def __init__(
        self, state: RouteState, backoff: Backoff, pause: Callable[[], None], go_on: Callable[[], None]
    ) -> None:
        self._state = state
        self._backoff = backoff
        self._begin_pause = pause
        self._go_on = go_on
        self._pauses = Backoff(PAUSE_SHORTEST_MS, PAUSE_LONGEST_MS)
        self._pause: asyncio.TimerHandle | None = None

    def note_success(self) -> None:
        """The other end has taken a message."""
        self._state.acknowledged_ms = int(time.time() * 1000)
        self._backoff.reset()
        if self._pause is None and self._state.stands:
            logger.info("route %s: messages go out again", self._state.name)
            self._state.stands = ""
            self._pauses.reset()

    def begin(self, why: str) -> None:
        """The route stands, from now on or still: a pause begins, unless there is one."""
        if not self._state.stands:
            logger.warning("route %s stands: %s; storing meanwhile", self._state.name, why)
            self._state.note_error(why)
        self._state.stands = why
        if self._pause is None:
            self._begin_pause()
            wait_s = self._pauses.next_wait_ms() / 1000
            self._pause = asyncio.get_running_loop().call_later(wait_s, self._end_pause)

    def stop(self) -> None:
        """The connection has ended. A route that pauses stands no more."""
        if self._pause is not None:
            self._pause.cancel()
            self._state.stands = ""

    def _end_pause(self) -> None:
        self._pause = None
        self._go_on()
