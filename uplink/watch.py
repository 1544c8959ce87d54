"""How much waits for a route, looked at now and then: nothing is counted while messages come and go.

What is too much is dropped, from the oldest on.
"""

import asyncio
import logging
import sqlite3
import time

from gateway.numbers import RouteState
from gateway.store.backlog import Backlog
from gateway.store.cursor import Cursor
from gateway.store.log import MessageLog
from gateway.store.survey import count_backlogs, settle
from uplink.config import RouteConfig

INTERVAL_S = 10.0  # between two looks, as long as they take little
SHARE = 0.02  # of the time, at most, goes into looking: a backlog of millions is looked at less often

logger = logging.getLogger(__name__)


class Watch:
    """Looks at a route's backlog.

    Args:
        state: where it is noted.
        log: the gateway's store.
        cursor: the route's place in it.
        config: the route, with its limits.
    """

    def __init__(self, state: RouteState, log: MessageLog, cursor: Cursor, config: RouteConfig) -> None:
        self._state = state
        self._log = log
        self._cursor = cursor
        self._config = config

    async def run(self) -> None:
        """Looks for ever."""
        while True:
            started_s = time.monotonic()
            try:
                await self.look()
            except sqlite3.Error as error:  # whoever reads the messages says so as well
                logger.debug("route %s: its backlog cannot be read: %s", self._state.name, error)
            took_s = time.monotonic() - started_s
            await asyncio.sleep(max(INTERVAL_S, took_s / SHARE))

    async def look(self) -> None:
        """Counts what waits, and drops what is too much. Raises sqlite3.Error."""
        cursor, state = self._cursor, self._state
        await settle(self._log, [cursor])  # past messages for others, up to the oldest that waits
        await count_backlogs(self._log, [cursor])
        if cursor.backlog is not None and not self._is_within_limits(cursor.backlog):
            await cursor.discard_oldest(self._is_within_limits)
        backlog = cursor.backlog or Backlog()
        if not self._log.counts_backlogs:
            cursor.backlog = None
        state.backlog_messages, state.backlog_bytes = backlog.messages, backlog.bytes
        oldest = await self._log.read(cursor.position, 1) if backlog.messages else []
        state.oldest_ms = oldest[0][1].received_ms if oldest else 0

    def _is_within_limits(self, backlog: Backlog) -> bool:
        messages, size = self._config.max_messages, self._config.max_bytes
        return (messages is None or backlog.messages <= messages) and (size is None or backlog.bytes <= size)
