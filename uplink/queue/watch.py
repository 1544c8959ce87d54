"""A route's backlog: how much waits, and since when. Messages beyond the route's limits are dropped, the oldest first.

An origin, or a topic filter, that is beyond a limit of its own loses its oldest messages as the route comes to them.
These do not count for the route's other limits.

The cursor counts the backlog as messages come and go. Only what waits at a start is counted by a walk through the log,
and the route sends meanwhile.
"""

import asyncio
import contextlib
import logging
import sqlite3
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence

from gateway.routes import Message, RouteState
from gateway.store import Backlog, LaneCursor, MessageLog, ReasonToDrop, drops, quotas, skip_ahead
from uplink.config.queue import QueueSettings
from uplink.outlet.keeper import LaneKeeper

INTERVAL_S = 1.0  # between two looks at the oldest message
RATE_S = 60.0  # over which the rate of messages that leave the backlog is taken
DROP_PAUSE_S = 0.02  # between two drops, so that one read of the file finds the oldest of many messages

logger = logging.getLogger(__name__)


class Rate:
    """How fast a count has grown in the last minute."""

    def __init__(self) -> None:
        self._moments: deque[tuple[float, int]] = deque()

    def take(self, now_s: float, count: int) -> float:
        """Returns the growth of a count a second, 0 in the first second."""
        moments = self._moments
        if not moments or now_s - moments[-1][0] >= INTERVAL_S:
            moments.append((now_s, count))
        while now_s - moments[0][0] > RATE_S:
            moments.popleft()
        begin_s, before = moments[0]
        return (count - before) / (now_s - begin_s) if now_s > begin_s else 0.0


class BacklogWatch:
    """Keeps one route's backlog within its limits, and the route's state up to date.

    Args:
        state: the route's state. Its backlog is exact at any time, but while a walk counts, its messages are an upper
            estimate, and its bytes are those counted so far.
        log: the gateway's store.
        cursors: the route's, which count: the backfill's first, if there is one.
        settings: the route's, with its limits.
        keeper: says what is backfill, if there is one.
        leaves_out: whether the route's rules leave a message out, None: it has no such rules.
        link_drops: why a message does not go over a link to a neighbour; None: all go.
    """

    def __init__(
        self,
        state: RouteState,
        log: MessageLog,
        cursors: Sequence[LaneCursor],
        settings: QueueSettings,
        keeper: LaneKeeper | None = None,
        leaves_out: Callable[[Message], bool] | None = None,
        link_drops: ReasonToDrop | None = None,
    ) -> None:
        self._state = state
        self._log = log
        self._cursors = cursors
        self._settings = settings
        self._keeper = keeper
        self._damaged = log.counters.messages_dropped[drops.DAMAGED]
        self._oldest: tuple[int, int] = (-1, 0)  # a place of the cursor, and when the message behind it was accepted
        self._beyond = asyncio.Event()
        self._rate = Rate()
        origins: quotas.OriginQuotas | None = None
        if settings.max_messages_per_origin or settings.max_bytes_per_origin:
            origins = quotas.OriginQuotas(settings.max_messages_per_origin, settings.max_bytes_per_origin)
        self.select(leaves_out, link_drops)
        topics = cursors[-1].tally.topics
        for cursor in cursors:
            cursor.tally.count_in(topics, origins)
            cursor.tally.changed = self._note
        self._note()

    def select(self, leaves_out: Callable[[Message], bool] | None, link_drops: ReasonToDrop | None = None) -> None:
        """Leaves these messages out from now on, and drops those, besides those beyond the limits."""
        self._link_drops = link_drops
        limits = self._reason_to_drop if self._settings.max_age_s or link_drops is not None else None
        for cursor in self._cursors:
            cursor.drop_by(limits, leaves_out)

    def _note(self) -> None:
        """The backlog has changed."""
        state, backlog = self._state, self._so_far()
        state.backlog_messages, state.backlog_bytes = backlog.messages, backlog.bytes
        state.backfill_messages = sum([one.tally.so_far.messages for one in self._cursors if one.is_backfill])
        if not backlog.messages:
            state.oldest_ms = 0
        if self._is_counted and not self._is_within_limits(backlog):
            self._beyond.set()

    def _so_far(self) -> Backlog:
        if len(self._cursors) == 1:
            return self._cursors[0].tally.so_far
        parts = [cursor.tally.so_far for cursor in self._cursors]
        return Backlog(sum([part.messages for part in parts]), sum([part.bytes for part in parts]))

    @property
    def _is_counted(self) -> bool:
        return all(cursor.backlog is not None for cursor in self._cursors)

    async def run(self) -> None:
        """Watches for ever."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._keep_counted())
            while True:
                with self._unless_unreadable():
                    await self._look()
                await asyncio.sleep(DROP_PAUSE_S)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(INTERVAL_S):
                        await self._beyond.wait()

    async def _keep_counted(self) -> None:
        while True:
            with self._unless_unreadable():
                await self._count()
            await asyncio.sleep(INTERVAL_S)

    @contextlib.contextmanager
    def _unless_unreadable(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:  # the sender, which reads the messages, says so
            logger.debug("route %s: its backlog cannot be read: %s", self._state.name, error)

    async def count(self) -> None:
        """Brings the state up to date, and drops messages beyond the limits. Raises sqlite3.Error."""
        await self._count()
        await self._look()

    async def _count(self) -> None:
        damaged = self._log.counters.messages_dropped[drops.DAMAGED]
        if not self._is_counted or damaged != self._damaged:  # damaged messages are never handed out
            await asyncio.gather(*(self._log.backlogs.count(cursor) for cursor in self._cursors))  # in one walk
            self._damaged = damaged

    async def _look(self) -> None:
        self._beyond.clear()
        await skip_ahead(self._log, self._cursors)  # past messages for other consumers
        for cursor in self._cursors:
            await cursor.discard_oldest(
                lambda _: not self._is_counted or self._is_within_limits(self._so_far()), self._reason_to_drop
            )
        if self._keeper is not None:
            await self._keeper.look(is_connected=self._state.connected)
        await self._find_oldest()
        arrived = sum([cursor.tally.arrived for cursor in self._cursors])
        self._state.arrived_per_s = self._rate.take(time.monotonic(), arrived)

    async def _find_oldest(self) -> None:
        position = min([cursor.position for cursor in self._cursors])
        if self._state.backlog_messages and position != self._oldest[0]:
            found = await self._log.read(position, 1)
            self._oldest = position, found[0][1].received_ms if found else 0
        self._state.oldest_ms = self._oldest[1] if self._state.backlog_messages else 0

    def _is_within_limits(self, backlog: Backlog) -> bool:
        for counted in self._cursors[-1].tally.quotas:  # those of all lanes
            backlog = Backlog(backlog.messages - counted.excess.messages, backlog.bytes - counted.excess.bytes)
        return not backlog.exceeds(self._settings.max_messages, self._settings.max_bytes)

    def _reason_to_drop(self, message: Message) -> str | None:
        max_age_s = self._settings.max_age_s
        if max_age_s is not None and message.received_ms < (time.time() - max_age_s) * 1000:
            return drops.EXPIRED
        return None if self._link_drops is None else self._link_drops(message)
