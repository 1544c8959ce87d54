"""One connection of a route after another."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from gateway.routes import RouteState
from wire.backoff import Backoff

logger = logging.getLogger(__name__)


class Connections:
    """Makes a route's connections, and tells the log and the route's state why each has failed or ended.

    Args:
        route: the route's name in the log.
        state: the route's.
        backoff: the waits between connections.
        losses: the errors that end a connection as it is expected; their texts say why.

    ``problem`` is why the newest one failed or ended; "" since the next one.
    """

    def __init__(self, route: str, state: RouteState, backoff: Backoff, *losses: type[Exception]) -> None:
        self.problem = ""
        self._route = route
        self._state = state
        self._backoff = backoff
        self._losses = losses
        self._has_connected = False

    async def serve(self, connection: Callable[[], Awaitable[None]]) -> None:
        """Serves one connection after another, for ever; each is served until its error."""
        while True:
            await self._serve_one(connection)
            _end_if_cancelled()
            await asyncio.sleep(self._backoff.next_wait_ms() / 1000)

    def note_connected(self, server: str) -> None:
        """A connection to a server, by its URL, carries messages from now on."""
        self._state.connected, self._state.server = True, server
        self._state.reconnects += self._has_connected
        self._has_connected = True

    async def _serve_one(self, connection: Callable[[], Awaitable[None]]) -> None:
        try:
            await connection()
        except self._losses as error:
            self._state.note_error(str(error))
            if str(error) != self.problem:
                self.problem = str(error)
                logger.warning("route %s: %s; storing meanwhile", self._route, self.problem)
        except Exception as error:
            self._state.note_error(f"unexpected failure: {error}")
            logger.exception("route %s: unexpected failure; storing meanwhile", self._route)


async def wait_until(ended: asyncio.Future[str], works: Sequence[asyncio.Future[Any]]) -> None:
    """Waits until a connection has ended, or a work has. Raises what the work raises."""
    await asyncio.wait((ended, *works), return_when=asyncio.FIRST_COMPLETED)
    if not ended.done():
        for work in works:
            if work.done():
                work.result()


def _end_if_cancelled() -> None:
    """Raises CancelledError if the task is to end: an error at the end of a connection may have taken its place."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError
