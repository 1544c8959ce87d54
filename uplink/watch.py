"""A route's backlog: it is counted every few seconds, so that messages that come and go cost nothing.

Messages beyond the route's limits are dropped, the oldest first.
"""

import asyncio
import logging
import sqlite3
import time

from gateway.routes import Backlog, Cursor, MessageLog, RouteState, count_backlogs, skip_ahead
from uplink.config import RouteConfig

INTERVAL_S = 10.0  # between two counts, as long as counting takes little time
SHARE = 0.02  # of the time, at most, goes into counting: a backlog of millions is counted less often

logger = logging.getLogger(__name__)


class BacklogWatch:
    """Counts one route's backlog.

    Args:
        state: the route's state, which says the count.
        log: the gateway's store.
        cursor: the route's cursor.
        config: the route, with its limits; None for one that is not configured, and keeps everything.
    """

    def __init__(self, state: RouteState, log: MessageLog, cursor: Cursor, config: RouteConfig | None) -> None:
        self._state = state
        self._log = log
        self._cursor = cursor
        self._config = config

    async def run(self) -> None:
        """Counts for ever."""
        while True:
            started_s = time.monotonic()
            try:
                await self.count()
            except sqlite3.Error as error:  # the sender, which reads the messages, says so
                logger.debug("route %s: its backlog cannot be read: %s", self._state.name, error)
            took_s = time.monotonic() - started_s
            await asyncio.sleep(max(INTERVAL_S, took_s / SHARE))

    async def count(self) -> None:
        """Counts the messages that wait, and drops those beyond the limits. Raises sqlite3.Error."""
        cursor, state = self._cursor, self._state
        await skip_ahead(self._log, [cursor])  # past messages for other consumers
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
        return self._config is None or not backlog.exceeds(self._config.max_messages, self._config.max_bytes)
