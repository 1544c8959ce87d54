"""What the store knows of the gateway's routes: their filters, and whether their sessions began with this store."""

import asyncio
from collections.abc import Sequence
from typing import Any, Protocol

import msgspec

from gateway.store.tables import routes
from gateway.store.tables.log_rows import Work
from gateway.store.tables.routes import RouteRow


class Writer(Protocol):
    """What this asks of the log."""

    def submit(self, works: Sequence[Work], /) -> asyncio.Future[list[Any]]: ...

    def defer(self, work: Work, /) -> None: ...


class StoredRoutes:
    """The rows of the table ``route``.

    Args:
        log: writes them.
        rows: the rows in the file, by consumer.
        epoch: the store's.
    """

    def __init__(self, log: Writer, rows: dict[str, RouteRow], epoch: int) -> None:
        self._log = log
        self._rows = rows
        self._epoch = epoch

    def names(self) -> list[str]:
        """Returns the consumers of all routes."""
        return list(self._rows)

    def filters_of(self, consumer: str) -> tuple[str, ...]:
        """Returns a route's topic filters, ``#`` if its row is lost."""
        row = self._rows.get(consumer)
        return ("#",) if row is None else row.filters

    def note_filters(self, consumer: str, filters: tuple[str, ...]) -> None:
        """Notes a route's topic filters, with the next commit."""
        row = self._rows.get(consumer)
        if row is None or row.filters != filters:
            self._rows[consumer] = RouteRow(consumer, 0 if row is None else row.epoch, filters)
            self._log.defer(routes.save(self._rows[consumer]))

    def has_session(self, consumer: str) -> bool:
        """Whether a route's session at its next broker began with this store, and not with one before a repair."""
        row = self._rows.get(consumer)
        return row is not None and row.epoch == self._epoch

    async def begin_session(self, consumer: str) -> None:
        """Notes durably that a route's session at its next broker has begun. Raises sqlite3.Error."""
        row = msgspec.structs.replace(self._rows[consumer], epoch=self._epoch)
        await self._log.submit([routes.save(row)])
        self._rows[consumer] = row

    def forget(self, consumer: str) -> None:
        """Removes a route's row with the next commit."""
        if self._rows.pop(consumer, None):
            self._log.defer(routes.remove(consumer))
