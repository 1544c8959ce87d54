"""What the store knows of the gateway's routes: filters, numbers and backfills, and with which store sessions began."""

import asyncio
from collections.abc import Sequence
from typing import Any, Protocol

import msgspec

from gateway.store.consumer_names import BACKFILL
from gateway.store.routes.lanes import BackfillRanges
from gateway.store.routes.left_out import LeftOut
from gateway.store.sqlite.marks import draw_epoch
from gateway.store.tables import routes
from gateway.store.tables.log_rows import Part, Work
from gateway.store.tables.routes import UNKNOWN_FILTERS, Numbering, RouteRow


class Writer(Protocol):
    """What this asks of the log."""

    def submit(self, works: Sequence[Work], /) -> asyncio.Future[list[Any]]: ...

    def defer(self, work: Work, /) -> None: ...


class StoredRoutes:
    """The rows of the table ``route``. ``left_out`` is what each route leaves out.

    Args:
        log: writes them.
        rows: the rows in the file, by consumer.
        own: origin and epoch of the identities that the store itself gives.
    """

    def __init__(self, log: Writer, rows: dict[str, RouteRow], own: tuple[str, int]) -> None:
        self._log = log
        self._rows = rows
        self.own = own
        self._backfills: dict[str, BackfillRanges] = {}
        self.left_out: list[LeftOut] = []

    def note_stored(self, stored: Sequence[tuple[int, Part]]) -> None:
        """Parts of the log were stored, each with the position of its first message."""
        for one in self.left_out:
            for first, part in stored:
                one.note_stored(first, part)

    def names(self) -> list[str]:
        """Returns the consumers of all routes whose filters are known."""
        return [consumer for consumer, row in self._rows.items() if row.filters != UNKNOWN_FILTERS]

    def filters_of(self, consumer: str) -> tuple[str, ...]:
        """Returns a route's topic filters, ``#`` if they are not known."""
        row = self._rows.get(consumer)
        return ("#",) if row is None or row.filters == UNKNOWN_FILTERS else row.filters

    def note_filters(self, consumer: str, filters: tuple[str, ...]) -> None:
        """Notes a route's topic filters, with the next commit."""
        row = self._rows.get(consumer)
        if row is None or row.filters != filters:
            before = row or RouteRow(consumer, 0, ())
            self._rows[consumer] = msgspec.structs.replace(before, filters=filters)
            self._log.defer(self._save(consumer))

    def backfill_of(self, consumer: str) -> BackfillRanges:
        """Returns the positions of a route's backfill, which its two lanes share; some of them may be long done."""
        row = self._rows.get(consumer)
        if consumer not in self._backfills:
            self._backfills[consumer] = BackfillRanges(() if row is None else row.backfill)
        return self._backfills[consumer]

    def save_backfill(self, consumer: str) -> asyncio.Future[list[Any]]:
        """Notes the positions of a route's backfill; the future resolves once that is durable, or raises sqlite3.Error.

        The route has a row.
        """
        return self._log.submit([self._save(consumer)])

    def has_session(self, consumer: str) -> bool:
        """Whether a route's session at its next broker began with this store, and not with one before a repair."""
        row = self._rows.get(consumer)
        return row is not None and row.epoch == self.own[1]

    async def begin_session(self, consumer: str) -> None:
        """Notes durably that a route's session at its next broker has begun. Raises sqlite3.Error."""
        row = msgspec.structs.replace(self._rows[consumer], epoch=self.own[1])
        await self._log.submit([self._save(consumer, row)])
        self._rows[consumer] = row

    def numbering_of(self, place: str) -> Numbering | None:
        """Returns the numbers of a route's lane, None if it gives none. Their owner may change them;
        ``save_numberings`` writes them.
        """
        row = self._rows.get(_consumer_of(place))
        return None if row is None else row.numberings.get(place)

    def numbers_on(self, place: str, basis: str) -> bool:
        """Whether the numbers of a lane go on: they began with this store, and for the same kind of messages."""
        now = self.numbering_of(place)
        return now is not None and (now.store_epoch, now.basis) == (self.own[1], basis)

    def begin_numbering(self, place: str, basis: str, count: int) -> Work:
        """Begins an epoch of a lane's numbers behind those up to ``count``; returns the work that writes it."""
        numbering = Numbering(draw_epoch() or 1, self.own[1], basis, said=count, due_to=count, counted=count)
        return self._replace_numbering(place, {place: numbering})

    def end_numbering(self, place: str) -> Work | None:
        """Ends the epoch of a lane's numbers; returns the work that writes it, None if there was none."""
        return None if self.numbering_of(place) is None else self._replace_numbering(place, {})

    def _replace_numbering(self, place: str, found: dict[str, Numbering]) -> Work:
        row = self._rows[consumer := _consumer_of(place)]
        others = {other: numbering for other, numbering in row.numberings.items() if other != place}
        self._rows[consumer] = msgspec.structs.replace(row, numberings=others | found)
        return self.save_numberings(consumer)

    def save_numberings(self, consumer: str) -> Work:
        """Returns the work that writes the numbers of a route's lanes as they are now."""
        return self._save(consumer)

    def _save(self, consumer: str, row: RouteRow | None = None) -> Work:
        """Returns the work that writes a row, with the backfill as it is now."""
        backfill = tuple(self.backfill_of(consumer))
        return routes.save(msgspec.structs.replace(row or self._rows[consumer], backfill=backfill))

    def forget(self, consumer: str) -> None:
        """Removes a route's row with the next commit."""
        self._backfills.pop(consumer, None)
        if self._rows.pop(consumer, None):
            self._log.defer(routes.remove(consumer))


def _consumer_of(place: str) -> str:
    """Returns the consumer whose lane has a place."""
    return place.removeprefix(BACKFILL)
