"""Messages that routes have set aside, because their next brokers will never take them.

Their rows are durable no later than the places of the routes' cursors, which have moved past them. The log keeps the
messages; if a full store evicts one, a range says so.
"""

import time
from collections.abc import Callable, Iterable
from typing import Protocol

from gateway.store.consumers.keepers import Keepers
from gateway.store.tables import refused
from gateway.store.tables.evicted import EvictedMessage
from gateway.store.tables.log_rows import Work
from gateway.store.tables.refused import RefusedRow


class Refused:
    """A message that a route has set aside; the log keeps it.

    Args:
        row: the message's row.
        lost: called with this object when a full store has evicted the message.
    """

    def __init__(self, row: RefusedRow, lost: Callable[["Refused"], None]) -> None:
        self.row = row
        self._lost = lost

    @property
    def position(self) -> int:
        """The message's position in the log."""
        return self.row.position

    @property
    def source(self) -> str:
        """The consumer of the route."""
        return self.row.consumer

    @property
    def positions(self) -> tuple[int]:
        """The same, for the log."""
        return (self.row.position,)

    def note_evicted(self, message: EvictedMessage) -> None:
        """A full store has evicted the message: no delivery is on its way that could still arrive."""
        message.lost()
        self._lost(self)


class RefusedLog(Protocol):
    """What the refused messages ask of the log."""

    def defer(self, work: Work, /) -> None: ...


class RefusedMessages:
    """The refused messages of all routes.

    Args:
        log: writes the rows.
        keepers: keeps the messages.
        rows: the rows in the file.
    """

    def __init__(self, log: RefusedLog, keepers: Keepers, rows: Iterable[RefusedRow]) -> None:
        self._log = log
        self._keepers = keepers
        self._by_consumer: dict[str, dict[int, Refused]] = {}
        for row in rows:
            self._keep(row)

    def of(self, consumer: str) -> list[Refused]:
        """Returns those of a route, the oldest message first."""
        return sorted(self._by_consumer.get(consumer, {}).values(), key=lambda one: one.position)

    def count(self, consumer: str) -> int:
        """Returns how many a route has."""
        return len(self._by_consumer.get(consumer, {}))

    def add(self, consumer: str, position: int, reason: str, via: str) -> None:
        """Sets a message with its route number aside, or replaces the reason of one that is.

        It counts for its route from now on.

        The row is durable no later than what is deferred or saved after it.
        """
        row = RefusedRow(consumer, position, reason, int(time.time() * 1000), via)
        if before := self._by_consumer.get(consumer, {}).get(position):
            before.row = row
        else:
            self._keep(row)
        self._log.defer(refused.save(row))

    def release(self, one: Refused) -> Work:
        """Takes a message out; returns the work that removes its row."""
        self._by_consumer[one.source].pop(one.position, None)  # a full store may have evicted it
        self._keepers.unpin(one)
        return refused.remove(one.source, one.position)

    def _keep(self, row: RefusedRow) -> None:
        one = self._by_consumer.setdefault(row.consumer, {})[row.position] = Refused(row, self._forget)
        self._keepers.pin(one)

    def _forget(self, one: Refused) -> None:
        del self._by_consumer[one.source][one.position]
        self._log.defer(refused.remove(one.source, one.position))
