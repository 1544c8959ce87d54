"""Hands what waits in the live lane of a route over to its backfill."""

import asyncio
from typing import Any, Protocol

from gateway.store.consumers.cursor import Cursor
from gateway.store.routes.lane_cursor import LaneCursor


class BackfillRows(Protocol):
    """Notes the positions of a route's backfill. ``StoredRoutes`` is one."""

    def save_backfill(self, consumer: str, /) -> asyncio.Future[list[Any]]: ...


class HandOverLog(Protocol):
    """What ``hand_over`` asks of the log."""

    @property
    def routes(self) -> BackfillRows: ...

    def note_earlier_place(self, cursor: Cursor, /) -> None: ...


async def hand_over(log: HandOverLog, live: LaneCursor, backfill: LaneCursor) -> bool:
    """Makes all that waits in the live lane part of the backfill, which then goes on behind what it has.

    What was handed out stays live, also what a former process has put into QoS 2 flows.

    Returns:
        Whether anything was handed over, once that is durable.

    Raises:
        sqlite3.Error: it could not be written, and all stays in the live lane.
    """
    async with live.fetching, backfill.fetching:
        if (found := live.may_join_backfill) is None:
            return False
        ranges, (first, last) = live.backfill, found
        live.give_to(backfill, first)
        ranges.add(first, last)
        backfill.read_again(first - 1)
        log.note_earlier_place(backfill)

        def take_back_if_failed(done: asyncio.Future[list[Any]]) -> None:
            if done.exception() is not None:
                ranges.cut(first - 1)
                live.read_again(first - 1)
                backfill.give_to(live, 0)

        saved = log.routes.save_backfill(live.consumer)
        saved.add_done_callback(take_back_if_failed)
        await asyncio.shield(saved)
        return True
