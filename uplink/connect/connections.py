"""One connection of a route after another."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from gateway.routes import RouteState
from wire.backoff import Backoff

FAULT_ENDS_S = 60.0  # in one connection without a failure of our own, until it is told no more

logger = logging.getLogger(__name__)


class LoginRefused(Exception):
    """The server refuses the login of the route, and will until an operator changes a configuration or an account."""


class Connections:
    """Makes a route's connections, and tells the log and the route's state why each has failed or ended.

    Args:
        route: the route's name in the log.
        state: the route's.
        backoff: the waits between connections.
        losses: the errors that end a connection as it is expected; their texts say why.

    ``problem`` is why the newest one failed or ended; "" since the next one. An unexpected error is our own
    fault, and not the line's: the state's ``fault`` has it until a connection ends as expected, or lasts FAULT_ENDS_S.
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
            end_if_cancelled()
            await asyncio.sleep(self._backoff.next_wait_ms() / 1000)

    def note_connected(self, server: str) -> None:
        """A connection to a server, by its URL, carries messages from now on."""
        self._state.login_refused = ""
        self._state.connected, self._state.server = True, server
        self._state.reconnects += self._has_connected
        self._has_connected = True

    async def _serve_one(self, connection: Callable[[], Awaitable[None]]) -> None:
        is_well = asyncio.get_running_loop().call_later(FAULT_ENDS_S, self._end_fault)
        try:
            await connection()
        except self._losses as error:
            self._end_fault()
            self._state.note_error(str(error))
            self._state.login_refused = str(error) if isinstance(error, LoginRefused) else ""
            if str(error) != self.problem:
                self.problem = str(error)
                logger.warning("route %s: %s; storing meanwhile", self._route, self.problem)
        except Exception as error:
            what = f"{type(error).__name__}: {error}"
            self._state.fault = self.problem = f"fails by a fault of this gateway, and not of the line: {what}"
            self._state.note_error(f"unexpected failure: {what}")
            logger.exception("route %s: unexpected failure; storing meanwhile", self._route)
        finally:
            is_well.cancel()

    def _end_fault(self) -> None:
        self._state.fault = ""


async def wait_until(ended: asyncio.Future[str], works: Sequence[asyncio.Future[Any]]) -> None:
    """Waits until a connection has ended, or a work has. Raises what the work raises."""
    await asyncio.wait((ended, *works), return_when=asyncio.FIRST_COMPLETED)
    if not ended.done():
        for work in works:
            if work.done():
                work.result()


def end_if_cancelled() -> None:
    """Raises CancelledError if the task is to end: an error at the end of a connection may have taken its place, or
    `asyncio.wait_for`, which libraries wait with, has forgotten it (up to Python 3.11; python/cpython, issue 86296).
    """
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError
